"""openwakeword: how likely each of its words was said, on the models of its port to the browser."""

import os
from pathlib import Path

import numpy as np
from material import report, speech
from openwakeword.model import Model

MODELS = Path(os.environ["OPENWAKEWORD_MODELS"])
WORDS = ("alexa", "hey_jarvis", "hey_mycroft", "hey_rhasspy", "timer", "weather")
np.random.seed(0)  # noqa: NPY002 (the package draws from it)
model = Model(
    wakeword_models=[str(MODELS / f"{word}_v0.1.onnx") for word in WORDS],
    inference_framework="onnx",
    melspec_model_path=str(MODELS / "melspectrogram.onnx"),
    embedding_model_path=str(MODELS / "embedding_model.onnx"),
)
AUDIO = (speech() * 20000).astype(np.int16)


def answer():
    np.random.seed(0)  # noqa: NPY002 (the package draws from it)
    model.reset()
    scores = [model.predict(AUDIO[i : i + 1280]) for i in range(0, len(AUDIO) - 1280, 1280)]
    return {
        "embeddings": model.preprocessor.feature_buffer[::9, ::7],
        "scores": [{k: float(x) for k, x in s.items()} for s in scores],
    }


report("openwakeword", answer)
