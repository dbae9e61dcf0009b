"""Writers of choosing boxes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kn_graph.onnx.write.registry import writer
from kn_graph.ops.nms import NonMaxSuppression

if TYPE_CHECKING:
    from kn_graph.onnx.write.node import NodeWriter

__all__: list[str] = []


@writer(NonMaxSuppression)
def non_max_suppression(ctx: NodeWriter, op: NonMaxSuppression) -> str:
    """NonMaxSuppression."""
    center = 1 if op.centered else None
    return ctx.emit("NonMaxSuppression", *ctx.inputs, center_point_box=center)
