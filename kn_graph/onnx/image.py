"""Converters of operators on images."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kn_graph.onnx.registry import converter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kn_graph.onnx.context import NodeContext
    from kn_graph.value import Value

__all__: list[str] = []

GRID_MODES = {"linear": "linear", "nearest": "nearest", "cubic": "cubic"}
OLD_GRID_MODES = {"bilinear": "linear", "nearest": "nearest", "bicubic": "cubic"}


@converter("GridSample", since=16)
def grid_sample(ctx: NodeContext) -> Value:
    """Sample an image at positions; the modes were renamed in opset 20."""
    modes, default = (GRID_MODES, "linear") if ctx.opset >= 20 else (OLD_GRID_MODES, "bilinear")
    mode: Any = modes[ctx.choice("mode", default, tuple(modes))]
    padding: Any = ctx.choice("padding_mode", "zeros", ("zeros", "border", "reflection"))
    return ctx.graph.grid_sample(
        ctx.input(0),
        ctx.input(1),
        mode=mode,
        padding=padding,
        align_corners=ctx.flag("align_corners", False),
    )


@converter("AffineGrid", since=20)
def affine_grid(ctx: NodeContext) -> Value:
    """Positions for GridSample from affine maps; sizes are [N, C, *spatial]."""
    theta, sizes = ctx.input(0), ctx.sizes(1, lo=1)
    assert sizes is not None
    if len(sizes) not in (4, 5):
        ctx.fail(f"has {len(sizes)} sizes, expected [N, C, H, W] or [N, C, D, H, W]")
    ctx.graph.require_eq(sizes[0], theta.shape[0], "batch size and number of affine maps")
    align_corners = ctx.flag("align_corners", False)
    return ctx.graph.affine_grid(theta, sizes[2:], align_corners=align_corners)


@converter("RoiAlign", since=10)
def roi_align(ctx: NodeContext) -> Value:
    """Samples of regions; before opset 16 coordinates were not shifted by half an element."""
    shift = "output_half_pixel"
    if ctx.opset >= 16:
        shift = ctx.choice("coordinate_transformation_mode", "half_pixel", ("half_pixel", shift))
    mode = ctx.choice("mode", "avg", ("avg", "max"))
    return ctx.graph.roi_align(
        ctx.input(0),
        ctx.input(1),
        ctx.input(2),
        (ctx.integer("output_height", 1), ctx.integer("output_width", 1)),
        reduction="mean" if mode == "avg" else "max",
        samples=ctx.integer("sampling_ratio", 0),
        scale=ctx.real("spatial_scale", 1.0),
        half_pixel=shift == "half_pixel",
    )


@converter("MaxRoiPool")
def max_roi_pool(ctx: NodeContext) -> Value:
    """Maxima of regions."""
    size = ctx.integers("pooled_shape")
    if len(size) != 2:
        ctx.fail(f"pooled_shape must be (height, width), got {size}")
    scale = ctx.real("spatial_scale", 1.0)
    return ctx.graph.max_roi_pool(ctx.input(0), ctx.input(1), size, scale=scale)


@converter("Col2Im", since=18)
def col2im(ctx: NodeContext) -> Value:
    """Sum of windows."""
    image, kernel = ctx.sizes(1), ctx.sizes(2)
    assert image is not None
    assert kernel is not None
    pads = ctx.integers("pads", None)
    rank = len(image)
    if pads is not None and len(pads) != 2 * rank:
        ctx.fail(f"has {len(pads)} pads for {rank} axes")
    return ctx.graph.col2im(
        ctx.input(0),
        image,
        kernel,
        strides=ctx.integers("strides", None),
        dilations=ctx.integers("dilations", None),
        pads=None if pads is None else list(zip(pads[:rank], pads[rank:], strict=True)),
    )


@converter("DepthToSpace")
def depth_to_space(ctx: NodeContext) -> Value:
    """Channels to blocks; before opset 11 always with the depth inside."""
    depth_first = ctx.opset >= 11 and ctx.choice("mode", "DCR", ("DCR", "CRD")) == "CRD"
    block = ctx.integer("blocksize")
    return ctx.graph.depth_to_space(ctx.input(0), block, depth_first=depth_first)


@converter("SpaceToDepth")
def space_to_depth(ctx: NodeContext) -> Value:
    """Blocks to channels; before opset 28 always with the depth inside."""
    depth_first = ctx.opset >= 28 and ctx.choice("mode", "DCR", ("DCR", "CRD")) == "CRD"
    block = ctx.integer("blocksize")
    return ctx.graph.space_to_depth(ctx.input(0), block, depth_first=depth_first)


@converter("CenterCropPad", since=18)
def center_crop_pad(ctx: NodeContext) -> Value:
    """Cut or fill with zeros around the middle."""
    x, sizes = ctx.input(0), ctx.sizes(1)
    assert sizes is not None
    axes: Sequence[int] = ctx.integers("axes", tuple(range(x.rank)))
    if len(sizes) != len(axes):
        ctx.fail(f"has {len(sizes)} sizes for {len(axes)} axes")
    return ctx.graph.center_crop_pad(x, axes, sizes)
