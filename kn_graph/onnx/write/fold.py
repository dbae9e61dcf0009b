"""Writers of sums of overlapping windows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kn_graph.onnx.write.conv import steps
from kn_graph.onnx.write.registry import refuse, writer
from kn_graph.ops.fold import Col2Im

if TYPE_CHECKING:
    from kn_graph.onnx.write.node import NodeWriter

__all__: list[str] = []


@writer(Col2Im)
def col2im(ctx: NodeWriter, op: Col2Im) -> str:
    """Col2Im."""
    attributes = steps(op.strides, op.dilations)
    pads = [b for b, _ in op.pads] + [a for _, a in op.pads]
    if any(not isinstance(p, int) for p in pads):
        refuse("pads of windows that depend on sizes")
    if any(pads):
        attributes["pads"] = pads
    return ctx.emit("Col2Im", ctx.x, ctx.sizes(op.image), ctx.sizes(op.kernel), **attributes)
