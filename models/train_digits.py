"""Train the handwritten digits classifier and write what `make run` uses.

    python models/train_digits.py                 digits.onnx, digits.txt and digit.png, beside it

The data comes with scikit-learn (1,797 pictures of 8x8 pixels), the network and its gradients are
written out in NumPy. The seed is fixed, but products may round differently on other machines: the
files in the repository are one run's.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper
from PIL import Image
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

HERE = Path(__file__).resolve().parent
SEED = 7
EPOCHS = 60
BATCH = 64
WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
LAYERS = {
    "conv1": (8, 1, 3, 3),
    "conv2": (16, 8, 3, 3),
    "conv3": (32, 16, 3, 3),
    "fc": (10, 32 * 2 * 2),
}
"""Shapes of the weights; each layer has a bias as well."""

Floats = npt.NDArray[np.float32]
Labels = npt.NDArray[np.int64]
Parameters = dict[str, Floats]


@dataclass(frozen=True)
class Digits:
    """Pictures `[n, 1, 8, 8]` from 0 (ground) to 1 (ink) and what they show, in two parts."""

    train_x: Floats
    test_x: Floats
    train_y: Labels
    test_y: Labels


def load() -> Digits:
    """Return scikit-learn's digits, a fifth of each class held out."""
    data = load_digits()
    x = (data.images[:, None] / 16.0).astype(np.float32)
    parts = train_test_split(x, data.target, test_size=0.2, random_state=SEED, stratify=data.target)
    return Digits(*parts)


def initial_parameters(rng: np.random.Generator) -> Parameters:
    """Return He-initialised weights and zero biases."""
    parameters: Parameters = {}
    for name, shape in LAYERS.items():
        spread = np.float32(np.sqrt(2.0 / np.prod(shape[1:])))
        parameters[f"{name}.weight"] = rng.standard_normal(shape, np.float32) * spread
        parameters[f"{name}.bias"] = np.zeros(shape[0], np.float32)
    return parameters


def patches(x: Floats) -> Floats:
    """Return the 3x3 surroundings of each pixel, `[n, h, w, c * 9]`, zeros outside."""
    n, c, h, w = x.shape
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    return windows.transpose(0, 2, 3, 1, 4, 5).reshape(n, h, w, c * 9)


def conv_relu(x: Floats, weight: Floats, bias: Floats) -> tuple[Floats, Floats]:
    """Return `relu(conv(x))` and the patches that its gradient needs."""
    columns = patches(x)
    y = columns @ weight.reshape(len(weight), -1).T + bias
    return np.maximum(y, 0).transpose(0, 3, 1, 2), columns


def conv_relu_grad(
    dy: Floats, y: Floats, columns: Floats, weight: Floats
) -> tuple[Floats, Floats, Floats]:
    """Return the gradients of input, weight and bias."""
    d = np.where(y > 0, dy, np.float32(0)).transpose(0, 2, 3, 1)
    flat = d.reshape(-1, d.shape[3])
    dw = (flat.T @ columns.reshape(len(flat), -1)).reshape(weight.shape)
    turned = weight[:, :, ::-1, ::-1].transpose(1, 0, 2, 3)
    dx = patches(d.transpose(0, 3, 1, 2)) @ turned.reshape(len(turned), -1).T
    return dx.transpose(0, 3, 1, 2), dw, flat.sum(axis=0)


