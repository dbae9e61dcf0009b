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
    "winograd_shares",
    "winograd_tiles_call",
    "winograd_tiles_size",
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

FEW_TILES = 16
"""With fewer tiles it takes longer to read weights than to multiply with them."""

SHARED = 3 << 20
"""Bytes of transformed tiles that are read from a cache again, whichever thread made them."""

TOGETHER = 4
"""Tiles that are transformed in a unit of their own."""

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
    shared: bool = False,
    low: float = -inf,
    high: float = inf,
    program: BlockProgram | None = None,
) -> KernelCall:
    """Return out = clamp(conv(x, w) + bias + residual).

    p = {x, transformed w, out, bias, residual, program's..}.

    Args:
        registers: of the instruction set.
        problem: the convolution, for which `has_winograd` holds.
        shared: whether `winograd_tiles_call` has transformed the tiles: its result is x then.
        low: lower bound of the result.
        high: upper bound of the result.
        program: what finished tiles go through, from `out` on.

    Raises:
        ValueError: the pixels of an operand of the program are not evenly spaced.
    """
    p = problem
    rows, cols, units = _blocks(registers, p, shared)
    scratch = _scratch(registers, p, rows, cols, shared)
    more, scratch = p.behind(program, scratch)
    flags = (float_bits(low), float_bits(high), int(program is not None), int(shared))
    numbers = _numbers(registers, p, (rows, cols), flags)
    return KernelCall("winograd_f32", (*numbers, *more), units, 1, scratch)


def winograd_shares(registers: Registers, problem: ConvProblem) -> Size:
    """Return 1 where it is faster to transform tiles once for all output channels, and 0 elsewhere.

    The transformed tiles stay in a cache, and would else be transformed several times.
    """
    p = problem
    _, height, width = p.windows
    sizes = (p.x.sizes[0], height, width, p.channels, p.cols)
    (shares,) = derive(_shares, 1, registers.rows, registers.panel, *sizes)
    return shares


def _shares(
    tile: int, panel: int, images: int, height: int, width: int, channels: int, outputs: int
) -> tuple[int]:
    _, cols, _ = _divided(tile, panel, 0, images, height, width, channels, outputs)
    tiles = images * -(-height // SIDE) * -(-width // SIDE)
    return (int(cols < outputs and 4 * POINTS * tiles * channels <= SHARED),)


def winograd_tiles_size(registers: Registers, problem: ConvProblem) -> Size:
    """Return how many floats the transformed tiles have."""
    p, vector = problem, registers.vector
    return POINTS * (_tiles(p) * ceil_to(p.channels, vector) + vector)


def winograd_tiles_call(registers: Registers, problem: ConvProblem) -> KernelCall:
    """Transform tiles, p = {x, transformed}."""
    numbers = _numbers(registers, problem, (TOGETHER, 0), (0, 0, 0, 0))
    return KernelCall("winograd_tiles_f32", numbers, ceildiv(_tiles(problem), TOGETHER))


def _tiles(p: ConvProblem) -> Size:
    _, height, width = p.windows
    return p.x.sizes[0] * ceildiv(height, SIDE) * ceildiv(width, SIDE)


def _numbers(
    registers: Registers, p: ConvProblem, blocks: tuple[Size, Size], flags: tuple[int, ...]
) -> tuple[Size, ...]:
    images, channels = p.x.sizes[:2]
    _, height, width = p.windows
    before = tuple(b for b, _ in p.pads)
    depth = balanced(channels, registers.depth)
    sizes = (images, channels, p.cols, *p.x.sizes[2:], height, width, *before, *blocks, depth)
    return (*sizes, *flags, *_places(p.x), *_places(p.out), *_places(p.residual))


def _places(layout: StridedLayout | None) -> tuple[Size, ...]:
    if layout is None:
        return (0, 0, 0)
    return (layout.strides[0], *spread(layout.strides[2:], 0)[1:])


def _blocks(registers: Registers, p: ConvProblem, shared: bool) -> tuple[Size, Size, Size]:
    """Return how many tiles and output channels a unit has, and how many units there are."""
    _, height, width = p.windows
    sizes = (p.x.sizes[0], height, width, p.channels, p.cols)
    known = (registers.rows, registers.panel, int(shared))
    rows, cols, units = derive(_divided, 3, *known, *sizes)
    return rows, cols, units


def _divided(
    tile: int,
    panel: int,
    shared: int,
    images: int,
    height: int,
    width: int,
    channels: int,
    outputs: int,
) -> tuple[int, int, int]:
    tiles = images * -(-height // SIDE) * -(-width // SIDE)
    cols = min(round_up(outputs, panel), 4 * panel)
    most = CACHE // (4 * POINTS * ((0 if shared else channels) + cols))
    most = max(tile, FEW_TILES, min(most // tile * tile, 4 * tile))
    rows = even_blocks(max(1, tiles), most)
    while -(-tiles // rows) * -(-outputs // cols) < ENOUGH_UNITS:
        if cols > panel:
            cols = round_up(cols // 2, panel)
        elif rows > max(tile, FEW_TILES):
            rows = max(tile, -(-rows // 2))
        else:
            break
    return rows, cols, -(-tiles // rows) * -(-outputs // cols)


def _scratch(registers: Registers, p: ConvProblem, rows: Size, cols: Size, shared: bool) -> Size:
    """Return the bytes that `divide_scratch` of winograd.c hands out."""
    vector = registers.vector
    planes = rows * cols + vector
    if not shared:
        planes += rows * ceil_to(p.channels, vector) + vector
    return ceil_to(8 * rows, 4 * vector) + 4 * POINTS * planes
