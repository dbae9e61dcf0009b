"""Writers of running sums and products."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kn_graph.dtype import DType
from kn_graph.onnx.write.registry import writer
from kn_graph.ops.cumulative import Cumulative

if TYPE_CHECKING:
    from kn_graph.onnx.write.node import NodeWriter

__all__: list[str] = []

CUMPROD_OPSET = 26


@writer(Cumulative)
def cumulative(ctx: NodeWriter, op: Cumulative) -> str:
    """CumSum; CumProd from opset 26 on, before the products of all prefixes."""
    if op.fn == "prod" and ctx.scope.model.opset("") < CUMPROD_OPSET:
        return _prefix_products(ctx, op)
    operator = "CumSum" if op.fn == "sum" else "CumProd"
    axis = ctx.scalar(op.axis, DType.INT64)
    flags = {n: 1 if getattr(op, n) else None for n in ("exclusive", "reverse")}
    return ctx.emit(operator, ctx.x, axis, **flags)


def _prefix_products(ctx: NodeWriter, op: Cumulative) -> str:
    """Prod over j of (x[j] if j takes part in i, else 1), for all i at once."""
    shape = ctx.values[0].shape
    zero, one = (ctx.scalar(n, DType.INT64) for n in (0, 1))
    places = ctx.emit("Range", zero, ctx.scope.sizes.scalar(shape[op.axis]), one)
    behind = len(shape) - op.axis - 1
    rows = ctx.emit("Unsqueeze", places, ctx.ints(*range(1, 2 + behind)))  # i
    columns = ctx.emit("Unsqueeze", places, ctx.ints(0, *range(2, 2 + behind)))  # j
    first, second = (rows, columns) if op.reverse else (columns, rows)
    takes_part = ctx.emit("Less" if op.exclusive else "LessOrEqual", first, second)
    wide = ctx.emit("Unsqueeze", ctx.x, ctx.ints(op.axis))
    kept = ctx.emit("Where", takes_part, wide, ctx.scalar(1, ctx.x))
    return ctx.emit("ReduceProd", kept, ctx.ints(op.axis + 1), keepdims=0)
