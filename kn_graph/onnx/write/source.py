"""Writers of numbers made of sizes. Inputs and constants are no nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kn_graph.dtype import DType
from kn_graph.joined import known_sizes
from kn_graph.onnx.write.registry import writer
from kn_graph.ops.layout import View
from kn_graph.ops.source import ReadSizes, Sizes

if TYPE_CHECKING:
    from kn_graph.onnx.write.node import NodeWriter

__all__: list[str] = []


@writer(Sizes)
def sizes(ctx: NodeWriter, op: Sizes) -> str:
    """Arithmetic on shapes."""
    if op.shape == ():
        return ctx.cast(ctx.scope.sizes.scalar(op.values[0]), op.dtype)
    vector = ctx.sizes(op.values)
    if len(op.shape) != 1:
        vector = ctx.reshape(vector, op.shape)
    return ctx.cast(vector, op.dtype)


@writer(ReadSizes)
def read_sizes(ctx: NodeWriter, op: ReadSizes) -> str:
    """Nothing: whoever mentions the sizes reads the operand."""
    known = known_sizes(ctx.node.operands[0])
    sizes = tuple(s if k is None else k for k, s in zip(known, op.symbols, strict=True))
    ctx.scope.sizes.read(op.symbols, sizes, ctx.x)
    (before,) = ctx.values
    if len(op.symbols) == 1 and isinstance(before.node.op, View):
        (root,) = ctx.scope.plan.reads[before.node]
        if root.rank == 0 and root.dtype is DType.INT64:
            ctx.scope.sizes.single(op.symbols[0], ctx.scope.name(root))
    return ctx.x
