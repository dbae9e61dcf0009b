"""nudenet: finds a face in a photograph."""

from pathlib import Path

import skimage
from material import report
from nudenet import NudeDetector

detector = NudeDetector()
PHOTOGRAPH = str(Path(skimage.__file__).parent / "data" / "astronaut.png")


def answer():
    return {
        "one": detector.detect(PHOTOGRAPH),
        "batch": detector.detect_batch([PHOTOGRAPH, PHOTOGRAPH]),
    }


report("nudenet", answer)
