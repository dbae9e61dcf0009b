"""Copies between layouts, and what is made of them: fills, concatenation, padding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from kn_cpu.axes import KernelCall, axes_numbers, units_for
from kn_graph.dim import Size
from kn_graph.ops.layout import PadMode
from kn_plan.layout import StridedLayout

__all__ = ["PadCopy", "concat_parts", "copy_call", "pad_copies"]

UNIT_BYTES = 1 << 16


def copy_call(out: StridedLayout, x: StridedLayout, itemsize: int) -> KernelCall:
    """Copy x to out, p = {out, x}: of equal sizes, not overlapping. Strides of 0 in x repeat it."""
    units = units_for(out.numel * itemsize, UNIT_BYTES)
    axes = axes_numbers(out.sizes, out.strides, x.strides)
    return KernelCall("copy", (units, itemsize, out.rank, *axes), units)


def concat_parts(
    out: StridedLayout, axis: int, parts: Sequence[StridedLayout]
) -> list[StridedLayout]:
    """Return the slice of `out` that each part is copied to."""
    found: list[StridedLayout] = []
    start: Size = 0
    for part in parts:
        found.append(out.slice(axis, start, part.sizes[axis]))
        start = start + part.sizes[axis]
    return found


@dataclass(frozen=True)
class PadCopy:
    """One copy of a padding.

    Attributes:
        source: the padded tensor, the pad value, or what earlier copies have written.
        read: layout of what is read there.
        write: layout of what is written in the result.
    """

    source: Literal["x", "value", "out"]
    read: StridedLayout
    write: StridedLayout


def pad_copies(
    out: StridedLayout, x: StridedLayout, pads: Sequence[tuple[Size, Size]], mode: PadMode
) -> list[PadCopy]:
    """Return the copies that pad a tensor, in the order in which they have to run.

    The inside comes first. Then each axis gets its two borders, over what the axes before it
    cover already: every element is written once.
    """
    inside = out
    for axis, (before, _) in enumerate(pads):
        inside = inside.slice(axis, before, x.sizes[axis])
    copies = [PadCopy("x", x, inside)]
    for axis, (before, after) in enumerate(pads):
        n, band = x.sizes[axis], out
        for later in range(axis + 1, out.rank):
            band = band.slice(later, pads[later][0], x.sizes[later])
        for width, start, first in (
            (before, 0, _first_read(mode, before, n, before, ahead=True)),
            (after, before + n, _first_read(mode, before, n, after, ahead=False)),
        ):
            if width == 0:
                continue
            write = band.slice(axis, start, width)
            copies.append(_border(mode, band, axis, first, write))
    return copies


def _first_read(mode: PadMode, before: Size, n: Size, width: Size, *, ahead: bool) -> Size:
    """Return where along the axis of the result the elements of a border come from."""
    if mode == "edge":
        return before if ahead else before + n - 1
    if mode == "reflect":
        return before + 1 if ahead else before + n - 1 - width
    return n if ahead else before


def _border(
    mode: PadMode, band: StridedLayout, axis: int, first: Size, write: StridedLayout
) -> PadCopy:
    width = write.sizes[axis]
    if mode == "constant":
        repeated = StridedLayout(write.sizes, (0,) * write.rank)
        return PadCopy("value", repeated, write)
    if mode == "edge":
        return PadCopy("out", band.slice(axis, first, 1).broadcast(write.sizes), write)
    read = band.slice(axis, first, width)
    return PadCopy("out", read.flip(axis) if mode == "reflect" else read, write)
