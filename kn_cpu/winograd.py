"""Winograd's convolution for the native kernels; the numbers are those of `native/kn_winograd.h`.

Where it is chosen is `kn_cpu.conv_choice`'s matter. Its results are about ten times less
exact than those of the direct kernel (`ERROR_FACTOR`), and a NaN or an infinity spreads to the
whole tile of 4 x 4 results that it touches.
"""

from __future__ import annotations

from math import inf

from kn_cpu.axes import KernelCall, float_bits
from kn_cpu.conv import ConvProblem, spread
from kn_cpu.product import (
    BlockProgram,
    Registers,
    balanced,
    ceil_to,
    even_blocks,
    packed_size,
    round_up,
)
from kn_graph.dim import Size, ceildiv
from kn_plan.derived import derive
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
    registers: Registers,
    problem: ConvProblem,
    *,
    low: float = -inf,
    high: float = inf,
    program: BlockProgram | None = None,
) -> KernelCall:
    """Return out = clamp(conv(x, w) + bias + residual).

    p = {x, transformed w, out, bias, residual, program's..}.

    Args:
        registers: of the instruction set.
        problem: the convolution, for which `has_winograd` holds.
        low: lower bound of the result.
        high: upper bound of the result.
        program: what finished tiles go through, from `out` on.

    Raises:
        ValueError: the pixels of an operand of the program are not evenly spaced.
    """
    p = problem
    images, channels = p.x.sizes[:2]
    _, height, width = p.windows
    rows, cols, units = _blocks(registers, p)
    depth = balanced(channels, registers.depth)
    before = tuple(b for b, _ in p.pads)
    sizes = (images, channels, p.cols, *p.x.sizes[2:], height, width, *before, rows, cols, depth)
    places = (*_places(p.x), *_places(p.out), *_places(p.residual))
    flags = (float_bits(low), float_bits(high), int(program is not None))
    more, scratch = p.behind(program, _scratch(registers, channels, rows, cols))
    numbers = (*sizes, *flags, *places, *more)
    return KernelCall("winograd_f32", numbers, units, 1, scratch)


def _places(layout: StridedLayout | None) -> tuple[Size, ...]:
    if layout is None:
        return (0, 0, 0)
    return (layout.strides[0], *spread(layout.strides[2:], 0)[1:])


def _blocks(registers: Registers, p: ConvProblem) -> tuple[Size, Size, Size]:
    """Return how many tiles and output channels a unit has, and how many units there are."""
    _, height, width = p.windows
    sizes = (p.x.sizes[0], height, width, p.channels, p.cols)
    rows, cols, units = derive(_divided, 3, registers.rows, registers.panel, *sizes)
    return rows, cols, units


def _divided(
    tile: int, panel: int, images: int, height: int, width: int, channels: int, outputs: int
) -> tuple[int, int, int]:
    tiles = images * -(-height // SIDE) * -(-width // SIDE)
    cols = min(round_up(outputs, panel), 4 * panel)
    most = CACHE // (4 * POINTS * (channels + cols))
    rows = even_blocks(max(1, tiles), max(tile, min(most // tile * tile, 4 * tile)))
    while cols > panel and -(-tiles // rows) * -(-outputs // cols) < ENOUGH_UNITS:
        cols = round_up(cols // 2, panel)
    return rows, cols, -(-tiles // rows) * -(-outputs // cols)


def _scratch(registers: Registers, channels: Size, rows: Size, cols: Size) -> Size:
    """Return the bytes that `divide_scratch` of winograd.c hands out."""
    vector = registers.vector
    planes = rows * ceil_to(channels, vector) + vector + rows * cols + vector
    return ceil_to(8 * rows, 4 * vector) + 4 * POINTS * planes
