"""Sorting and selecting by rank: see `native/kn_sort.h`."""

from __future__ import annotations

from kn_cpu.axes import KernelCall, axes_numbers, strides_over, units_for
from kn_graph.dim import size_min
from kn_graph.dtype import DType, Kind
from kn_graph.ops.sort import TopK
from kn_plan.layout import StridedLayout

__all__ = ["sort_supported", "top_k_call"]

_FLOATS = {DType.FLOAT16: 0, DType.BFLOAT16: 1, DType.FLOAT32: 2, DType.FLOAT64: 3}
_INTEGERS = {Kind.INT: 4, Kind.UINT: 5}

UNIT = 1 << 10
"""Elements that are worth a work unit: each costs some ten nanoseconds."""

FEW = 8
"""Of the same name in `native/sort.c`."""

ENTRY = 16
"""Bytes of a key and an index."""


def sort_supported(dtype: DType) -> bool:
    """Return whether there is a kernel: for all but the narrowest types."""
    return dtype in _FLOATS or (dtype.kind in _INTEGERS and dtype.bits >= 8)


def top_k_call(
    op: TopK, dtype: DType, values: StridedLayout, indices: StridedLayout, x: StridedLayout
) -> KernelCall:
    """Take the first elements of each line in order, p = {values, indices, x}."""
    lines = [a for a in range(x.rank) if a != op.axis]
    operands = (values, indices, x)
    units = units_for(x.numel, UNIT)
    kind = _FLOATS[dtype] if dtype in _FLOATS else _INTEGERS[dtype.kind]
    size = x.sizes[op.axis]
    head = (units, kind, dtype.numpy.itemsize, int(op.largest), values.sizes[op.axis], size)
    steps = tuple(o.strides[op.axis] for o in operands)
    sizes = tuple(x.sizes[a] for a in lines)
    axes = axes_numbers(sizes, *(strides_over(o, lines) for o in operands))
    numbers = (*head, *steps, len(lines), *axes)
    entries = size_min(2 * size, 2 * FEW * values.sizes[op.axis])  # of the selection, at most
    return KernelCall("top_k", numbers, units, scratch=ENTRY * entries + 64)
