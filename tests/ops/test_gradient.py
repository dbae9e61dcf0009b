"""The operator Gradient: derivatives that a model asks for itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

import kn_runtime
from kn_graph.errors import MalformedModelError, UnsupportedModelError
from tests.small_models import info, model, node

F32 = np.float32
OPSETS = {"": 21, "ai.onnx.preview.training": 1}
X = np.array([1, 2, -3], F32)


def gradient(inputs: str, outputs: str, **attributes: Any) -> Any:
    return node("Gradient", inputs, outputs, domain="ai.onnx.preview.training", **attributes)


def run(
    nodes: list[Any],
    outputs: list[str],
    given: dict[str, Any],
    *,
    device: str = "reference",
    **more: Any,
) -> dict[str, Any]:
    inputs = [
        info(n, a.shape, TensorProto.INT64 if a.dtype == np.int64 else TensorProto.FLOAT)
        for n, a in given.items()
    ]
    made = model(nodes, inputs, outputs, opsets=OPSETS, **more)
    results: dict[str, Any] = kn_runtime.load(made, device).eval(given)
    return results


@pytest.mark.parametrize("device", ["reference", "cpu"])
def test_weights_that_start_equal_have_gradients_of_their_own(device: str) -> None:
    nodes = [
        node("Mul", "x a", "ax"),
        node("Mul", "ax b", "abx"),
        node("Add", "abx c", "y"),
        gradient("a b c x", "da db dc", xs=["a", "b", "c"], zs=["x"], y="y"),
    ]
    weights = {"a": np.zeros(3, F32), "b": np.zeros(3, F32), "c": np.full(3, 5, F32)}
    got = run(nodes, ["da", "db", "dc"], {"x": X}, device=device, weights=weights)
    assert {n: v.tolist() for n, v in got.items()} == {"da": [0] * 3, "db": [0] * 3, "dc": [1] * 3}
    weights = {"a": np.full(3, 2, F32), "b": np.full(3, 2, F32), "c": np.zeros(3, F32)}
    got = run(nodes, ["da", "db"], {"x": X}, device=device, weights=weights)
    assert got["da"].tolist() == got["db"].tolist() == (2 * X).tolist()


def test_the_inputs_say_where_the_gradient_is_taken() -> None:
    nodes = [
        node("Mul", "x x", "h"),
        node("Mul", "h z", "y"),
        gradient("at z", "dh", xs=["h"], zs=["z"], y="y"),
        gradient("at", "dx", xs=["x"], y="h"),
    ]
    given = {"x": X, "z": X + 1, "at": X * 10}
    got = run(nodes, ["dh", "dx"], given)
    assert got["dh"].tolist() == (X + 1).tolist()  # by h, not by x
    assert got["dx"].tolist() == (20 * X).tolist()


def test_one_tensor_may_be_fed_for_two() -> None:
    nodes = [node("Mul", "a b", "y"), gradient("x x", "da db", xs=["a", "b"], y="y")]
    got = run(nodes, ["da", "db"], {"a": X * 0, "b": X * 0 + 1, "x": X})
    assert got["da"].tolist() == got["db"].tolist() == X.tolist()


def test_integers_are_held_and_outputs_may_be_left_out() -> None:
    nodes = [
        node("Gather", "x i", "g", axis=0),
        node("Mul", "g w", "y"),
        gradient("w x i", "", xs=["w", "x"], zs=["i"], y="y"),
    ]
    nodes[-1].output.extend(["", "dx"])
    given = {"x": X, "w": np.array([2, 4], F32), "i": np.array([2, 2])}
    assert run(nodes, ["dx"], given)["dx"].tolist() == [0, 0, 6]


def test_gradients_of_gradients() -> None:
    nodes = [
        node("Mul", "x x", "h"),
        node("Mul", "h x", "y"),
        gradient("x", "first", xs=["x"], y="y"),
        gradient("x", "second", xs=["x"], y="first"),
    ]
    got = run(nodes, ["first", "second"], {"x": X})
    assert got["first"].tolist() == (3 * X * X).tolist()
    assert got["second"].tolist() == (6 * X).tolist()


def test_what_cannot_be_is_said() -> None:
    square = node("Mul", "x x", "y")
    with pytest.raises(MalformedModelError, match="has 1 inputs for the 2 tensors"):
        run([square, gradient("x", "d", xs=["x"], zs=["x"], y="y")], ["d"], {"x": X})
    with pytest.raises(MalformedModelError, match="reads tensor 'nothing'"):
        run([square, gradient("x", "d", xs=["x"], y="nothing")], ["d"], {"x": X})
    with pytest.raises(UnsupportedModelError, match="so they are one"):
        run([square, gradient("x x", "d", xs=["x"], zs=["x"], y="y")], ["d"], {"x": X})
    det = [node("Det", "x", "y"), gradient("x", "d", xs=["x"], y="y")]
    with pytest.raises(UnsupportedModelError, match="derivative of Det is not supported"):
        run(det, ["d"], {"x": np.eye(2, dtype=F32)})
