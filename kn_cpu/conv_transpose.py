"""Transposed convolution for the native kernels; see `native/kn_conv_transpose.h`."""

from __future__ import annotations

from math import inf

from kn_cpu.axes import KernelCall, float_bits
from kn_cpu.conv import ConvProblem, spread
from kn_cpu.product import Registers, balanced, ceil_to
from kn_graph.dim import Size, ceildiv, size_max, size_prod
from kn_plan.layout import StridedLayout

__all__ = ["conv_transpose_call", "has_conv_transpose", "transposed_weights"]

ROWS = 96
"""Places of a phase that a unit has, unless a line has more."""

ASSUMED = 32
"""Places of a line of a phase where that is not known."""


def has_conv_transpose(p: ConvProblem) -> bool:
    """Return whether the kernel computes a problem: the channels of x lie side by side."""
    return p.x.strides[1] == 1 or p.x.sizes[1] == 1


def transposed_weights(w: StridedLayout, groups: int) -> StridedLayout:
    """Return contiguous weights [C, M/groups, *kernel] as [groups, kernel, C/groups, M/groups].

    This is what `pack_call` packs.
    """
    channels, cols = w.sizes[0] // groups, w.sizes[1]
    points = size_prod(w.sizes[2:])
    strides = (channels * cols * points, 1, cols * points, points)
    return StridedLayout((groups, points, channels, cols), strides, w.offset)


def conv_transpose_call(
    registers: Registers, problem: ConvProblem, *, low: float = -inf, high: float = inf
) -> KernelCall:
    """Return out = clamp(conv_transpose(x, w) + bias + residual).

    p = {x, packed w, out, bias, residual}.

    Args:
        registers: of the instruction set.
        problem: strides, dilations and pads are those of the transposed convolution.
        low: lower bound of the result.
        high: upper bound of the result.
    """
    p = problem
    images, windows, strides = p.x.sizes[0], p.windows, spread(p.strides, 1)
    planes, height, width = (ceildiv(n, s) for n, s in zip(windows, strides, strict=True))
    lines = max(1, ROWS // max(1, width if isinstance(width, int) else ASSUMED))
    cols = balanced(p.cols, 4 * registers.panel, registers.panel)
    depth = balanced(p.channels, registers.depth)
    sizes = (images, p.groups, p.channels, p.cols, *p.geometry, lines, cols, depth)
    x = (p.x.strides[0], *spread(p.x.strides[2:], 0))
    places = (*x, *_places(p.out), *_places(p.residual))
    numbers = (*sizes, float_bits(low), float_bits(high), *places)
    blocks = ceildiv(planes * height, lines) * size_prod(strides)
    units = images * p.groups * blocks * ceildiv(p.cols, cols)
    rows, vector = lines * width, registers.vector
    floats = ceil_to(p.channels, vector) + rows * (cols + vector)
    scratch = size_max(64, ceil_to(8 * rows, 4 * vector) + 4 * floats)
    return KernelCall("conv_transpose_f32", numbers, units, 1, scratch)


def _places(layout: StridedLayout | None) -> tuple[Size, ...]:
    if layout is None:
        return (0, 0, 0, 0, 0)
    return (layout.strides[0], *spread(layout.strides[2:], 0), layout.strides[1])
