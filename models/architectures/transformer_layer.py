"""A BERT encoder layer as the legacy PyTorch exporter wrote it for opset 11."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import onnx
from onnx import TensorProto

from models.architectures.layers import linear, size_of
from models.architectures.sketch import Architecture, Array, Sketch, normal

__all__ = ["TRANSFORMER_LAYER"]

HIDDEN, HEADS, INNER = 64, 4, 128


def _float(s: Sketch, value: float) -> str:
    return s.constant(value, np.float32)


def _view(s: Sketch, x: str, sizes: list[str]) -> str:
    """Add a Reshape to sizes that are rank-0 values, each unsqueezed and then joined."""
    parts = [s.node("Unsqueeze", size, axes=[0]) for size in sizes]
    return s.node("Reshape", x, s.node("Concat", *parts, axis=0))


def _layer_norm(s: Sketch, x: str) -> str:
    centred = s.node("Sub", x, s.node("ReduceMean", x, axes=[-1], keepdims=1))
    squared = s.node("Pow", centred, _float(s, 2.0))
    variance = s.node("ReduceMean", squared, axes=[-1], keepdims=1)
    deviation = s.node("Sqrt", s.node("Add", variance, _float(s, 1e-12)))
    y = s.node("Div", centred, deviation)
    scale = s.weight("weight", np.float32(0.5) + s.rng.random(HIDDEN).astype(np.float32))
    return s.node("Add", s.node("Mul", y, scale), s.random("bias", HIDDEN, fan_in=100))


def _gelu(s: Sketch, x: str) -> str:
    erf = s.node("Erf", s.node("Div", x, _float(s, math.sqrt(2.0))))
    y = s.node("Mul", x, s.node("Add", erf, _float(s, 1.0)))
    return s.node("Mul", y, _float(s, 0.5))


def _heads(s: Sketch, x: str, name: str, perm: list[int]) -> str:
    with s.scope(name):
        y = linear(s, x, (HIDDEN, HIDDEN))
    sizes = [size_of(s, y, 0), size_of(s, y, 1)]
    sizes += [s.constant(n, np.int64) for n in (HEADS, HIDDEN // HEADS)]
    return s.node("Transpose", _view(s, y, sizes), perm=perm)


def _attention(s: Sketch, x: str, bias: str) -> str:
    query = _heads(s, x, "query", [0, 2, 1, 3])
    key = _heads(s, x, "key", [0, 2, 3, 1])
    value = _heads(s, x, "value", [0, 2, 1, 3])
    scores = s.node("MatMul", query, key)
    scores = s.node("Div", scores, _float(s, math.sqrt(HIDDEN // HEADS)))
    weights = s.node("Softmax", s.node("Add", scores, bias), axis=3)
    context = s.node("Transpose", s.node("MatMul", weights, value), perm=[0, 2, 1, 3])
    sizes = [size_of(s, context, 0), size_of(s, context, 1), s.constant(HIDDEN, np.int64)]
    return _view(s, context, sizes)


def _mask_bias(s: Sketch, mask: str) -> str:
    mask = s.node("Unsqueeze", s.node("Unsqueeze", mask, axes=[1]), axes=[2])
    dropped = s.node("Sub", _float(s, 1.0), s.node("Cast", mask, to=TensorProto.FLOAT))
    return s.node("Mul", dropped, _float(s, -10000.0))


def _build() -> onnx.ModelProto:
    s = Sketch("transformer_layer", "BERT encoder layer, all decomposed", opset=11, seed=103)
    x = s.float_input("hidden", "batch", "seq", HIDDEN)
    mask = s.input("mask", TensorProto.INT64, ["batch", "seq"])
    bias = _mask_bias(s, mask)
    with s.scope("attention"):
        context = _attention(s, x, bias)
        with s.scope("output"):
            x = _layer_norm(s, s.node("Add", linear(s, context, (HIDDEN, HIDDEN)), x))
    with s.scope("intermediate"):
        y = _gelu(s, linear(s, x, (HIDDEN, INNER)))
    with s.scope("output"):
        x = _layer_norm(s, s.node("Add", linear(s, y, (INNER, HIDDEN)), x))
    s.float_output(x, "encoded", "batch", "seq", HIDDEN)
    return s.model()


def _feeds(rng: np.random.Generator, dims: Mapping[str, int]) -> dict[str, Array]:
    batch, seq = dims["batch"], dims["seq"]
    lengths = rng.integers(1, seq, size=(batch, 1), endpoint=True)
    mask = (np.arange(seq) < lengths).astype(np.int64)
    return {"hidden": normal(rng, batch, seq, HIDDEN), "mask": mask}


TRANSFORMER_LAYER = Architecture("transformer_layer", {"batch": 2, "seq": 9}, _build, _feeds)
