"""Convolutions of integers; the numbers are those of `native/kn_integer_conv.h`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kn_cpu.axes import KernelCall
from kn_cpu.conv import ConvProblem, spread
from kn_cpu.integer import Dot, Factors, Finish, shared_block
from kn_cpu.memory import aligned
from kn_cpu.product import (
    BlockProgram,
    Registers,
    ceil_to,
    common_stride,
    even_stride,
    round_up,
)
from kn_graph.dim import Size, ceildiv, size_prod
from kn_graph.dtype import DType

__all__ = [
    "integer_conv_call",
    "integer_conv_weights",
    "integer_depthwise_call",
    "integer_depthwise_weights",
    "is_channels_first",
]

Array = np.ndarray[Any, Any]

WINDOWS = 1 << 17
"""Bytes of copied windows that leave room in the second cache for weights and sums."""

SUMS = 1 << 15
"""Bytes of sums that stay in the first cache until they are results."""

PARTS = 8
"""Into how many blocks pixels are cut, where there are many."""


def is_channels_first(problem: ConvProblem) -> bool:
    """Return whether the pixels of a channel lie side by side, and not the channels of a pixel."""
    x = problem.x
    return bool(x.strides[1] != 1 and x.sizes[1] != 1)


def integer_conv_weights(w: Array, groups: int, *, channels_first: bool) -> Array:
    """Return weights [M, C/groups, *kernel] as matrices [groups, depth, M/groups]."""
    outputs, channels = w.shape[:2]
    points = w.reshape(groups, outputs // groups, channels, -1)
    order = (0, 2, 3, 1) if channels_first else (0, 3, 2, 1)
    return np.ascontiguousarray(points.transpose(order)).reshape(groups, -1, outputs // groups)


def integer_conv_call(
    registers: Registers,
    problem: ConvProblem,
    factors: Factors,
    *,
    finish: Finish,
    program: BlockProgram | None = None,
) -> KernelCall:
    """Return out = finish(conv(x, w)).

    p = {x, packed w, out, starts, lows, bias, scale, program's..}.

    Args:
        registers: of the instruction set.
        problem: the convolution.
        factors: the operands of the product.
        finish: what becomes of the sums.
        program: what finished blocks go through; the result is not written then.

    Raises:
        ValueError: the pixels of the result, or of an operand of the program, are not evenly
            spaced.
    """
    in_place = _reads_in_place(problem, factors)
    rows, cols = _blocks(registers, problem, factors)
    scratch = 4 * rows * (cols + registers.vector) + 64
    if not in_place:
        scratch = scratch + rows * (ceil_to(factors.column, 64) + 64)
    work = _Work("conv_int", factors, rows, cols, scratch, in_place)
    return _call(work, problem, finish, program)


def integer_depthwise_weights(registers: Registers, w: Array) -> Array:
    """Return weights [C, 1, *kernel] as the kernel of depthwise convolutions reads them."""
    channels = w.shape[0]
    padded = round_up(channels, registers.vector)
    taps = aligned(4 * padded * (w.size // channels)).view(np.int32).reshape(-1, padded)
    taps[:, :channels] = w.reshape(channels, -1).T.astype(np.int32) & 0xFFFF
    return taps


def integer_depthwise_call(
    registers: Registers,
    problem: ConvProblem,
    left: DType,
    *,
    finish: Finish,
    program: BlockProgram | None = None,
) -> KernelCall:
    """Return the same for a convolution that `is_depthwise`, p = {x, w, out, bias, scale, ..}."""
    channels = problem.x.sizes[1]
    rows = shared_block(size_prod(problem.windows), 64, 4, PARTS)
    cols = shared_block(channels, 4 * registers.panel, registers.panel, 1)
    factors = Factors(size_prod(problem.kernel), Dot.PAIRS, left, DType.INT16)
    scratch = 16 * factors.depth + 4 * rows * (cols + registers.vector) + 128
    work = _Work("depthwise_int", factors, rows, cols, scratch)
    return _call(work, replace(problem, groups=1), finish, program)


@dataclass(frozen=True)
class _Work:
    """How a kernel goes about a convolution.

    Attributes:
        kernel: its name.
        factors: the operands of the product.
        rows: pixels of a unit.
        cols: output channels of a unit.
        scratch: bytes that it needs itself.
        in_place: whether windows need no copy.
    """

    kernel: str
    factors: Factors
    rows: Size
    cols: Size
    scratch: Size
    in_place: bool = False


def _call(work: _Work, p: ConvProblem, finish: Finish, program: BlockProgram | None) -> KernelCall:
    rows, cols, scratch = work.rows, work.cols, work.scratch
    more: tuple[Size, ...] = ()
    if program is not None:
        finish = finish.before_program
        more = program.numbers((0, *range(2, p.out.rank)), 1)
        scratch = program.scratch(scratch)
    pixel: Size = 0 if finish.in_place else even_stride(p.out, range(2, p.out.rank))
    images = p.x.sizes[0]
    sizes = (images, p.groups, p.cols, p.channels, *p.geometry, *work.factors.numbers)
    flags = (rows, cols, int(is_channels_first(p)), int(work.in_place))
    places = (p.x.strides[0], p.x.strides[1], *spread(p.x.strides[2:], 0), p.out.strides[0])
    numbers = (*sizes, *flags, *finish.numbers(pixel, p.out.strides[1]), *places, *more)
    units = images * p.groups * ceildiv(size_prod(p.windows), rows) * ceildiv(p.cols, cols)
    return KernelCall(work.kernel, numbers, units, 1, scratch)


def _reads_in_place(p: ConvProblem, factors: Factors) -> bool:
    """Return whether windows are single pixels that lie one after another."""
    plain = all(n == 1 for n in (*p.kernel, *p.strides))
    padded = any(n != 0 for pad in p.pads for n in pad)
    if not plain or padded or not factors.reads_in_place or is_channels_first(p):
        return False
    step = common_stride(p.x, range(2, p.x.rank))
    if step is None:
        return False
    return step == spread(p.x.strides[2:], 0)[-1] or size_prod(p.windows) == 1


def _blocks(registers: Registers, p: ConvProblem, factors: Factors) -> tuple[Size, Size]:
    """Return how many pixels and output channels a unit has."""
    tile, panel = registers.rows, registers.panel
    column = factors.column
    pixels, few = size_prod(p.windows), 4 * tile
    cols = shared_block(p.cols, 8 * panel, panel, 1)
    if isinstance(pixels, int) and pixels <= few:
        cols = shared_block(p.cols, 8 * panel, panel, PARTS)
    fitting = 8 * tile
    if isinstance(column, int) and isinstance(cols, int):
        fitting = min(WINDOWS // max(1, column), max(few, SUMS // (4 * cols)))
    most = max(tile, min(16 * tile, fitting // tile * tile))
    return shared_block(pixels, most, tile, PARTS), cols
