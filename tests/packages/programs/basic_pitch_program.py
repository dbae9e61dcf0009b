"""basic-pitch: which notes a recording has."""

import contextlib
import logging
import sys
import tempfile
from pathlib import Path

logging.disable(logging.WARNING)

import basic_pitch  # noqa: E402
from basic_pitch.inference import Model, predict  # noqa: E402
from material import melody, report  # noqa: E402

folder = tempfile.TemporaryDirectory()
PATH = Path(folder.name, "melody.wav")
NOTES = melody(PATH)
model = Model(Path(basic_pitch.__file__).parent / "saved_models" / "icassp_2022" / "nmp.onnx")


def answer():
    with contextlib.redirect_stdout(sys.stderr):
        output, _, events = predict(PATH, model)
    events = sorted(events)
    return {
        "notes": [int(e[2]) for e in events],
        "has all": set(NOTES) <= {int(e[2]) for e in events},
        "starts": [float(e[0]) for e in events],
        "strengths": [float(e[3]) for e in events],
        "note": output["note"][::7, ::5],
    }


report("basic-pitch", answer)
