"""Writers of positions as numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kn_graph.dtype import DType
from kn_graph.onnx.write.registry import writer
from kn_graph.ops.index import Iota

if TYPE_CHECKING:
    from kn_graph.onnx.write.node import NodeWriter

__all__: list[str] = []


@writer(Iota)
def iota(ctx: NodeWriter, op: Iota) -> str:
    """Range of int64, converted."""
    zero, one = (ctx.scalar(n, DType.INT64) for n in (0, 1))
    return ctx.cast(ctx.emit("Range", zero, ctx.scope.sizes.end(op.length), one), op.dtype)
