"""Which elements a resize is made of, for numbers of sizes: tables that kernels read.

Neighbours and weights come from the same functions as the reference's; kernels have nothing to know
of rules for coordinates.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import ceil

import numpy as np

from kn_graph.dim import Size, ceildiv, size_max, size_min
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

__all__ = ["axis_taps", "has_tables", "taps_width"]


def has_tables(op: Resize) -> bool:
    """Return whether sizes alone say which elements a result is made of."""
    return op.scales != "operand" and not op.crops


def taps_width(op: Resize, place: int, n: Size, m: Size) -> Size:
    """Return how many elements a result is made of along the axis at a place of `op.axes`.

    Args:
        op: what is computed.
        place: of the axis.
        n: its size in the operand.
        m: its size in the result.
    """
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


def axis_taps(op: Resize, place: int, old: Sequence[int], new: Sequence[int]) -> Taps:
    """Return what the results along the axis at a place of `op.axes` are made of.

    Args:
        op: what is computed.
        place: of the axis.
        old: sizes of the operand along `op.axes`.
        new: sizes of the result along them.

    Raises:
        ExecutionError: the axis is empty, and should become something.
    """
    if new[place] and not old[place]:
        raise ExecutionError(f"resize of empty axis {op.axes[place]} to {new[place]}")
    return _taps(op, place, old[place], new[place])


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
