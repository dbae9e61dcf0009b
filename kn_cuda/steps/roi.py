"""Regions of images: see `kernels/roi.cu`."""

from __future__ import annotations

from collections.abc import Mapping

from kn_cuda.axes import blocks_for, in_order
from kn_cuda.builder import KernelBuilder
from kn_cuda.calls import Call
from kn_cuda.expression import literal
from kn_cuda.lowering import Calls, Lowering
from kn_cuda.places import add_places
from kn_cuda.types import compute_type, wide
from kn_graph.dim import size_prod
from kn_graph.dtype import DType
from kn_graph.ops.roi import MaxRoiPool, RoiAlign
from kn_plan.calls import UnsupportedError
from kn_plan.plan import Step
from kn_plan.statuses import region_status

__all__ = ["max_roi_pool", "roi_align"]


def roi_align(low: Lowering, step: Step, op: RoiAlign) -> Calls:
    """Pool samples."""
    images = step.reads[2]
    if low.dtype(images) is not DType.INT64:
        raise UnsupportedError("its kernel is for int64 numbers of images")
    b = KernelBuilder("roi", "roi_align", low.threads)
    b.constant("LARGEST", op.reduction == "max")
    b.constant("ONE_AT_LEAST", not op.half_pixel)
    b.reads("images", images, "int64_t")
    b.number("image_step", images.layout.strides[0])
    b.number("samples", op.samples)
    shift = 0.5 if op.half_pixel else 0.0
    return [_bins(low, step, b, op, {"scale": op.scale, "shift": shift})]


def max_roi_pool(low: Lowering, step: Step, op: MaxRoiPool) -> Calls:
    """Take maxima."""
    b = KernelBuilder("roi", "roi_max_pool", low.threads)
    return [_bins(low, step, b, op, {"scale": op.scale})]


def _bins(
    low: Lowering,
    step: Step,
    b: KernelBuilder,
    op: RoiAlign | MaxRoiPool,
    numbers: Mapping[str, float],
) -> Call:
    """Return the launch of a kernel that is given images, regions and some constants."""
    x, rois = step.reads[:2]
    computed = wide(low.dtype(x))
    b.type("Acc", compute_type(computed))
    b.reads("x", *low.typed(x))
    b.reads("rois", *low.typed(rois))
    b.writes("status", region_status(x.layout.sizes[0]), "int64_t")
    b.number("count", size_prod(step.shape))
    b.number("images", x.layout.sizes[0])
    b.numbers("bins", op.size)
    b.numbers("size", x.layout.sizes[2:])
    b.number("x_image", x.layout.strides[0])
    b.numbers("x_space", x.layout.strides[2:])
    b.number("roi", rois.layout.strides[0])
    b.number("roi_number", rois.layout.strides[1])
    for name, value in numbers.items():
        b.code(f"KN_DEVICE static Acc {name}() {{ return {literal(value, computed)}; }}")
    order = in_order(step.writes[0].layout.strides)
    special = {0: 0, 2: 1, 3: 2}
    add_places(b, step.shape, order, special, (0, x.layout.strides[1], 0, 0))
    low.end(b, step, order)
    return b.launch(blocks_for(size_prod(step.shape), low.threads))
