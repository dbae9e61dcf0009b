"""Writers of sampling at positions that are data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kn_graph.onnx.write.registry import writer
from kn_graph.ops.sample import GridSample

if TYPE_CHECKING:
    from kn_graph.onnx.write.node import NodeWriter

__all__: list[str] = []


@writer(GridSample)
def grid_sample(ctx: NodeWriter, op: GridSample) -> str:
    """GridSample."""
    return ctx.emit(
        "GridSample",
        *ctx.inputs,
        mode=op.mode,
        padding_mode=op.padding,
        align_corners=1 if op.align_corners else 0,
    )
