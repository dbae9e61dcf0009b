"""Resampling of axes: see `native/kn_resize.h`.

The kernel reads neighbours and weights from tables, which `kn_plan.resampling` makes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kn_cpu.axes import KernelCall, axes_numbers, strides_over, units_for
from kn_graph.dim import Size, size_prod
from kn_graph.dtype import DType
from kn_graph.ops.resize import Resize
from kn_plan.layout import StridedLayout
from kn_plan.resampling import axis_taps, has_tables, taps_width

__all__ = [
    "SPATIAL",
    "resize_call",
    "resize_supported",
    "resize_tables",
    "resize_taps",
]

Array = np.ndarray[Any, Any]

SPATIAL = 3
"""Axes of the kernel: fewer are filled up in front."""


def resize_supported(op: Resize, dtype: DType) -> bool:
    """Return whether there is a kernel: of float32, along up to three axes, with known scales."""
    return dtype is DType.FLOAT32 and has_tables(op) and len(op.axes) <= SPATIAL


def resize_taps(op: Resize, old: Sequence[Size], new: Sequence[Size]) -> tuple[Size, ...]:
    """Return how many elements are summed along each axis of the kernel: widths of its tables."""
    fill = (1,) * (SPATIAL - len(op.axes))
    return (*fill, *(taps_width(op, i, old[i], new[i]) for i in _ascending(op)))


def resize_tables(op: Resize, axis: int, old: Sequence[int], new: Sequence[int]) -> list[Array]:
    """Return indices [m, k] and weights [m, k] of one axis of the kernel.

    Args:
        op: what is computed.
        axis: of the kernel.
        old: sizes of the operand along `op.axes`.
        new: sizes of the result along them.

    Raises:
        ExecutionError: the axis is empty, and should become something.
    """
    axis -= SPATIAL - len(op.axes)
    if axis < 0:
        return [np.zeros((1, 1), np.int64), np.ones((1, 1), np.float32)]
    taps = axis_taps(op, _ascending(op)[axis], old, new)
    return [np.ascontiguousarray(taps.index), taps.weight.astype(np.float32)]


def resize_call(
    op: Resize, out: StridedLayout, x: StridedLayout, taps: Sequence[Size]
) -> KernelCall:
    """Resize, p = {out, x, *tables}.

    Args:
        op: what is computed.
        out: layout of the result.
        x: layout of the operand.
        taps: see `resize_taps`.
    """
    axes = [op.axes[i] for i in _ascending(op)]
    lead = [a for a in range(x.rank) if a not in axes]
    fill = SPATIAL - len(axes)
    numbers: list[Size] = [x.sizes[axes[-1]] if axes else 1, *taps]
    numbers += [*[1] * fill, *(out.sizes[a] for a in axes)]
    for layout in (out, x):
        numbers += [*[0] * fill, *strides_over(layout, axes)]
    outer = axes_numbers(
        tuple(x.sizes[a] for a in lead), strides_over(out, lead), strides_over(x, lead)
    )
    units = units_for(out.numel * size_prod(taps))
    return KernelCall(
        "resize_f32", (units, *numbers, len(lead), *outer), units, scratch=4 * numbers[0] + 64
    )


def _ascending(op: Resize) -> list[int]:
    """Return the places of the axes in `op.axes`, first axis first."""
    return sorted(range(len(op.axes)), key=lambda i: op.axes[i])
