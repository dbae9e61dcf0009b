"""Writers of Fourier transforms."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kn_graph.dtype import DType
from kn_graph.onnx.write.registry import writer
from kn_graph.ops.signal import Dft

if TYPE_CHECKING:
    from kn_graph.onnx.write.node import NodeWriter

__all__: list[str] = []


@writer(Dft)
def dft(ctx: NodeWriter, op: Dft) -> str:
    """DFT."""
    length, axis = ctx.scope.sizes.scalar(op.length), ctx.scalar(op.axis, DType.INT64)
    flags = {n: 1 if getattr(op, n) else None for n in ("inverse", "onesided")}
    return ctx.emit("DFT", ctx.x, length, axis, **flags)
