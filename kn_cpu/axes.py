"""What the builders of kernels over rows and windows share: see `native/axes.h`."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from kn_graph.dim import Size, size_prod
from kn_graph.types import Shape
from kn_plan.derived import derive
from kn_plan.layout import StridedLayout

__all__ = ["MAX_RANK", "KernelCall", "axes_numbers", "float_bits", "strides_over", "units_for"]

MAX_RANK = 14
"""How many axes the loops of native kernels have room for."""

UNIT = 1 << 14
"""Elements that are worth a work unit, where each costs about a nanosecond."""


@dataclass(frozen=True)
class KernelCall:
    """What a native step needs beside its pointers.

    Attributes:
        kernel: name in the table of its family.
        numbers: sizes, strides in elements, flags, bits of floats.
        units: how many work units there are.
        grain: how many of them a thread takes at a time.
        scratch: bytes for each thread.
    """

    kernel: str
    numbers: tuple[Size, ...]
    units: Size
    grain: int = 1
    scratch: Size = 0


def float_bits(x: float) -> int:
    """Return the bits of a float32 as a number."""
    (bits,) = struct.unpack("<i", struct.pack("<f", x))
    return int(bits)


def units_for(work: Size, unit: int = UNIT) -> Size:
    """Return into how many units work is cut: at least one."""
    (units,) = derive(_divided, 1, work, unit)
    return units


def _divided(work: int, unit: int) -> tuple[int]:
    return (max(1, -(-work // unit)),)


def axes_numbers(sizes: Shape, *strides: Shape) -> tuple[Size, ...]:
    """Return sizes and the strides of each operand, one after another."""
    return tuple(n for numbers in (sizes, *strides) for n in numbers)


def strides_over(layout: StridedLayout | None, axes: Sequence[int]) -> Shape:
    """Return the strides of some axes; 0 where there is no operand."""
    return tuple(0 if layout is None else layout.strides[a] for a in axes)


def count_over(layout: StridedLayout, axes: Sequence[int]) -> Size:
    """Return the number of elements along some axes."""
    return size_prod([layout.sizes[a] for a in axes])
