"""Reductions over axes, and indices of extremes: see `native/kn_reduce.h`."""

from __future__ import annotations

from collections.abc import Sequence

from kn_cpu.axes import KernelCall, axes_numbers, strides_over, units_for
from kn_graph.dim import Size, size_max
from kn_graph.dtype import DType
from kn_graph.ops.reduce import ArgReduce, ReduceFn
from kn_plan.layout import StridedLayout

__all__ = ["ARG_TYPES", "REDUCE_TYPES", "arg_reduce_call", "reduce_call", "reduce_to_call"]

FUNCTIONS = {"sum": 0, "mean": 1, "prod": 2, "max": 3, "min": 4, "any": 3, "all": 4}

ARG_TYPES = {DType.FLOAT32: "f32", DType.FLOAT64: "f64", DType.INT32: "i32", DType.INT64: "i64"}
"""What extremes are found of."""

REDUCE_TYPES = {**ARG_TYPES, DType.BOOL: "bool"}
"""What is reduced."""


def reduce_call(
    fn: ReduceFn, dtype: DType, out: StridedLayout, x: StridedLayout, axes: Sequence[int]
) -> KernelCall:
    """Reduce some axes of x, p = {out, x}. The result's layout is without them."""
    kept = [a for a in range(x.rank) if a not in axes]
    sizes = tuple(x.sizes[a] for a in kept)
    outer = axes_numbers(sizes, out.strides, strides_over(x, kept))
    inner = axes_numbers(tuple(x.sizes[a] for a in axes), strides_over(x, axes))
    return _call(fn, dtype, x, (len(kept), len(axes)), (*outer, *inner))


def reduce_to_call(fn: ReduceFn, dtype: DType, out: StridedLayout, x: StridedLayout) -> KernelCall:
    """Reduce the axes of x that have size 1 in the result, p = {out, x}. The others are equal.

    Where that is not so, elements of x are read, but not all of them.
    """
    counts = tuple(n // size_max(1, m) for n, m in zip(x.sizes, out.sizes, strict=True))
    outer = axes_numbers(out.sizes, out.strides, x.strides)
    return _call(fn, dtype, x, (x.rank, x.rank), (*outer, *axes_numbers(counts, x.strides)))


def _call(
    fn: ReduceFn, dtype: DType, x: StridedLayout, ranks: tuple[int, int], axes: tuple[Size, ...]
) -> KernelCall:
    units = units_for(x.numel)
    numbers = (units, FUNCTIONS[fn], *ranks, *axes)
    return KernelCall(f"reduce_{REDUCE_TYPES[dtype]}", numbers, units)


def arg_reduce_call(
    op: ArgReduce, dtype: DType, out: StridedLayout, x: StridedLayout
) -> KernelCall:
    """Find extremes along an axis, p = {out, x}. The result is int64, without the axis."""
    kept = [a for a in range(x.rank) if a != op.axis]
    sizes = tuple(x.sizes[a] for a in kept)
    units = units_for(x.numel)
    axis = (x.sizes[op.axis], x.strides[op.axis])
    head = (units, int(op.largest), int(op.last), *axis, len(kept))
    outer = axes_numbers(sizes, out.strides, strides_over(x, kept))
    return KernelCall(f"arg_{ARG_TYPES[dtype]}", (*head, *outer), units)