def max_pool(x: Floats) -> Floats:
    """Return the largest of each 2x2 square."""
    n, c, h, w = x.shape
    pooled: Floats = x.reshape(n, c, h // 2, 2, w // 2, 2).max(axis=(3, 5))
    return pooled


def max_pool_grad(dy: Floats, x: Floats, y: Floats) -> Floats:
    """Return the gradient of the input; equal largest values share it."""
    winner = x == y.repeat(2, axis=2).repeat(2, axis=3)
    share = dy / np.maximum(max_pool_count(winner), 1)
    return np.where(winner, share.repeat(2, axis=2).repeat(2, axis=3), np.float32(0))


def max_pool_count(winner: npt.NDArray[np.bool_]) -> Floats:
    """Return how many values of each 2x2 square are the largest."""
    n, c, h, w = winner.shape
    count: Floats = winner.reshape(n, c, h // 2, 2, w // 2, 2).sum(axis=(3, 5), dtype=np.float32)
    return count


def forward(p: Parameters, x: Floats) -> dict[str, Floats]:
    """Return every intermediate value; `logits` is the result."""
    v = {"x": x}
    v["y1"], v["c1"] = conv_relu(x, p["conv1.weight"], p["conv1.bias"])
    v["y2"], v["c2"] = conv_relu(v["y1"], p["conv2.weight"], p["conv2.bias"])
    v["p2"] = max_pool(v["y2"])
    v["y3"], v["c3"] = conv_relu(v["p2"], p["conv3.weight"], p["conv3.bias"])
    v["p3"] = max_pool(v["y3"])
    v["flat"] = v["p3"].reshape(len(x), -1)
    v["logits"] = v["flat"] @ p["fc.weight"].T + p["fc.bias"]
    return v


def gradients(p: Parameters, v: dict[str, Floats], labels: Labels) -> Parameters:
    """Return the gradient of the mean cross entropy for every parameter."""
    logits = v["logits"] - v["logits"].max(axis=1, keepdims=True)
    d = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    d[np.arange(len(labels)), labels] -= 1
    d /= np.float32(len(labels))
    g = {"fc.weight": d.T @ v["flat"], "fc.bias": d.sum(axis=0)}
    d = max_pool_grad((d @ p["fc.weight"]).reshape(v["p3"].shape), v["y3"], v["p3"])
    d, *g3 = conv_relu_grad(d, v["y3"], v["c3"], p["conv3.weight"])
    d = max_pool_grad(d, v["y2"], v["p2"])
    d, *g2 = conv_relu_grad(d, v["y2"], v["c2"], p["conv2.weight"])
    d, *g1 = conv_relu_grad(d, v["y1"], v["c1"], p["conv1.weight"])
    for name, (weight, bias) in {"conv1": g1, "conv2": g2, "conv3": g3}.items():
        g[f"{name}.weight"], g[f"{name}.bias"] = weight, bias
    return g


class Adam:
    """Adam over a dictionary of parameters, which it changes in place."""

    def __init__(self, parameters: Parameters) -> None:
        self._parameters = parameters
        self._mean = {name: np.zeros_like(value) for name, value in parameters.items()}
        self._square = {name: np.zeros_like(value) for name, value in parameters.items()}
        self._steps = 0

    def step(self, grads: Parameters, rate: float) -> None:
        """Move every parameter against its gradient."""
        self._steps += 1
        rate *= np.sqrt(1 - 0.999**self._steps) / (1 - 0.9**self._steps)
        for name, grad in grads.items():
            self._mean[name] += np.float32(0.1) * (grad - self._mean[name])
            self._square[name] += np.float32(0.001) * (grad * grad - self._square[name])
            change = self._mean[name] / (np.sqrt(self._square[name]) + np.float32(1e-8))
            self._parameters[name] -= np.float32(rate) * change


def jitter(rng: np.random.Generator, x: Floats) -> Floats:
    """Return the pictures moved by up to a pixel, of other contrast, and with some noise."""
    n = len(x)
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (8, 8), axis=(2, 3))
    down, right = rng.choice(3, (2, n), p=[0.2, 0.6, 0.2])
    moved = windows[np.arange(n), :, down, right]
    contrast = rng.uniform(0.7, 1.1, (n, 1, 1, 1)).astype(np.float32)
    noise = np.float32(0.03) * rng.standard_normal(x.shape, np.float32)
    return np.clip(moved * contrast + noise, 0, 1)


def train(digits: Digits) -> Parameters:
    """Return trained parameters and print the accuracy on the way."""
    rng = np.random.default_rng(SEED)
    parameters = initial_parameters(rng)
    adam = Adam(parameters)
    for epoch in range(EPOCHS):
        order = rng.permutation(len(digits.train_x))
        rate = 0.003 * 0.5 * (1 + np.cos(np.pi * epoch / EPOCHS))
        for picked in np.split(order, range(BATCH, len(order), BATCH)):
            values = forward(parameters, jitter(rng, digits.train_x[picked]))
            adam.step(gradients(parameters, values, digits.train_y[picked]), rate)
        if epoch % 10 == 9:
            held_out = accuracy(parameters, digits.test_x, digits.test_y)
            print(f"epoch {epoch + 1}: {held_out:.2%} of the held-out pictures")
    return parameters


def accuracy(p: Parameters, x: Floats, labels: Labels) -> float:
    """Return the share of pictures that are recognised."""
    return float((forward(p, x)["logits"].argmax(axis=1) == labels).mean())


def export(p: Parameters, held_out: float, pictures: int) -> onnx.ModelProto:
    """Return the trained network as an ONNX model."""
    pool = {"kernel_shape": [2, 2], "strides": [2, 2]}
    same = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    steps: list[tuple[str, str, dict[str, Any]]] = [
        ("Conv", "conv1", {**same, "strides": [1, 1]}),
        ("Relu", "relu1", {}),
        ("Conv", "conv2", {**same, "strides": [1, 1]}),
        ("Relu", "relu2", {}),
        ("MaxPool", "pool2", pool),
        ("Conv", "conv3", {**same, "strides": [1, 1]}),
        ("Relu", "relu3", {}),
        ("MaxPool", "pool3", pool),
        ("Flatten", "flatten", {"axis": 1}),
        ("Gemm", "fc", {"transB": 1}),
        ("Softmax", "probabilities", {"axis": 1}),
    ]
    nodes, value = [], "image"
    for op, name, attributes in steps:
        inputs = [value, f"{name}.weight", f"{name}.bias"] if name in LAYERS else [value]
        nodes.append(helper.make_node(op, inputs, [name], f"/{name}", None, None, **attributes))
        value = name
    graph = helper.make_graph(
        nodes,
        "digits",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 1, 8, 8])],
        [helper.make_tensor_value_info(value, TensorProto.FLOAT, ["batch", 10])],
        initializer=[numpy_helper.from_array(array, name) for name, array in p.items()],
    )
    model = helper.make_model(
        graph,
        producer_name="kn-engine models/train_digits.py",
        doc_string="Handwritten digits, bright ink on dark ground, 8x8 pixels from 0 to 1.",
        ir_version=8,
        opset_imports=[helper.make_opsetid("", 17)],
    )
    metadata = {
        "class_names": ",".join(WORDS),
        "held_out_accuracy": f"{held_out:.4f}",
        "held_out_pictures": str(pictures),
        "training_data": "scikit-learn load_digits (UCI optical recognition of handwritten digits)",
    }
    helper.set_model_props(model, metadata)
    onnx.checker.check_model(model, full_check=True)
    return model


