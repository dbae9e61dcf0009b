"""Whole programs that load a model and run it, each engine in processes of its own.

    python -m benchmarks.processes [--rows REGEX] [--quick] [--runs 5]

`memory` is the peak of resident memory over five runs, in MB; `program` the seconds from the first
line of Python, imports included, to the first outputs.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from benchmarks.figures import Benchmark, Case, Run
from benchmarks.models import real_models
from benchmarks.results import fresh
from benchmarks.rows import exports_folder

THREADS = 2
RUNS = 5
EXPORTS = ("resnet50", "distilbert")
REAL = {
    "nudenet/320n": "nudenet",
    "silero-vad/silero_vad": "silero",
    "magika/model": "magika",
    "rapidocr-onnxruntime/ch_PP-OCRv4_rec_infer": "rapidocr recognizer",
}
ASKED = ("resnet50", "distilbert", "nudenet")
"""Whose memory has a target."""


def peak(model: Path, recording: Path, seconds: float) -> Run:
    """Compare peaks of memory, in MB."""
    ours, theirs = (_alone(e, model, recording, RUNS)["peak"] / 1e3 for e in ENGINES)
    return Run(ours, theirs, theirs / ours)


def program(model: Path, recording: Path, seconds: float) -> Run:
    """Compare whole programs; their first runs fill the caches of files."""
    for engine in ENGINES:
        _alone(engine, model, recording, 1)
    ours, theirs = (_alone(e, model, recording, 1)["seconds"] for e in ENGINES)
    return Run(ours, theirs, theirs / ours)


ENGINES = ("ours", "onnxruntime")


def _alone(engine: str, model: Path, recording: Path, runs: int) -> dict[str, float]:
    arguments = (engine, str(model), str(recording), str(THREADS), str(runs))
    found: dict[str, float] = fresh("benchmarks.one_engine", *arguments)
    return found


def cases(args: argparse.Namespace) -> Iterator[Case]:
    """Yield memory of all, then programs."""
    folder = exports_folder(args.folder)
    found = {n: (folder / f"{n}.legacy.onnx", folder / f"{n}.legacy.npz") for n in EXPORTS}
    for model in real_models():
        if model.name in REAL and model.recording is not None:
            found[REAL[model.name]] = (model.path, model.recording)
    for name, files in found.items():
        yield Case(f"memory {name}", partial(peak, *files), 1.0 if name in ASKED else None)
    for name, files in found.items():
        yield Case(f"program {name}", partial(program, *files))


BENCHMARK = Benchmark(
    "processes",
    __doc__ or "",
    cases,
    unit="MB or s",
    scale=1,
    arguments=lambda parser: parser.add_argument("--folder", help="of the exported models"),
)

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
