"""Pooling of regions of images: see `native/kn_roi.h`."""

from __future__ import annotations

from kn_cpu.axes import KernelCall, float_bits, units_for
from kn_graph.dim import Size, size_prod
from kn_graph.ops.roi import MaxRoiPool, RoiAlign
from kn_plan.layout import StridedLayout

__all__ = ["max_roi_pool_call", "roi_align_call"]

SAMPLES = 2
"""Of a bin along each axis, where regions say how many: a guess of the work."""

OVERHEAD = 16
"""What a sample costs beside its sums, in products."""


def roi_align_call(
    op: RoiAlign, out: StridedLayout, x: StridedLayout, rois: StridedLayout, images: StridedLayout
) -> KernelCall:
    """Pool samples, p = {out, x, rois, images, status}; the channels of x lie side by side."""
    rules = (op.samples, int(op.reduction == "max"), int(op.half_pixel), float_bits(op.scale))
    samples = (op.samples or SAMPLES) ** 2
    work = 4 * samples * (x.sizes[1] + OVERHEAD)
    return _call("roi_align_f32", op.size, rules, work, (out, x, rois), images.strides[0])


def max_roi_pool_call(
    op: MaxRoiPool, out: StridedLayout, x: StridedLayout, rois: StridedLayout
) -> KernelCall:
    """Take maxima, p = {out, x, rois, nothing, status}; likewise."""
    rules = (0, 0, 0, float_bits(op.scale))
    return _call("max_roi_pool_f32", op.size, rules, SAMPLES**2 * x.sizes[1], (out, x, rois), 0)


def _call(
    kernel: str,
    bins: tuple[int, int],
    rules: tuple[int, ...],
    work: Size,
    layouts: tuple[StridedLayout, StridedLayout, StridedLayout],
    image_region: Size,
) -> KernelCall:
    """Return the call; `work` is that of a bin."""
    out, x, rois = layouts
    regions = out.sizes[0]
    units = units_for(size_prod([regions, *bins]) * work)
    images, channels, *spatial = x.sizes
    numbers: tuple[Size, ...] = (
        *(units, *bins, *rules, images, channels, *spatial, regions),
        *(*out.strides, x.strides[0], *x.strides[2:], *rois.strides, image_region),
    )
    return KernelCall(kernel, numbers, units, scratch=4 * channels + 64)
