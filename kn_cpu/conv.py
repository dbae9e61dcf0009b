"""Convolutions for the native kernels; the numbers are those of `native/kn_conv.h`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from math import inf

from kn_cpu.axes import KernelCall, float_bits
from kn_cpu.product import (
    BlockProgram,
    Registers,
    balanced,
    even_blocks,
    even_stride,
    packed_size,
    round_up,
)
from kn_graph.dim import Size, size_prod
from kn_graph.window import Pads
from kn_plan.derived import derive
from kn_plan.layout import StridedLayout

__all__ = [
    "FEW_CHANNELS",
    "ConvProblem",
    "Order",
    "conv_call",
    "has_few_outputs",
    "packed_weights",
    "weight_layout",
    "weight_rows",
    "window_order",
]

SPATIAL = 3
"""Axes that the kernels have; missing ones have size 1."""

FEW_CHANNELS = 8
"""From how many channels on it is not worth copying windows that can be read in place."""

SHORT = 8
"""Of the same name in `native/conv.c`."""

ENOUGH_UNITS = 16

UNIT_WORK = 1 << 19
"""Multiplications that are worth a work unit, while there are not enough units for all threads."""


class Order(IntEnum):
    """How windows are read and, with that, in which order their weights are packed."""

    IN_PLACE = 0
    """[kernel, channels], pixel by pixel; the channels lie side by side."""
    KERNEL_FIRST = 1
    """[kernel, channels], line by line: for few channels that lie side by side."""
    CHANNELS_FIRST = 2
    """[channels, kernel], line by line: for pixels that lie side by side."""


@dataclass(frozen=True)
class ConvProblem:
    """A convolution over concrete places.

    Attributes:
        x: layout [N, C, *spatial].
        out: layout [N, M, *windows].
        kernel: size of each spatial axis of the weights.
        strides: step between windows.
        dilations: step between elements of a window.
        pads: zeros (before, after) each spatial axis.
        groups: parts that the channels are cut into.
        residual: layout of what is added, of the sizes of `out`.
    """

    x: StridedLayout
    out: StridedLayout
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: Pads
    groups: int = 1
    residual: StridedLayout | None = None

    @property
    def channels(self) -> Size:
        """Input channels of a group."""
        return self.x.sizes[1] // self.groups

    @property
    def cols(self) -> Size:
        """Output channels of a group."""
        return self.out.sizes[1] // self.groups

    @property
    def windows(self) -> tuple[Size, ...]:
        """Number of windows along each of three axes."""
        return spread(self.out.sizes[2:], 1)

    def behind(self, program: BlockProgram | None, scratch: Size) -> tuple[tuple[Size, ...], Size]:
        """Return the numbers of a program over pixels and channels, and the scratch with its own.

        Raises:
            ValueError: the pixels of one of its operands are not evenly spaced.
        """
        if program is None:
            return (), scratch
        return program.numbers((0, *range(2, self.out.rank)), 1), program.scratch(scratch)

    @property
    def geometry(self) -> tuple[Size, ...]:
        """Sizes of x, windows and kernel, strides, dilations, pads before: three of each."""
        before = [b for b, _ in self.pads]
        rows = (
            (self.x.sizes[2:], 1),
            (self.out.sizes[2:], 1),
            (self.kernel, 1),
            (self.strides, 1),
            (self.dilations, 1),
            (before, 0),
        )
        return tuple(n for sizes, missing in rows for n in spread(sizes, missing))


def spread(sizes: Sequence[Size], missing: Size) -> tuple[Size, ...]:
    """Put missing axes in front.

    Raises:
        ValueError: there are more axes than the kernels have.
    """
    if len(sizes) > SPATIAL:
        raise ValueError(f"a convolution over {len(sizes)} axes, at most {SPATIAL}")
    return (missing,) * (SPATIAL - len(sizes)) + tuple(sizes)


def window_order(
    x: StridedLayout,
    kernel: Sequence[int],
    groups: int = 1,
    dilation: int = 1,
    *,
    many: bool = False,
) -> Order:
    """Return how windows of x [N, C, *spatial] are best read.

    Args:
        x: the layout.
        kernel: sizes of the windows.
        groups: parts that the channels are cut into.
        dilation: step between elements of a window along a line.
        many: whether lines that can be read in place are better whatever the number of channels.
    """
    channels = x.sizes[1] // groups
    if channels == 0:
        return Order.IN_PLACE
    if x.strides[1] != 1 and x.sizes[1] != 1:
        return Order.CHANNELS_FIRST
    few = isinstance(channels, int) and 0 < channels < FEW_CHANNELS
    dense = many and dilation == 1 and x.strides[-1] == channels
    lines = (few or dense) and any(k != 1 for k in kernel)
    return Order.KERNEL_FIRST if lines else Order.IN_PLACE


def weight_layout(w: StridedLayout, groups: int, order: Order) -> StridedLayout:
    """Return contiguous weights [M, C/groups, *kernel] as [groups, outer, inner, M/groups].

    This is what `pack_call` packs for a convolution.
    """
    outputs, channels = w.sizes[:2]
    positions, cols = size_prod(w.sizes[2:]), outputs // groups
    step = channels * positions
    sizes: tuple[Size, Size] = (positions, channels)
    strides: tuple[Size, Size] = (1, positions)
    if order == Order.CHANNELS_FIRST:
        sizes, strides = (channels, positions), (positions, 1)
    return StridedLayout((groups, *sizes, cols), (cols * step, *strides, step), w.offset)


def weight_rows(w: StridedLayout, groups: int, order: Order) -> StridedLayout:
    """Return the same as [groups, M/groups, outer, inner]: copy this to a contiguous tensor."""
    return weight_layout(w, groups, order).permute((0, 3, 1, 2))


def has_few_outputs(registers: Registers, p: ConvProblem) -> bool:
    """Return whether windows times rows of weights are faster than panels that are mostly empty."""
    depth = p.channels * size_prod(p.kernel)
    if not isinstance(depth, int) or not isinstance(p.cols, int) or p.cols > registers.vector // 2:
        return False
    # cycles of a window: additions along rows, and loads that panels are bound by
    rows = p.cols * (depth / (0.9 * registers.vector) + 8)
    return rows < 6.5 / 12 * depth


def conv_call(
    registers: Registers,
    problem: ConvProblem,
    order: Order,
    *,
    few: bool = False,
    low: float = -inf,
    high: float = inf,
    program: BlockProgram | None = None,
) -> KernelCall:
    """Return out = clamp(conv(x, w) + bias + residual).

    p = {x, packed w, out, bias, residual, program's..}.

    Args:
        registers: of the instruction set.
        problem: the convolution.
        order: of the packed weights.
        few: whether weights are not packed, but a copy of `weight_rows`.
        low: lower bound of the result.
        high: upper bound of the result.
        program: what finished blocks go through; the result is not written then.

    Raises:
        ValueError: the pixels of the result, of the residual or of an operand of the program are
            not evenly spaced.
    """
    p = problem
    rows, cols, units = _blocks(registers, p)
    depth = _depth_block(registers, order, *_runs(p, order))
    images = p.x.sizes[0]
    blocks = (rows, cols, depth, order, int(few))
    sizes = (images, p.groups, p.channels, p.cols, *p.geometry, *blocks)
    x = (p.x.strides[0], p.x.strides[1], *spread(p.x.strides[2:], 0))
    places = (*x, *_places(p.out), *_places(p.residual))
    more, scratch = p.behind(program, _scratch(registers, p, order, rows, cols))
    flags = (float_bits(low), float_bits(high), int(program is not None))
    numbers = (*sizes, *flags, *places, *more)
    return KernelCall("conv_f32", numbers, units, 1, scratch)


def _places(layout: StridedLayout | None) -> tuple[Size, Size, Size]:
    if layout is None:
        return (0, 0, 0)
    return (layout.strides[0], even_stride(layout, range(2, layout.rank)), layout.strides[1])


def _runs(p: ConvProblem, order: Order) -> tuple[Size, Size]:
    """Return how many elements a run of a window has, and how many runs there are."""
    points = size_prod(p.kernel)
    run = {
        Order.IN_PLACE: p.channels,
        Order.KERNEL_FIRST: p.kernel[-1] * p.channels,
        Order.CHANNELS_FIRST: p.kernel[-1],
    }[order]
    positions = {
        Order.IN_PLACE: points,
        Order.KERNEL_FIRST: points // p.kernel[-1],
        Order.CHANNELS_FIRST: points // p.kernel[-1] * p.channels,
    }[order]
    return run, positions


def _depth_block(registers: Registers, order: Order, run: Size, positions: Size) -> Size:
    """Return at how many products the sums are split: between runs, or within one."""
    if order != Order.IN_PLACE and isinstance(run, int) and run < SHORT:
        return balanced(run * positions, registers.depth)  # windows are copied
    if isinstance(run, int) and isinstance(positions, int) and run <= registers.depth:
        return balanced(positions, registers.depth // max(1, run)) * max(1, run)
    return balanced(run, registers.depth)


def _blocks(registers: Registers, p: ConvProblem) -> tuple[Size, Size, Size]:
    """Return how many pixels and output channels a unit has, and how many units there are."""
    pixels, depth = size_prod(p.windows), p.channels * size_prod(p.kernel)
    sizes = (p.x.sizes[0] * p.groups, pixels, p.cols, depth)
    rows, cols, units = derive(_divided, 3, registers.rows, registers.panel, *sizes)
    return rows, cols, units


def _divided(
    tile: int, panel: int, planes: int, pixels: int, channels: int, depth: int
) -> tuple[int, int, int]:
    rows, cols = even_blocks(pixels, 192, tile), even_blocks(channels, 512, panel)

    def count() -> int:
        return planes * -(-pixels // rows) * -(-channels // cols)

    work = planes * pixels * channels * depth
    wanted = min(ENOUGH_UNITS, max(1, work // UNIT_WORK))
    while 0 < count() < wanted:
        if rows > 8 * tile:
            rows = round_up(rows // 2, tile)
        elif cols > 2 * panel:
            cols = round_up(cols // 2, panel)
        elif rows > 4 * tile:
            rows = round_up(rows // 2, tile)
        elif cols > panel:
            cols = panel
        else:
            break
    return rows, cols, count()


def _scratch(registers: Registers, p: ConvProblem, order: Order, rows: Size, cols: Size) -> Size:
    """Return the bytes that `divide_scratch` of conv.c hands out at most."""
    copies = int(order != Order.IN_PLACE)
    (scratch,) = derive(_handed_out, 1, registers.vector, *_runs(p, order), rows, cols, copies)
    return scratch


def _handed_out(
    vector: int, run: int, positions: int, rows: int, cols: int, copies: int
) -> tuple[int]:
    pointers = round_up(8 * rows * positions, 4 * vector)
    copied = copies * rows * (run * positions + SHORT)
    floats = round_up(run, vector) + rows * (cols + vector) + copied
    return (64 + pointers + 4 * floats,)


def packed_weights(registers: Registers, p: ConvProblem) -> Size:
    """Return how many floats the packed weights have."""
    depth = p.channels * size_prod(p.kernel)
    return p.groups * packed_size(depth, p.cols, registers)
