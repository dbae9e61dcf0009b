"""Writers of operations whose result has as many elements as the data says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kn_graph.onnx.write.registry import writer
from kn_graph.ops.nonzero import NonZero, Unique

if TYPE_CHECKING:
    from kn_graph.onnx.write.node import NodeWriter

__all__: list[str] = []


@writer(NonZero)
def nonzero(ctx: NodeWriter, op: NonZero) -> str:
    """NonZero."""
    return ctx.emit("NonZero", ctx.x)


@writer(Unique)
def unique(ctx: NodeWriter, op: Unique) -> Sequence[str]:
    """Unique."""
    ordered = None if op.ordered else 0
    return ctx.emit_all("Unique", ctx.x, outputs=4, axis=op.axis, sorted=ordered)
