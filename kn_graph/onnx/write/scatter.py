"""Writers of writing at indices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kn_graph.onnx.write.registry import writer
from kn_graph.ops.scatter import ScatterElements, ScatterND

if TYPE_CHECKING:
    from kn_graph.onnx.write.node import NodeWriter

__all__: list[str] = []


def _reduction(fn: str) -> str | None:
    return None if fn == "none" else fn


@writer(ScatterElements)
def scatter_elements(ctx: NodeWriter, op: ScatterElements) -> str:
    """ScatterElements."""
    reduction = _reduction(op.reduction)
    return ctx.emit("ScatterElements", *ctx.inputs, axis=op.axis, reduction=reduction)


@writer(ScatterND)
def scatter_nd(ctx: NodeWriter, op: ScatterND) -> str:
    """ScatterND."""
    return ctx.emit("ScatterND", *ctx.inputs, reduction=_reduction(op.reduction))
