"""A small ResNet for 32x32 pictures, with its batch norms not yet folded."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx

from models.architectures.layers import batch_norm, conv
from models.architectures.sketch import Architecture, Array, Sketch, pictures

__all__ = ["RESIDUAL_CNN"]


def _conv_bn(
    s: Sketch, x: str, name: str, channels: tuple[int, int], *, kernel: int = 3, stride: int = 1
) -> str:
    with s.scope(f"conv{name}"):
        y = conv(s, x, channels, kernel=kernel, stride=stride, bias=False)
    with s.scope(f"bn{name}"):
        return batch_norm(s, y, channels[1])


def _block(s: Sketch, x: str, channels: tuple[int, int], stride: int) -> str:
    c_in, c_out = channels
    y = s.node("Relu", _conv_bn(s, x, "1", channels, stride=stride))
    y = _conv_bn(s, y, "2", (c_out, c_out))
    if stride != 1 or c_in != c_out:
        with s.scope("downsample"):
            x = _conv_bn(s, x, "0", channels, kernel=1, stride=stride)
    return s.node("Relu", s.node("Add", y, x))


def _build() -> onnx.ModelProto:
    s = Sketch("residual_cnn", "Residual CNN with max-pooling stem", opset=17, seed=101)
    x = s.float_input("image", "batch", 3, 32, 32)
    x = s.node("Relu", _conv_bn(s, x, "1", (3, 16), kernel=5))
    x = s.node("MaxPool", x, kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2])
    with s.scope("layer1"):
        x = _block(s, x, (16, 16), 1)
    with s.scope("layer2"):
        x = _block(s, x, (16, 32), 2)
    x = s.node("Flatten", s.node("GlobalAveragePool", x), axis=1)
    with s.scope("fc"):
        weight = s.random("weight", 10, 32, fan_in=32)
        x = s.node("Gemm", x, weight, s.random("bias", 10, fan_in=100), transB=1)
    s.float_output(x, "logits", "batch", 10)
    return s.model()


def _feeds(rng: np.random.Generator, dims: Mapping[str, int]) -> dict[str, Array]:
    return {"image": pictures(rng, dims["batch"], 3, 32, 32)}


RESIDUAL_CNN = Architecture("residual_cnn", {"batch": 2}, _build, _feeds)
