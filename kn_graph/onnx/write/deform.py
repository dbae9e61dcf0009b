"""Writers of deformable convolution."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kn_graph.onnx.write.conv import steps, window_pads
from kn_graph.onnx.write.registry import refuse, writer
from kn_graph.ops.deform import DeformConv

if TYPE_CHECKING:
    from kn_graph.onnx.write.node import NodeWriter

__all__: list[str] = []


@writer(DeformConv)
def deform_conv(ctx: NodeWriter, op: DeformConv) -> str:
    """DeformConv."""
    x, w, offset, *mask = ctx.inputs
    spatial, kernel = (v.shape[2:] for v in ctx.values[:2])
    pads = window_pads(op.pads, spatial, kernel, op.strides, op.dilations)
    if pads is None or "auto_pad" in pads:
        refuse("pads of a deformable convolution that depend on sizes")
    attributes = {**pads, **steps(op.strides, op.dilations)}
    attributes["group"] = op.groups if op.groups != 1 else None
    attributes["offset_group"] = op.offset_groups if op.offset_groups != 1 else None
    return ctx.emit("DeformConv", x, w, offset, *(["", *mask] if mask else []), **attributes)
