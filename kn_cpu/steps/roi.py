"""Pooling of regions of images."""

from __future__ import annotations

from kn_cpu.calls import NativeCall
from kn_cpu.lowering import Calls, Lowering
from kn_cpu.roi import max_roi_pool_call, roi_align_call
from kn_cpu.steps.spacing import channels_last
from kn_graph.dtype import DType
from kn_graph.ops.roi import MaxRoiPool, RoiAlign
from kn_plan.calls import UnsupportedError
from kn_plan.plan import Operand, Step
from kn_plan.statuses import region_status

__all__ = ["max_roi_pool", "roi_align"]


def roi_align(low: Lowering, step: Step, op: RoiAlign) -> Calls:
    """Pool samples."""
    (x, rois, images), (out,) = step.reads, step.writes
    if low.dtype(x) is not DType.FLOAT32 or low.dtype(images) is not DType.INT64:
        raise UnsupportedError("its kernel is for float32, and int64 numbers of images")
    before, x = _channels_last(low, x)
    call = roi_align_call(op, out.layout, x.layout, rois.layout, images.layout)
    return [
        *before,
        NativeCall("roi", call, (out, x, rois, images, region_status(x.layout.sizes[0]))),
    ]


def max_roi_pool(low: Lowering, step: Step, op: MaxRoiPool) -> Calls:
    """Take maxima."""
    low.only_float32(step)
    (x, rois), (out,) = step.reads, step.writes
    before, x = _channels_last(low, x)
    call = max_roi_pool_call(op, out.layout, x.layout, rois.layout)
    return [
        *before,
        NativeCall("roi", call, (out, x, rois, None, region_status(x.layout.sizes[0]))),
    ]


def _channels_last(low: Lowering, x: Operand) -> tuple[Calls, Operand]:
    """Return images whose channels lie side by side: each element is read by several samples."""
    if x.layout.strides[1] == 1:
        return [], x
    made = channels_last(low, x)
    return [low.copy(made, x)], made
