"""A MobileNetV3-like network: depthwise convolutions, relu6, hard swish, squeeze and excite."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx

from models.architectures.layers import batch_norm, conv
from models.architectures.sketch import Architecture, Array, Sketch, pictures

__all__ = ["DEPTHWISE_CNN"]


def _relu6(s: Sketch, x: str) -> str:
    return s.node("Clip", x, s.constant(0.0, np.float32), s.constant(6.0, np.float32))


def _hard_swish_by_hand(s: Sketch, x: str) -> str:
    """Add hard swish as exporters wrote it before opset 14 had the operator."""
    shifted = s.node("Add", x, s.constant(3.0, np.float32))
    return s.node("Div", s.node("Mul", x, _relu6(s, shifted)), s.constant(6.0, np.float32))


def _squeeze_excite(s: Sketch, x: str, channels: int) -> str:
    with s.scope("fc1"):
        y = conv(s, s.node("GlobalAveragePool", x), (channels, channels // 4), kernel=1)
        y = s.node("Relu", y)
    with s.scope("fc2"):
        y = conv(s, y, (channels // 4, channels), kernel=1)
    return s.node("Mul", x, s.node("HardSigmoid", y, alpha=1 / 6, beta=0.5))


def _relu6_block(s: Sketch, x: str) -> str:
    """Add an inverted residual of MobileNetV2: 16 channels, expanded to 48."""
    with s.scope("expand"):
        y = _relu6(s, batch_norm(s, conv(s, x, (16, 48), kernel=1, bias=False), 48))
    with s.scope("depthwise"):
        y = _relu6(s, batch_norm(s, conv(s, y, (48, 48), groups=48, bias=False), 48))
    with s.scope("project"):
        y = batch_norm(s, conv(s, y, (48, 16), kernel=1, bias=False), 16)
    return s.node("Add", x, y)


def _hard_swish_block(s: Sketch, x: str) -> str:
    """Add a block of MobileNetV3: expanded to 64, 5x5 with stride 2, squeeze and excite."""
    with s.scope("expand"):
        y = s.node("HardSwish", conv(s, x, (16, 64), kernel=1))
    with s.scope("depthwise"):
        y = s.node("HardSwish", conv(s, y, (64, 64), kernel=5, stride=2, groups=64))
    with s.scope("se"):
        y = _squeeze_excite(s, y, 64)
    with s.scope("project"):
        return conv(s, y, (64, 24), kernel=1)


def _build() -> onnx.ModelProto:
    s = Sketch("depthwise_cnn", "MobileNet-like depthwise CNN", opset=17, seed=102)
    x = s.float_input("image", "batch", 3, "height", "width")
    with s.scope("stem"):
        x = s.node("HardSwish", conv(s, x, (3, 16), stride=2))
    with s.scope("block1"):
        x = _relu6_block(s, x)
    with s.scope("block2"):
        x = _hard_swish_block(s, x)
    with s.scope("head"):
        x = _hard_swish_by_hand(s, conv(s, x, (24, 64), kernel=1))
    x = s.node("Flatten", s.node("GlobalAveragePool", x), axis=1)
    with s.scope("classifier"):
        weight = s.random("weight", 10, 64, fan_in=2)
        x = s.node("Gemm", x, weight, s.random("bias", 10, fan_in=100), transB=1)
    s.float_output(s.node("Softmax", x, axis=-1), "probabilities", "batch", 10)
    return s.model()


def _feeds(rng: np.random.Generator, dims: Mapping[str, int]) -> dict[str, Array]:
    return {"image": pictures(rng, dims["batch"], 3, dims["height"], dims["width"])}


DEPTHWISE_CNN = Architecture(
    "depthwise_cnn", {"batch": 2, "height": 32, "width": 32}, _build, _feeds
)
