"""Resampling of axes: see `native/kn_resize.h`.

Neighbours and weights come from the same functions as the reference's, for numbers of sizes; the
kernel reads them from tables, and has nothing to know of rules for coordinates.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from kn_cpu.axes import KernelCall, axes_numbers, strides_over, units_for
from kn_graph.dim import Size
from kn_graph.dtype import DType
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

__all__ = ["resize_call", "resize_supported", "resize_tables"]

Array = np.ndarray[Any, Any]

SPATIAL = 3
"""Axes of the kernel: fewer are filled up in front."""


def resize_supported(op: Resize, dtype: DType) -> bool:
    """Return whether there is a kernel: of float32, along up to three axes, with known scales."""
    known = op.scales != "operand" and not op.crops
    return dtype is DType.FLOAT32 and known and len(op.axes) <= SPATIAL


def resize_tables(op: Resize, old: Sequence[int], new: Sequence[int]) -> list[Array]:
    """Return indices [m, k] and weights [m, k] of each axis of the kernel, one after another.

    Args:
        op: what is computed.
        old: sizes of the operand along `op.axes`.
        new: sizes of the result along them.
    """
    single: list[Array] = [np.zeros((1, 1), np.int64), np.ones((1, 1), np.float32)]
    tables = single * (SPATIAL - len(op.axes))
    for place in _ascending(op):
        taps = _taps(op, place, old[place], new[place])
        tables += [np.ascontiguousarray(taps.index), taps.weight.astype(np.float32)]
    return tables


def resize_call(
    op: Resize, out: StridedLayout, x: StridedLayout, taps: Sequence[int]
) -> KernelCall:
    """Resize, p = {out, x, *tables}.

    Args:
        op: what is computed.
        out: layout of the result.
        x: layout of the operand.
        taps: how many elements are summed along each axis of the kernel: widths of its tables.
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
    units = units_for(out.numel * int(np.prod(taps)))
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
