"""Writers of pooling of regions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kn_graph.onnx.write.registry import writer
from kn_graph.ops.roi import MaxRoiPool, RoiAlign

if TYPE_CHECKING:
    from kn_graph.onnx.write.node import NodeWriter

__all__: list[str] = []


@writer(RoiAlign)
def roi_align(ctx: NodeWriter, op: RoiAlign) -> str:
    """RoiAlign."""
    return ctx.emit(
        "RoiAlign",
        *ctx.inputs,
        output_height=op.size[0],
        output_width=op.size[1],
        mode="avg" if op.reduction == "mean" else "max",
        sampling_ratio=op.samples,
        spatial_scale=float(op.scale),
        coordinate_transformation_mode=None if op.half_pixel else "output_half_pixel",
    )


@writer(MaxRoiPool)
def max_roi_pool(ctx: NodeWriter, op: MaxRoiPool) -> str:
    """MaxRoiPool."""
    scale = float(op.scale)
    return ctx.emit("MaxRoiPool", *ctx.inputs, pooled_shape=list(op.size), spatial_scale=scale)
