"""Layers that several architectures share, each written as exporters write it."""

from __future__ import annotations

import numpy as np

from models.architectures.sketch import INT64_MAX, Sketch

__all__ = [
    "batch_norm",
    "conv",
    "linear",
    "silu",
    "size_of",
    "slice_last",
    "unsqueeze",
]


def conv(
    s: Sketch,
    x: str,
    channels: tuple[int, int],
    *,
    kernel: int = 3,
    stride: int = 1,
    groups: int = 1,
    bias: bool = True,
) -> str:
    """Add a square convolution that keeps the size (divided by the stride)."""
    c_in, c_out = channels
    fan_in = c_in // groups * kernel * kernel
    parameters = [s.random("weight", c_out, c_in // groups, kernel, kernel, fan_in=fan_in)]
    if bias:
        parameters.append(s.random("bias", c_out, fan_in=100))
    pad = kernel // 2
    return s.node(
        "Conv",
        x,
        *parameters,
        dilations=[1, 1],
        group=groups,
        kernel_shape=[kernel, kernel],
        pads=[pad] * 4,
        strides=[stride, stride],
    )


def batch_norm(s: Sketch, x: str, channels: int) -> str:
    """Add a BatchNormalization with statistics as training leaves them."""
    one = np.ones(channels, np.float32)
    drift = s.rng.random((4, channels)).astype(np.float32) - np.float32(0.5)
    return s.node(
        "BatchNormalization",
        x,
        s.weight("weight", one + drift[0]),
        s.weight("bias", drift[1]),
        s.weight("running_mean", drift[2]),
        s.weight("running_var", one + drift[3]),
        epsilon=1e-5,
        momentum=0.9,
    )


def linear(s: Sketch, x: str, sizes: tuple[int, int], *, bias: bool = True) -> str:
    """Add a matrix product over the last axis, and a bias, as MatMul and Add."""
    y = s.node("MatMul", x, s.random("weight", *sizes, fan_in=sizes[0]))
    return s.node("Add", s.random("bias", sizes[1], fan_in=100), y) if bias else y


def silu(s: Sketch, x: str) -> str:
    """Add `x * sigmoid(x)`."""
    return s.node("Mul", x, s.node("Sigmoid", x))


def size_of(s: Sketch, x: str, axis: int) -> str:
    """Add the arithmetic that reads one size of `x` as a rank-0 int64."""
    return s.node("Gather", s.node("Shape", x), s.constant(axis, np.int64), axis=0)


def unsqueeze(s: Sketch, x: str, *axes: int) -> str:
    """Add an Unsqueeze with its axes as an input, as from opset 13 on."""
    return s.node("Unsqueeze", x, s.ints(*axes))


def slice_last(s: Sketch, x: str, start: str, stop: str | None = None) -> str:
    """Add a Slice of the last axis, to its end unless `stop` is given."""
    end = s.ints(INT64_MAX) if stop is None else stop
    return s.node("Slice", x, start, end, s.ints(-1), s.ints(1))
