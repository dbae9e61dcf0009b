"""Convolutions over few channels, as of first layers: see `native/kn_conv_lines.h`."""

from __future__ import annotations

from math import inf

from kn_cpu.axes import KernelCall, float_bits
from kn_cpu.conv import FEW_CHANNELS, ConvProblem, spread
from kn_cpu.product import BlockProgram, Registers, ceil_to
from kn_graph.dim import size_prod
from kn_plan.derived import derive

__all__ = ["conv_lines_call", "has_conv_lines"]

STRIDES = (1, 2, 4)
"""Between neighbouring windows of a line."""

UNIT_WORK = 1 << 19
"""Multiplications that are worth a work unit."""

ENOUGH_UNITS = 16

MOST_LINES = 16


def has_conv_lines(p: ConvProblem) -> bool:
    """Return whether the kernel computes a problem, and faster than `conv_call`.

    Pixels of x have to lie side by side, and channels of the result.
    """
    few = isinstance(p.channels, int) and p.channels < FEW_CHANNELS
    plane = p.x.rank <= 4 and set(p.dilations) == {1} and p.strides[-1] in STRIDES
    dense = p.x.strides[-1] == 1 and p.out.strides[1] == 1
    return few and plane and dense and p.groups == 1 and p.residual is None


def conv_lines_call(
    registers: Registers,
    problem: ConvProblem,
    *,
    low: float = -inf,
    high: float = inf,
    program: BlockProgram | None = None,
) -> KernelCall:
    """Return out = clamp(conv(x, w) + bias), p = {x, packed w, out, bias, program's..}.

    Args:
        registers: of the instruction set.
        problem: the convolution, for which `has_conv_lines` holds; weights are packed in the
            order `Order.CHANNELS_FIRST`.
        low: lower bound of the result.
        high: upper bound of the result.
        program: what finished lines go through, from `out` on.

    Raises:
        ValueError: the pixels of an operand of the program are not evenly spaced.
    """
    p = problem
    images, channels = p.x.sizes[:2]
    _, height, width = p.windows
    line_work = width * p.cols * channels * size_prod(p.kernel)
    lines, units = derive(_divided, 2, images, height, line_work)
    planes = zip(*[iter(p.geometry)] * 3, strict=True)
    space, windows, kernel, strides, _, before = (plane[1:] for plane in planes)
    flags = (float_bits(low), float_bits(high), int(program is not None))
    sizes = (images, channels, p.cols, *space, *windows, *kernel, *strides, *before, lines, *flags)
    places = (*p.x.strides[:2], *spread(p.x.strides[2:], 0)[1:])
    out = (p.out.strides[0], *spread(p.out.strides[2:], 0)[1:])
    tiles = ceil_to(width, registers.rows)
    line = (tiles - 1) * strides[1] + kernel[1]
    copied = (lines - 1) * strides[0] + kernel[0]
    more, scratch = p.behind(program, 4 * channels * line * copied + 64)
    return KernelCall("conv_lines_f32", (*sizes, *places, *out, *more), units, 1, scratch)


def _divided(images: int, height: int, line_work: int) -> tuple[int, int]:
    """Return how many lines a unit has, and how many units there are."""
    lines = max(1, min(MOST_LINES, UNIT_WORK // max(1, line_work)))
    while lines > 1 and images * -(-height // lines) < ENOUGH_UNITS:
        lines -= 1
    return lines, images * -(-height // lines)
