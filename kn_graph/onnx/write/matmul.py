"""Writers of matrix products."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kn_graph.dtype import DType
from kn_graph.onnx.write.registry import writer
from kn_graph.ops.matmul import MatMul

if TYPE_CHECKING:
    from kn_graph.onnx.write.node import NodeWriter

__all__: list[str] = []


@writer(MatMul)
def matmul(ctx: NodeWriter, op: MatMul) -> str:
    """MatMul, which broadcasts leading axes; MatMulInteger of 8-bit integers."""
    types = [ctx.scope.dtype(name) for name in ctx.inputs]
    if op.out_dtype is None:
        return ctx.emit("MatMul", *ctx.inputs)
    if op.out_dtype is DType.INT32 and all(t is not None and t.bits == 8 for t in types):
        return ctx.emit("MatMulInteger", *ctx.inputs)
    return ctx.emit("MatMul", *(ctx.cast(x, op.out_dtype) for x in ctx.inputs))