def picture(x: Floats) -> Image.Image:
    """Return one 8x8 picture as a grey image of 64x64 pixels."""
    small = Image.fromarray(np.rint(x[0] * 255).astype(np.uint8))
    return small.resize((64, 64), Image.Resampling.BICUBIC)


def read_back(image: Image.Image) -> Floats:
    """Return what `kn run` makes of an image file: grey, 8x8 pixels, from 0 to 1."""
    small = image.convert("L").resize((8, 8), Image.Resampling.BILINEAR)
    return np.asarray(small, np.float32)[None, None] / np.float32(255)


def sample(p: Parameters, digits: Digits, label: int) -> Image.Image:
    """Return the held-out picture of `label` that survives being enlarged and shrunk best."""
    images = [picture(x) for x in digits.test_x[digits.test_y == label]]
    logits = forward(p, np.concatenate([read_back(image) for image in images]))["logits"]
    margins = logits[:, label] - np.delete(logits, label, axis=1).max(axis=1)
    return images[int(margins.argmax())]


def main() -> int:
    """Train, and write the model, its labels and a picture."""
    parser = argparse.ArgumentParser(description="Train the digits classifier.")
    parser.add_argument("--out", type=Path, default=HERE, help="folder to write to")
    out = parser.parse_args().out
    digits = load()
    parameters = train(digits)
    held_out = accuracy(parameters, digits.test_x, digits.test_y)
    model = export(parameters, held_out, len(digits.test_y))
    out.mkdir(parents=True, exist_ok=True)
    onnx.save(model, out / "digits.onnx")
    (out / "digits.txt").write_text("".join(f"{word}\n" for word in WORDS))
    sample(parameters, digits, 3).save(out / "digit.png", optimize=True)
    print(f"{out / 'digits.onnx'}: {held_out:.2%} of {len(digits.test_y)} held-out pictures")
    return 0 if held_out >= 0.97 else 1


if __name__ == "__main__":
    sys.exit(main())
