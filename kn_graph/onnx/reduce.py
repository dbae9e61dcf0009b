"""Converters of reductions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kn_graph.dtype import DType
from kn_graph.onnx.registry import converter

if TYPE_CHECKING:
    from kn_graph.graph import Graph
    from kn_graph.onnx.context import NodeContext
    from kn_graph.value import Value

__all__: list[str] = []

Axes = tuple[int, ...]
Formula = Callable[["Graph", "Value", Axes], "Value"]

AXES_ARE_INPUT_SINCE = {"ReduceSum": 13}
"""Opset from which axes are an input; 18 for all others."""


def _log_sum_exp(g: Graph, x: Value, axes: Axes) -> Value:
    """Shift by the maximum, so that nothing overflows; an infinite maximum is no shift."""
    peak = g.reduce("max", x, axes, keep=True)
    zero = g.scalar(0, x.dtype)
    shift = g.select(g.unary("is_inf", peak), zero, peak)
    total = g.reduce("sum", g.exp(g.sub(x, shift)), axes, keep=True)
    return g.add(g.log(total), shift)


FORMULAS: dict[str, Formula] = {
    "ReduceL1": lambda g, x, a: g.reduce("sum", g.unary("abs", x), a, keep=True),
    "ReduceL2": lambda g, x, a: _float_root(g, x, a),
    "ReduceLogSum": lambda g, x, a: g.log(g.reduce("sum", x, a, keep=True)),
    "ReduceLogSumExp": _log_sum_exp,
    "ReduceMax": lambda g, x, a: g.reduce("max", x, a, keep=True),
    "ReduceMean": lambda g, x, a: g.reduce("mean", x, a, keep=True),
    "ReduceMin": lambda g, x, a: g.reduce("min", x, a, keep=True),
    "ReduceProd": lambda g, x, a: g.reduce("prod", x, a, keep=True),
    "ReduceSum": lambda g, x, a: g.reduce("sum", x, a, keep=True),
    "ReduceSumSquare": lambda g, x, a: g.reduce("sum", g.mul(x, x), a, keep=True),
}
"""Each with the reduced axes kept as size 1."""

ROOTS = frozenset({"ReduceL2", "ReduceLogSum", "ReduceLogSumExp"})
"""Of integers, these are computed in float64 and truncated."""


def _float_root(g: Graph, x: Value, axes: Axes) -> Value:
    return g.sqrt(g.reduce("sum", g.mul(x, x), axes, keep=True))


@converter(*FORMULAS)
def reduction(ctx: NodeContext) -> Value:
    """Reduce over the axes given, or all of them."""
    g, x = ctx.graph, ctx.input(0)
    keep = ctx.flag("keepdims", True)
    axes = _axes(ctx, x)
    formula = FORMULAS[ctx.op]
    if ctx.op in ROOTS and x.dtype.is_int:
        wide = formula(g, g.cast(x, DType.FLOAT64), axes)
        out = g.cast(wide, x.dtype)
    else:
        out = formula(g, x, axes)
    return out if keep else g.squeeze(out, axes)


def _axes(ctx: NodeContext, x: Value) -> Axes:
    """Absent or empty axes are all of them, unless the node says that they are none."""
    since = AXES_ARE_INPUT_SINCE.get(ctx.op, 18)
    none_if_empty = False
    axes: Axes | None
    if ctx.opset < since:
        axes = ctx.integers("axes", None)
    else:
        none_if_empty = ctx.flag("noop_with_empty_axes", False)
        value = ctx.optional(1)
        axes = None if value is None else ctx.axes(value)
    if not axes:
        return () if none_if_empty else tuple(range(x.rank))
    return ctx.normal_axes(axes, x.rank)


@converter("ArgMax", "ArgMin")
def arg_extreme(ctx: NodeContext) -> Value:
    """Where the extreme is; a NaN is extreme."""
    x, axis = ctx.input(0), ctx.integer("axis", 0)
    last = ctx.flag("select_last_index", False) if ctx.opset >= 12 else False
    largest = ctx.op == "ArgMax"
    return ctx.graph.arg_reduce(x, axis, largest=largest, last=last, keep=ctx.flag("keepdims", True))
