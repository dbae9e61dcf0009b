"""Writers of reading at indices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kn_graph.onnx.write.registry import writer
from kn_graph.ops.gather import Gather, GatherElements, GatherND

if TYPE_CHECKING:
    from kn_graph.onnx.write.node import NodeWriter

__all__: list[str] = []


@writer(Gather)
def gather(ctx: NodeWriter, op: Gather) -> str:
    """Gather."""
    return ctx.emit("Gather", *ctx.inputs, axis=op.axis)


@writer(GatherElements)
def gather_elements(ctx: NodeWriter, op: GatherElements) -> str:
    """GatherElements."""
    return ctx.emit("GatherElements", *ctx.inputs, axis=op.axis)


@writer(GatherND)
def gather_nd(ctx: NodeWriter, op: GatherND) -> str:
    """GatherND."""
    return ctx.emit("GatherND", *ctx.inputs, batch_dims=op.batch_axes or None)
