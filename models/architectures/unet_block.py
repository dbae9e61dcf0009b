"""A two-level UNet as diffusion models have it; height and width are any multiples of four."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx

from models.architectures.layers import conv, linear, silu, unsqueeze
from models.architectures.sketch import Architecture, Array, Sketch, normal, pictures

__all__ = ["UNET_BLOCK"]

GROUPS, TIME = 4, 32


def _group_norm(s: Sketch, x: str, channels: int) -> str:
    """Add a group norm as PyTorch exports it: an instance norm over the members of a group."""
    grouped = s.node("Reshape", x, s.ints(0, GROUPS, -1))
    one = s.constant(np.ones(GROUPS), np.float32)
    zero = s.constant(np.zeros(GROUPS), np.float32)
    y = s.node("InstanceNormalization", grouped, one, zero, epsilon=1e-5)
    y = s.node("Reshape", y, s.node("Shape", x))
    drift = s.rng.random((2, channels, 1, 1)).astype(np.float32) - np.float32(0.5)
    scaled = s.node("Mul", y, s.weight("weight", drift[0] + np.float32(1.0)))
    return s.node("Add", scaled, s.weight("bias", drift[1]))


def _resnet(s: Sketch, x: str, time: str, channels: tuple[int, int]) -> str:
    c_in, c_out = channels
    with s.scope("norm1"):
        y = silu(s, _group_norm(s, x, c_in))
    with s.scope("conv1"):
        y = conv(s, y, channels)
    with s.scope("time_emb_proj"):
        shift = linear(s, silu(s, time), (TIME, c_out))
    y = s.node("Add", y, unsqueeze(s, unsqueeze(s, shift, 2), 3))
    with s.scope("norm2"):
        y = silu(s, _group_norm(s, y, c_out))
    with s.scope("conv2"):
        y = conv(s, y, (c_out, c_out))
    if c_in != c_out:
        with s.scope("conv_shortcut"):
            x = conv(s, x, channels, kernel=1)
    return s.node("Add", x, y)


def _resize_up(s: Sketch, x: str, channels: int) -> str:
    """Add an upsampling by two: nearest neighbours, then a convolution."""
    y = s.node(
        "Resize",
        x,
        "",
        s.constant([1.0, 1.0, 2.0, 2.0], np.float32),
        coordinate_transformation_mode="asymmetric",
        mode="nearest",
        nearest_mode="floor",
    )
    return conv(s, y, (channels, channels))


def _transposed_up(s: Sketch, x: str, channels: tuple[int, int]) -> str:
    """Add an upsampling by two: a transposed convolution."""
    weight = s.random("weight", *channels, 4, 4, fan_in=4 * channels[0])
    bias = s.random("bias", channels[1], fan_in=100)
    shape = {"kernel_shape": [4, 4], "strides": [2, 2], "pads": [1, 1, 1, 1]}
    return s.node("ConvTranspose", x, weight, bias, **shape)


def _build() -> onnx.ModelProto:
    s = Sketch("unet_block", "Two-level UNet with a time embedding", opset=17, seed=105)
    x = s.float_input("sample", "batch", 3, "height", "width")
    time = s.float_input("time_embedding", "batch", TIME)
    with s.scope("conv_in"):
        x = conv(s, x, (3, 8))
    with s.scope("down.0"):
        first = _resnet(s, x, time, (8, 8))
        second = conv(s, first, (8, 16), stride=2)
    with s.scope("down.1"):
        second = _resnet(s, second, time, (16, 16))
        x = conv(s, second, (16, 16), stride=2)
    with s.scope("mid"):
        x = _resnet(s, x, time, (16, 16))
    with s.scope("up.0"):
        x = s.node("Concat", _resize_up(s, x, 16), second, axis=1)
        x = _resnet(s, x, time, (32, 16))
    with s.scope("up.1"):
        x = s.node("Concat", _transposed_up(s, x, (16, 8)), first, axis=1)
        x = _resnet(s, x, time, (16, 8))
    with s.scope("conv_out"):
        x = conv(s, silu(s, _group_norm(s, x, 8)), (8, 3))
    s.float_output(x, "noise", "batch", 3, "height", "width")
    return s.model()


def _feeds(rng: np.random.Generator, dims: Mapping[str, int]) -> dict[str, Array]:
    batch = dims["batch"]
    return {
        "sample": pictures(rng, batch, 3, dims["height"], dims["width"]),
        "time_embedding": normal(rng, batch, TIME),
    }


UNET_BLOCK = Architecture("unet_block", {"batch": 1, "height": 16, "width": 24}, _build, _feeds)
