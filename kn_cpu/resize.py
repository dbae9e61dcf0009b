"""Resampling of axes: see `native/kn_resize.h`.

Neighbours and weights come from the same functions as the reference's, for numbers of sizes; the
kernel reads them from tables, and has nothing to know of rules for coordinates.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import ceil
from typing import Any

import numpy as np

from kn_cpu.axes import KernelCall, axes_numbers, strides_over, units_for
from kn_graph.dim import Size, ceildiv, size_max, size_min, size_prod
from kn_graph.dtype import DType
from kn_graph.errors import ExecutionError
from kn_graph.interpolation import (
    Taps,
    cubic_kernel,
    linear_kernel,
    make_taps,
    nearest_indices,
    source_positions,
)
from kn_graph.ops.resize import HALF_WIDTH, Resize
from kn_plan.layout import StridedLayout

__all__ = [
    "SPATIAL",
    "axis_taps",
    "has_tables",
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


def has_tables(op: Resize) -> bool:
    """Return whether sizes alone say which elements a result is made of."""
    return op.scales != "operand" and not op.crops


def resize_taps(op: Resize, old: Sequence[Size], new: Sequence[Size]) -> tuple[Size, ...]:
    """Return how many elements are summed along each axis of the kernel: widths of its tables."""
    fill = (1,) * (SPATIAL - len(op.axes))
    return (*fill, *(_width(op, i, old[i], new[i]) for i in _ascending(op)))


def _width(op: Resize, place: int, n: Size, m: Size) -> Size:
    if op.mode == "nearest":
        return 1
    full: Size = 2 * HALF_WIDTH[op.mode]
    scale = op.scales[place] if isinstance(op.scales, tuple) else None
    if op.antialias and scale is not None:
        full = ceil(full * max(1.0, float(1 / scale)))
    elif op.antialias:
        full = size_max(full, ceildiv(full * n, size_max(m, 1)))
    if scale is not None and scale != 1:
        return full
    return 1 + (full - 1) * size_min(1, (m - n) * (m - n))  # 1 where the axis is copied


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


def axis_taps(op: Resize, place: int, old: Sequence[int], new: Sequence[int]) -> Taps:
    """Return what the results along the axis at a place of `op.axes` are made of.

    Raises:
        ExecutionError: the axis is empty, and should become something.
    """
    if new[place] and not old[place]:
        raise ExecutionError(f"resize of empty axis {op.axes[place]} to {new[place]}")
    return _taps(op, place, old[place], new[place])


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


def _taps(op: Resize, place: int, n: int, m: int) -> Taps:
    scale = op.scales[place] if isinstance(op.scales, tuple) else Fraction(m, max(n, 1))
    if m == 0 or (m == n and scale == 1):
        return Taps(np.arange(m)[:, None], np.ones((m, 1)))
    positions = source_positions(op.coordinates, m, n, scale).array(m)
    if op.mode == "nearest":
        index = nearest_indices(positions, n, op.nearest, scale)
        return Taps(index[:, None], np.ones((m, 1)))
    return make_taps(
        positions,
        n,
        linear_kernel if op.mode == "linear" else cubic_kernel(op.cubic_a),
        HALF_WIDTH[op.mode],
        stretch=max(1.0, float(1 / scale)) if op.antialias else 1.0,
        exclude_outside=op.exclude_outside,
    )
