"""Reading and writing elements at indices that are data: see `native/kn_gather.h`.

Every call has a pointer `status` to three int64 that are 0 before: `status[0]` becomes 1 where an
index does not exist, `status[1]` such an index and `status[2]` its place in an index tuple: see
`kn_plan.statuses.index_status`.
"""

from __future__ import annotations

from collections.abc import Sequence

from kn_cpu.axes import KernelCall, axes_numbers, strides_over, units_for
from kn_graph.dim import Size
from kn_graph.dtype import DType, Kind
from kn_graph.ops.gather import Gather, GatherElements, GatherND
from kn_graph.ops.scatter import ScatterElements, ScatterFn, ScatterND
from kn_plan.layout import StridedLayout

__all__ = [
    "can_combine",
    "gather_call",
    "gather_elements_call",
    "gather_nd_call",
    "scatter_elements_call",
    "scatter_nd_call",
]

_FUNCTIONS = {"none": 0, "add": 1, "mul": 2, "max": 3, "min": 4}
_FLOATS = {DType.FLOAT32: 0, DType.FLOAT64: 1}
_INTEGERS = {Kind.INT: 2, Kind.UINT: 3}

UNIT_BYTES = 1 << 16
UNIT = 1 << 13
"""Elements of a work unit where each has an index of its own."""


def can_combine(fn: str, dtype: DType) -> bool:
    """Return whether there is a kernel that combines updates of a type with elements."""
    return fn == "none" or dtype in _FLOATS or (dtype.kind in _INTEGERS and dtype.bits >= 8)


def _combination(fn: ScatterFn, dtype: DType) -> tuple[int, int]:
    """Return the numbers of what a scatter does with elements, and of their type."""
    return _FUNCTIONS[fn], _FLOATS[dtype] if dtype in _FLOATS else _INTEGERS.get(dtype.kind, 0)


def _head(
    units: Size, dtype: DType, indices: DType, indexed: StridedLayout, axes: Sequence[int],
    combination: tuple[int, int] = (0, 0),
) -> tuple[tuple[Size, ...], tuple[Size, ...]]:  # fmt: skip
    """Return the first numbers, and the pairs of the indexed axes."""
    size = indices.numpy.itemsize
    signed = size if indices.kind is Kind.INT else -size  # see KN_GATHER_INDEX_BYTES
    pairs = tuple(n for a in axes for n in (indexed.sizes[a], indexed.strides[a]))
    return (units, dtype.numpy.itemsize, signed, len(axes), *combination), pairs


def gather_call(
    op: Gather,
    out: StridedLayout,
    x: StridedLayout,
    indices: StridedLayout,
    *,
    dtype: DType,
    index_dtype: DType,
) -> KernelCall:
    """Gather slices, p = {out, x, indices, status}."""
    axis, rank = op.axis, indices.rank
    before, behind = range(axis), range(axis + 1, x.rank)
    nothing: tuple[Size, ...] = (0,) * x.rank
    groups = (
        *axes_numbers(
            x.sizes[:axis], strides_over(out, before), strides_over(x, before), nothing[:axis]
        ),
        *axes_numbers(
            indices.sizes, out.strides[axis : axis + rank], (0,) * rank, indices.strides
        ),
        *axes_numbers(
            x.sizes[axis + 1 :], out.strides[axis + rank :], strides_over(x, behind),
            nothing[axis + 1 :],
        ),
    )  # fmt: skip
    units = units_for(out.numel * dtype.numpy.itemsize, UNIT_BYTES)
    head, pairs = _head(units, dtype, index_dtype, x, [axis])
    return KernelCall("gather", (*head, 0, axis, rank, len(behind), *pairs, *groups), units)


def gather_nd_call(
    op: GatherND,
    out: StridedLayout,
    x: StridedLayout,
    indices: StridedLayout,
    *,
    dtype: DType,
    index_dtype: DType,
) -> KernelCall:
    """Gather slices by index tuples, p = {out, x, indices, status}."""
    units = units_for(out.numel * dtype.numpy.itemsize, UNIT_BYTES)
    numbers = _tuples(units, op.batch_axes, out, x, indices, dtype, index_dtype)
    return KernelCall("gather", numbers, units)


