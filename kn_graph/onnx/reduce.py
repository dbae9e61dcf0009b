"""Converters of reductions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from kn_graph.dtype import DType
from kn_graph.onnx.registry import converter

if TYPE_CHECKING:
    from kn_graph.dim import Size
    from kn_graph.graph import Graph
    from kn_graph.onnx.context import NodeContext
    from kn_graph.ops.reduce import ReduceFn
    from kn_graph.value import Value

__all__: list[str] = []

Axes = tuple[int, ...]
Reducer = Callable[["ReduceFn", "Value"], "Value"]
Formula = Callable[["Graph", "Value", Reducer], "Value"]

AXES_ARE_INPUT_SINCE = {"ReduceSum": 13}
"""Opset from which axes are an input; 18 for all others."""


def _log_sum_exp(g: Graph, x: Value, reduce: Reducer) -> Value:
    """Shift by the maximum, so that nothing overflows; an infinite maximum is no shift."""
    peak = reduce("max", x)
    shift = g.select(g.unary("is_inf", peak), g.scalar(0, x.dtype), peak)
    total = reduce("sum", g.exp(g.sub(x, g.broadcast(shift, x.shape))))
    return g.add(g.log(total), shift)


FORMULAS: dict[str, Formula] = {
    "ReduceL1": lambda g, x, reduce: reduce("sum", g.unary("abs", x)),
    "ReduceL2": lambda g, x, reduce: g.sqrt(reduce("sum", g.mul(x, x))),
    "ReduceLogSum": lambda g, x, reduce: g.log(reduce("sum", x)),
    "ReduceLogSumExp": _log_sum_exp,
    "ReduceMax": lambda g, x, reduce: reduce("max", x),
    "ReduceMean": lambda g, x, reduce: reduce("mean", x),
    "ReduceMin": lambda g, x, reduce: reduce("min", x),
    "ReduceProd": lambda g, x, reduce: reduce("prod", x),
    "ReduceSum": lambda g, x, reduce: reduce("sum", x),
    "ReduceSumSquare": lambda g, x, reduce: reduce("sum", g.mul(x, x)),
}
"""Each with the reduced axes kept as size 1."""

SEVERAL_ROUNDINGS = frozenset({"ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare"})
"""Of narrow floats, these are computed in float32 and rounded once."""

ROOTS = frozenset({"ReduceL2", "ReduceLogSum", "ReduceLogSumExp"})
"""Of integers, these are computed in float64 and truncated."""


@converter(*FORMULAS)
def reduction(ctx: NodeContext) -> Value:
    """Reduce over the axes given, or all of them."""
    x, keep = ctx.input(0), ctx.flag("keepdims", True)
    axes = _axes(ctx, x)
    if not isinstance(axes, tuple):
        return _reduce_at_run_time(ctx, x, axes, keep)
    g = ctx.graph
    out = _formula(ctx, x, lambda fn, y: g.reduce(fn, y, axes, keep=True))
    return out if keep else g.squeeze(out, axes)


def _formula(ctx: NodeContext, x: Value, reduce: Reducer) -> Value:
    g, wide = ctx.graph, x.dtype
    if ctx.op in ROOTS and x.dtype.is_int:
        wide = DType.FLOAT64
    elif ctx.op in SEVERAL_ROUNDINGS and x.dtype.is_float and x.dtype.bits < 32:
        wide = DType.FLOAT32
    return g.cast(FORMULAS[ctx.op](g, g.cast(x, wide), reduce), x.dtype)


def _axes(ctx: NodeContext, x: Value) -> Axes | Value:
    """Absent or empty axes are all of them, unless the node says that they are none."""
    everything = tuple(range(x.rank))
    if ctx.opset < AXES_ARE_INPUT_SINCE.get(ctx.op, 18):
        return ctx.normal_axes(ctx.integers("axes", None) or everything, x.rank)
    if_empty: Axes = () if ctx.flag("noop_with_empty_axes", False) else everything
    value = ctx.optional(1)
    if value is None:
        return if_empty
    if value.constant is None and value.content is None and value.shape != (0,):
        return value
    return ctx.normal_axes(ctx.axes(value) if value.shape != (0,) else if_empty, x.rank)


def _reduce_at_run_time(ctx: NodeContext, x: Value, axes: Value, keep: bool) -> Value:
    """Reduce over axes that are data: to a shape that tensor arithmetic makes of them."""
    g, one = ctx.graph, ctx.graph.constant(np.array(1, np.int64))
    (count,) = axes.shape
    if not isinstance(count, int) or count > x.rank:
        ctx.unsupported(f"it reduces {count} axes of {x.rank}; the result's rank must be known")
    ones = g.broadcast(one, (count,))
    kept = g.scatter_elements(g.size_tensor(_row(x.shape)), axes, ones, 0)
    shape = g.read_sizes(kept)
    out = _formula(ctx, x, lambda fn, y: g.reduce_to(fn, y, shape))
    if keep:
        return out
    # the axes that stay are those whose mark is smallest
    zeros = g.broadcast(g.constant(np.array(0, np.int64)), (x.rank,))
    marks = g.scatter_elements(zeros, axes, ones, 0)
    _, left = g.top_k(marks, x.rank - count, 0, largest=False)
    return g.view(out, g.read_sizes(g.gather(kept, left, 0)))


def _row(sizes: tuple[Size, ...]) -> np.ndarray[tuple[int], np.dtype[np.object_]]:
    out = np.empty(len(sizes), object)
    out[:] = sizes
    return out


@converter("ArgMax", "ArgMin")
def arg_extreme(ctx: NodeContext) -> Value:
    """Where the extreme is; a NaN is extreme."""
    x, axis, keep = ctx.input(0), ctx.integer("axis", 0), ctx.flag("keepdims", True)
    last = ctx.flag("select_last_index", False) if ctx.opset >= 12 else False
    return ctx.graph.arg_reduce(x, axis, largest=ctx.op == "ArgMax", last=last, keep=keep)


@converter("Det")
def det(ctx: NodeContext) -> Value:
    """The determinant of each matrix."""
    return ctx.graph.det(ctx.input(0))
