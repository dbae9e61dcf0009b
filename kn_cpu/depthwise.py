"""Depthwise convolution for the native kernels; see `native/kn_depthwise.h` for the numbers."""

from __future__ import annotations

from math import inf

from kn_cpu.axes import KernelCall, float_bits
from kn_cpu.conv import ConvProblem, spread
from kn_cpu.product import BlockProgram, Registers, ceil_to, round_up
from kn_graph.dim import Size, ceildiv, size_max, size_prod
from kn_plan.layout import StridedLayout

__all__ = ["depthwise_call", "depthwise_weights", "is_depthwise"]

UNIT_WORK = 1 << 19
"""Multiplications that are worth a work unit."""

GENERAL = 4
"""Of the same name in `native/depthwise.c`."""

TABLE = 7 * 19
"""LARGEST * MOST there."""


def is_depthwise(problem: ConvProblem) -> bool:
    """Return whether the kernel computes it: groups of one channel, channels side by side."""
    layouts = [problem.x, problem.out, problem.residual]
    side_by_side = all(v is None or v.strides[1] == 1 or v.sizes[1] == 1 for v in layouts)
    single = problem.channels == 1 and problem.cols == 1
    return single and problem.groups > 1 and side_by_side


def depthwise_weights(w: StridedLayout) -> StridedLayout:
    """Return weights [C, 1, *kernel] as the kernel reads them: copy this to a contiguous tensor."""
    return w.permute((1, *range(2, w.rank), 0))


def depthwise_call(
    registers: Registers,
    problem: ConvProblem,
    *,
    low: float = -inf,
    high: float = inf,
    program: BlockProgram | None = None,
) -> KernelCall:
    """Return out = clamp(conv(x, w) + bias + residual).

    p = {x, w, out, bias, residual, program's..}.

    Args:
        registers: of the instruction set.
        problem: the convolution, `is_depthwise`.
        low: lower bound of the result.
        high: upper bound of the result.
        program: what finished lines go through, from `out` on.

    Raises:
        ValueError: the pixels of an operand of the program are not evenly spaced.
    """
    p = problem
    images, channels = p.x.sizes[:2]
    planes, height, width = p.windows
    line_work = width * channels * size_prod(p.kernel)
    lines = _lines(height, line_work)
    flags = (float_bits(low), float_bits(high), int(program is not None))
    sizes = (images, channels, *p.geometry, lines, *flags)
    places = (*_places(p.x), *_places(p.out), *_places(p.residual))
    units = images * planes * ceildiv(height, lines)
    pointers = size_max(TABLE, size_prod(p.kernel) * GENERAL)
    scratch = 4 * ceil_to(channels, registers.vector) + 8 * pointers
    more, scratch = p.behind(program, scratch)
    return KernelCall("depthwise_f32", (*sizes, *places, *more), units, 1, scratch)


def _lines(height: Size, line_work: Size) -> int:
    """Return how many lines a unit has: 16 units, and pairs of lines, where there are enough."""
    work = line_work if isinstance(line_work, int) else UNIT_WORK // 8
    lines = max(1, UNIT_WORK // max(1, work))
    if isinstance(height, int):
        lines = min(lines, max(1, -(-height // 16)))
    return lines if lines == 1 else round_up(lines, 2)


def _places(layout: StridedLayout | None) -> tuple[Size, ...]:
    if layout is None:
        return (0, 0, 0, 0)
    return (layout.strides[0], *spread(layout.strides[2:], 0))