def scatter_nd_call(
    op: ScatterND,
    out: StridedLayout,
    updates: StridedLayout,
    indices: StridedLayout,
    *,
    dtype: DType,
    index_dtype: DType,
) -> KernelCall:
    """Write updates over `out`, a copy of x, p = {out, updates, indices, status}.

    Of several updates for one place the last stays, or all are combined: one unit does all.
    """
    numbers = _tuples(
        1, 0, updates, out, indices, dtype, index_dtype,
        scatter=_combination(op.reduction, dtype),
    )  # fmt: skip
    return KernelCall("scatter", numbers, 1)


def _tuples(
    units: Size, batch: int, listed: StridedLayout, indexed: StridedLayout, indices: StridedLayout,
    dtype: DType, index_dtype: DType, *, scatter: tuple[int, int] | None = None,
) -> tuple[Size, ...]:  # fmt: skip
    """Return numbers where `listed` has the axes of tuples, and `indexed` those they point into."""
    depth = indices.sizes[-1]
    assert isinstance(depth, int), "known when the graph is built: see tuple_depth"
    rank, places = indices.rank - 1, range(batch, indices.rank - 1)
    behind = range(batch + depth, indexed.rank)

    def group(count: int, sizes: Sequence[Size], *strides: Sequence[Size]) -> tuple[Size, ...]:
        of_listed, of_indexed, of_indices = (tuple(s) or (0,) * count for s in strides)
        out, x = (of_listed, of_indexed) if scatter is None else (of_indexed, of_listed)
        return axes_numbers(tuple(sizes), out, x, of_indices)

    groups = (
        *group(
            batch, indexed.sizes[:batch], listed.strides[:batch], indexed.strides[:batch],
            indices.strides[:batch],
        ),
        *group(
            len(places), indices.sizes[batch:rank], listed.strides[batch:rank], (),
            indices.strides[batch:rank],
        ),
        *group(
            len(behind), indexed.sizes[batch + depth :], listed.strides[rank:],
            indexed.strides[batch + depth :], (),
        ),
    )  # fmt: skip
    pointed = range(batch, batch + depth)
    head, pairs = _head(units, dtype, index_dtype, indexed, pointed, scatter or (0, 0))
    counts = (indices.strides[-1], batch, len(places), len(behind))
    return (*head, *counts, *pairs, *groups)


def gather_elements_call(
    op: GatherElements,
    out: StridedLayout,
    x: StridedLayout,
    indices: StridedLayout,
    *,
    dtype: DType,
    index_dtype: DType,
) -> KernelCall:
    """Gather an element for each index, p = {out, x, indices, status}."""
    axes = axes_numbers(indices.sizes, out.strides, _still(x, op.axis), indices.strides)
    units = units_for(indices.numel, UNIT)
    head, pairs = _head(units, dtype, index_dtype, x, [op.axis])
    return KernelCall("gather_elements", (*head, 0, indices.rank, 0, 0, *pairs, *axes), units)


def scatter_elements_call(
    op: ScatterElements,
    out: StridedLayout,
    updates: StridedLayout,
    indices: StridedLayout,
    *,
    dtype: DType,
    index_dtype: DType,
) -> KernelCall:
    """Write updates over `out`, a copy of x, p = {out, updates, indices, status}.

    Of several updates for one place the last stays, or all are combined: one unit does all.
    """
    axes = axes_numbers(indices.sizes, _still(out, op.axis), updates.strides, indices.strides)
    kind = _combination(op.reduction, dtype)
    head, pairs = _head(1, dtype, index_dtype, out, [op.axis], kind)
    return KernelCall("scatter_elements", (*head, 0, indices.rank, 0, 0, *pairs, *axes), 1)


def _still(layout: StridedLayout, axis: int) -> tuple[Size, ...]:
    """Return strides that do not move along the axis that indices move along."""
    return tuple(0 if a == axis else s for a, s in enumerate(layout.strides))
