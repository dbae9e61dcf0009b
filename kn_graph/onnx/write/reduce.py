"""Writers of reductions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kn_graph.dtype import DType
from kn_graph.onnx.write.registry import writer
from kn_graph.ops.reduce import ArgReduce, Det, Reduce, ReduceTo

if TYPE_CHECKING:
    from kn_graph.onnx.write.node import NodeWriter

__all__ = ["OPERATORS", "write_kept"]

OPERATORS = {
    "sum": "ReduceSum", "mean": "ReduceMean", "prod": "ReduceProd", "max": "ReduceMax",
    "min": "ReduceMin", "any": "ReduceMax", "all": "ReduceMin",
}  # fmt: skip


def _reduced(ctx: NodeWriter, fn: str, x: str, axes: tuple[int, ...], *, keep: bool) -> str:
    return ctx.emit(OPERATORS[fn], x, ctx.ints(*axes), keepdims=None if keep else 0)


@writer(Reduce)
def reduce(ctx: NodeWriter, op: Reduce, *, keep: bool = False) -> str:
    """Reduce, axes dropped."""
    if op.fn == "mean" and ctx.dtype.is_int and ctx.dtype.bits < 32:
        wide = ctx.cast(ctx.x, DType.INT32)  # the sum would not fit
        return ctx.cast(_reduced(ctx, op.fn, wide, op.axes, keep=keep), ctx.dtype)
    return _reduced(ctx, op.fn, ctx.x, op.axes, keep=keep)


@writer(ArgReduce)
def arg_reduce(ctx: NodeWriter, op: ArgReduce, *, keep: bool = False) -> str:
    """ArgMax or ArgMin, the axis dropped."""
    attributes: dict[str, Any] = {"axis": op.axis, "keepdims": None if keep else 0}
    attributes["select_last_index"] = 1 if op.last else None
    return ctx.emit("ArgMax" if op.largest else "ArgMin", ctx.x, **attributes)


def write_kept(ctx: NodeWriter, op: Reduce | ArgReduce) -> str:
    """Write a reduction whose axes stay with size 1."""
    if isinstance(op, Reduce):
        return reduce(ctx, op, keep=True)
    return arg_reduce(ctx, op, keep=True)


@writer(ReduceTo)
def reduce_to(ctx: NodeWriter, op: ReduceTo) -> str:
    """Reduce axes that become 1; where that only shows at run time, choose between both."""
    x, before = ctx.x, ctx.values[0].shape
    known = tuple(a for a, (n, m) in enumerate(zip(before, op.shape, strict=True)) if m == 1 != n)
    if known:
        x = _reduced(ctx, op.fn, x, known, keep=True)
    for axis, (n, m) in enumerate(zip(before, op.shape, strict=True)):
        if axis in known or n == m:
            continue
        whole = _reduced(ctx, op.fn, x, (axis,), keep=True)
        single = ctx.emit("Equal", ctx.sizes([m]), ctx.ints(1))
        chosen = ctx.emit("Where", single, whole, x)
        bounds = [ctx.ints(0), ctx.sizes([m]), ctx.ints(axis)]
        x = ctx.emit("Slice", chosen, *bounds)
    return x


@writer(Det)
def det(ctx: NodeWriter, op: Det) -> str:
    """Det."""
    return ctx.emit("Det", ctx.x)
