"""The digits model: what its file says, and that onnxruntime recognises what it should."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from PIL import Image

from models import train_digits

MODELS = Path(train_digits.__file__).parent


@pytest.fixture(scope="module")
def session():
    return onnxruntime.InferenceSession(MODELS / "digits.onnx", providers=["CPUExecutionProvider"])


def classify(session, images):
    return session.run(["probabilities"], {"image": images})[0]


def test_model_is_valid_and_small():
    onnx.checker.check_model(str(MODELS / "digits.onnx"), full_check=True)
    assert (MODELS / "digits.onnx").stat().st_size < 64_000


def test_labels_are_those_of_the_metadata(session):
    labels = (MODELS / "digits.txt").read_text().splitlines()
    metadata = session.get_modelmeta().custom_metadata_map
    assert labels == metadata["class_names"].split(",")
    assert len(labels) == 10


def test_held_out_accuracy_is_what_the_metadata_says(session):
    digits = train_digits.load()
    metadata = session.get_modelmeta().custom_metadata_map
    found = (classify(session, digits.test_x).argmax(axis=1) == digits.test_y).mean()
    assert found >= 0.97
    assert f"{found:.4f}" == metadata["held_out_accuracy"]
    assert str(len(digits.test_y)) == metadata["held_out_pictures"]


def test_picture_is_recognised_after_being_read_as_the_command_reads_it(session):
    with Image.open(MODELS / "digit.png") as image:
        assert (image.mode, image.size) == ("L", (64, 64))
        probabilities = classify(session, train_digits.read_back(image))[0]
    assert probabilities.argmax() == 3
    assert probabilities[3] > 0.9
    assert probabilities.sum() == pytest.approx(1, abs=1e-5)


def test_gradients_are_those_of_finite_differences():
    rng = np.random.default_rng(0)
    parameters = train_digits.initial_parameters(rng)
    parameters = {name: value.astype(np.float64) for name, value in parameters.items()}
    x, labels = rng.random((3, 1, 8, 8)), np.array([1, 4, 7])

    def loss():
        logits = train_digits.forward(parameters, x)["logits"]
        scores = np.log(np.exp(logits).sum(axis=1))
        return float((scores - logits[np.arange(3), labels]).mean())

    values = train_digits.forward(parameters, x)
    for name, grad in train_digits.gradients(parameters, values, labels).items():
        place = tuple(rng.integers(0, size) for size in grad.shape)
        at = parameters[name][place]
        parameters[name][place] = at + 1e-6
        above = loss()
        parameters[name][place] = at - 1e-6
        below = loss()
        parameters[name][place] = at
        assert grad[place] == pytest.approx((above - below) / 2e-6, rel=1e-4, abs=1e-7), name
