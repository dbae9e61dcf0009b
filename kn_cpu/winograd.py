"""Winograd's convolution for the native kernels; the numbers are those of `native/kn_winograd.h`.

Where it is chosen is `kn_cpu.conv.choose_algorithm`'s matter. Its results are about ten times less
exact than those of the direct kernel (`ERROR_FACTOR`), and a NaN or an infinity spreads to the
whole tile of 4 x 4 results that it touches.
"""

from __future__ import annotations

from math import inf

from kn_cpu.axes import KernelCall, float_bits
from kn_cpu.conv import ConvProblem, spread
from kn_cpu.product import Registers, balanced, ceil_to, packed_size, round_up
from kn_graph.dim import Size, ceildiv
from kn_plan.layout import StridedLayout

__all__ = [
    "ERROR_FACTOR",
    "has_winograd",
    "winograd_call",
    "winograd_weights_call",
    "winograd_weights_size",
]

ERROR_FACTOR = 16
"""By how much the bound on rounding errors is larger than that of the direct kernel."""

POINTS = 36
"""Products of a tile of 6 x 6 pixels."""

SIDE = 4
"""Results along an edge of a tile."""

CACHE = 640 << 10
"""Bytes of the second cache that a unit's tiles and sums may take."""

ENOUGH_UNITS = 8


def has_winograd(p: ConvProblem) -> bool:
    """Return whether the kernel computes a problem: 3 x 3, stride 1, channels side by side."""
    layouts = [v for v in (p.x, p.out, p.residual) if v is not None]
    plain = p.kernel == (3, 3) and p.groups == 1
    steps = set(p.strides) | set(p.dilations)
    return plain and steps == {1} and all(v.strides[1] == 1 for v in layouts)


def winograd_weights_size(p: ConvProblem, registers: Registers) -> Size:
    """Return how many floats the transformed weights have."""
    return POINTS * packed_size(p.channels, p.cols, registers)


def winograd_weights_call(p: ConvProblem, registers: Registers) -> KernelCall:
    """Transform contiguous weights [M, C, 3, 3]; p = {w, transformed}."""
    units = ceildiv(p.cols, registers.panel)
    return KernelCall("winograd_weights_f32", (p.channels, p.cols), units)


def winograd_call(
    registers: Registers, problem: ConvProblem, *, low: float = -inf, high: float = inf
) -> KernelCall:
    """Return out = clamp(conv(x, w) + bias + residual).

    p = {x, transformed w, out, bias, residual}.

    Args:
        registers: of the instruction set.
        problem: the convolution, for which `has_winograd` holds.
        low: lower bound of the result.
        high: upper bound of the result.
    """
    p = problem
    images, channels = p.x.sizes[:2]
    _, height, width = p.windows
    tiles = images * ceildiv(height, SIDE) * ceildiv(width, SIDE)
    rows, cols = _blocks(registers, channels, p.cols, tiles)
    depth = balanced(channels, registers.depth)
    before = tuple(b for b, _ in p.pads)
    sizes = (images, channels, p.cols, *p.x.sizes[2:], height, width, *before, rows, cols, depth)
    places = (*_places(p.x), *_places(p.out), *_places(p.residual))
    numbers = (*sizes, float_bits(low), float_bits(high), *places)
    units = ceildiv(tiles, rows) * ceildiv(p.cols, cols)
    return KernelCall("winograd_f32", numbers, units, 1, _scratch(registers, channels, rows, cols))


def _places(layout: StridedLayout | None) -> tuple[Size, ...]:
    if layout is None:
        return (0, 0, 0)
    return (layout.strides[0], *spread(layout.strides[2:], 0)[1:])


def _blocks(registers: Registers, channels: Size, outputs: Size, tiles: Size) -> tuple[int, int]:
    """Return how many tiles and output channels a unit has."""
    tile, panel = registers.rows, registers.panel
    depth = channels if isinstance(channels, int) else 128
    cols = round_up(outputs, panel) if isinstance(outputs, int) else 4 * panel
    cols = min(cols, 4 * panel)
    most = CACHE // (4 * POINTS * (depth + cols))
    rows = max(tile, min(most // tile * tile, 4 * tile))
    if isinstance(tiles, int) and isinstance(outputs, int):
        rows = int(str(balanced(max(1, tiles), rows)))
        while cols > panel and -(-tiles // rows) * -(-outputs // cols) < ENOUGH_UNITS:
            cols = round_up(cols // 2, panel)
    return rows, cols


def _scratch(registers: Registers, channels: Size, rows: int, cols: int) -> Size:
    """Return the bytes that `divide_scratch` of winograd.c hands out."""
    vector = registers.vector
    planes = rows * ceil_to(channels, vector) + vector + rows * cols + vector
    return ceil_to(8 * rows, 4 * vector) + 4 * POINTS * planes
