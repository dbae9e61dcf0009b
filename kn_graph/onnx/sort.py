"""Converters of operators that sort or run along an axis."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kn_graph.dtype import DType
from kn_graph.onnx.registry import converter

if TYPE_CHECKING:
    from kn_graph.onnx.context import NodeContext
    from kn_graph.ops.cumulative import CumulativeFn
    from kn_graph.value import Value

__all__: list[str] = []


@converter("TopK", until=9)
def top_k_attribute(ctx: NodeContext) -> tuple[Value, Value]:
    """The number is an attribute."""
    return ctx.graph.top_k(ctx.input(0), ctx.integer("k"), ctx.integer("axis", -1))


@converter("TopK", since=10)
def top_k(ctx: NodeContext) -> tuple[Value, Value]:
    """The number is an input; the order asked for by `sorted` is always given."""
    k = ctx.sizes(1)
    if k is None or len(k) != 1:
        ctx.fail("K must hold one number")
    largest = ctx.flag("largest", True) if ctx.opset >= 11 else True
    if ctx.opset >= 11:
        ctx.ignore("sorted")
    return ctx.graph.top_k(ctx.input(0), k[0], ctx.integer("axis", -1), largest=largest)


@converter("CumSum", "CumProd")
def cumulative(ctx: NodeContext) -> Value:
    """Running sums or products along one axis, which is an input."""
    g, x, axis = ctx.graph, ctx.input(0), ctx.input(1)
    fn: CumulativeFn = "sum" if ctx.op == "CumSum" else "prod"
    exclusive, reverse = ctx.flag("exclusive", False), ctx.flag("reverse", False)

    def along(a: int) -> Value:
        return g.cumulative(fn, x, a, exclusive=exclusive, reverse=reverse)

    if axis.content is not None:
        return along(ctx.axes(axis, "axis")[0])
    # an axis that is data: every one is tried; the gather checks it and counts from 0
    chosen = g.gather(g.iota(x.rank), axis if axis.rank == 0 else g.view(axis, ()), 0)
    out = x
    for a in range(x.rank):
        out = g.select(g.compare("eq", chosen, g.scalar(a, DType.INT64)), along(a), out)
    return out
