"""Writers of sorting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kn_graph.onnx.write.registry import writer
from kn_graph.ops.sort import TopK

if TYPE_CHECKING:
    from kn_graph.onnx.write.node import NodeWriter

__all__: list[str] = []


@writer(TopK)
def top_k(ctx: NodeWriter, op: TopK) -> Sequence[str]:
    """TopK."""
    count = ctx.sizes([op.k])
    largest = None if op.largest else 0
    return ctx.emit_all("TopK", ctx.x, count, outputs=2, axis=op.axis, largest=largest)
