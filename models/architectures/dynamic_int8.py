"""A CNN quantized as onnxruntime's dynamic quantizer does: integer products, float rescaling."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
from onnx import TensorProto

from models.architectures.sketch import Architecture, Array, Sketch, pictures, random_weight

__all__ = ["DYNAMIC_INT8"]


def _rescale(s: Sketch, product: str, x_scale: str, w_scale: str, bias: str) -> str:
    """Add the way from int32 sums back to floats."""
    y = s.node("Cast", product, to=TensorProto.FLOAT)
    return s.node("Add", s.node("Mul", y, s.node("Mul", x_scale, w_scale)), bias)


def _conv(s: Sketch, x: str, channels: tuple[int, int], stride: int) -> str:
    """Add a convolution with uint8 weights around a zero point of 128."""
    c_in, c_out = channels
    floats = random_weight(s.rng, (c_out, c_in, 3, 3), c_in * 9)
    scale = np.float32(np.abs(floats).max() / np.float32(127.0))
    codes = np.rint(floats / scale) + 128
    quantized, x_scale, x_zero = s.nodes("DynamicQuantizeLinear", x, results=3)
    product = s.node(
        "ConvInteger",
        quantized,
        s.weight("weight_quantized", codes.astype(np.uint8)),
        x_zero,
        s.weight("weight_zero_point", np.uint8(128)),
        kernel_shape=[3, 3],
        pads=[1, 1, 1, 1],
        strides=[stride, stride],
    )
    bias = s.random("bias", 1, c_out, 1, 1, fan_in=100)
    return _rescale(s, product, x_scale, s.weight("weight_scale", scale), bias)


def _linear(s: Sketch, x: str, sizes: tuple[int, int]) -> str:
    """Add a matrix product with int8 weights, a scale and a zero point for each column."""
    floats = random_weight(s.rng, sizes, sizes[0])
    low, high = floats.min(axis=0), floats.max(axis=0)
    scale = ((high - low) / np.float32(255.0)).astype(np.float32)
    zero = np.rint(-128 - low / scale).clip(-128, 127)
    codes = np.rint(floats / scale + zero).clip(-128, 127)
    quantized, x_scale, x_zero = s.nodes("DynamicQuantizeLinear", x, results=3)
    product = s.node(
        "MatMulInteger",
        quantized,
        s.weight("weight_quantized", codes.astype(np.int8)),
        x_zero,
        s.weight("weight_zero_point", zero.astype(np.int8)),
    )
    bias = s.random("bias", sizes[1], fan_in=100)
    return _rescale(s, product, x_scale, s.weight("weight_scale", scale), bias)


def _build() -> onnx.ModelProto:
    s = Sketch("dynamic_int8", "Dynamically quantized CNN", opset=17, seed=107)
    x = s.float_input("image", "batch", 3, 16, 16)
    with s.scope("conv1"):
        x = s.node("Relu", _conv(s, x, (3, 16), 1))
    with s.scope("conv2"):
        x = s.node("Relu", _conv(s, x, (16, 32), 2))
    x = s.node("AveragePool", x, kernel_shape=[2, 2], strides=[2, 2])
    x = s.node("Flatten", x, axis=1)
    with s.scope("fc1"):
        x = s.node("Relu", _linear(s, x, (512, 64)))
    with s.scope("fc2"):
        x = _linear(s, x, (64, 10))
    s.float_output(x, "logits", "batch", 10)
    return s.model()


def _feeds(rng: np.random.Generator, dims: Mapping[str, int]) -> dict[str, Array]:
    return {"image": pictures(rng, dims["batch"], 3, 16, 16)}


DYNAMIC_INT8 = Architecture("dynamic_int8", {"batch": 2}, _build, _feeds)
