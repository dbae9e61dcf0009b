"""Writers of sampling at positions that are data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kn_graph.dtype import DType
from kn_graph.onnx.write.registry import writer
from kn_graph.ops.sample import GridSample

if TYPE_CHECKING:
    from kn_graph.onnx.write.node import NodeWriter

__all__: list[str] = []


@writer(GridSample)
def grid_sample(ctx: NodeWriter, op: GridSample) -> str:
    """GridSample."""
    x, grid = ctx.inputs
    return ctx.emit(
        "GridSample",
        x,
        _from_edges(ctx, grid) if op.in_elements else grid,
        mode=op.mode,
        padding_mode=op.padding,
        align_corners=1 if op.align_corners else 0,
    )


def _from_edges(ctx: NodeWriter, grid: str) -> str:
    """Return positions p as ONNX has them: (2p + 1)/n - 1, the last axis first."""
    image, places = ctx.values
    wide = DType.FLOAT64 if places.dtype is DType.FLOAT64 else DType.FLOAT32
    one, two = (ctx.scalar(n, wide) for n in (1, 2))
    sizes = ctx.cast(ctx.sizes(image.shape[:1:-1]), wide)
    doubled = ctx.emit("Add", ctx.emit("Mul", ctx.cast(grid, wide), two), one)
    return ctx.cast(ctx.emit("Sub", ctx.emit("Div", doubled, sizes), one), places.dtype)
