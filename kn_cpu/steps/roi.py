"""Pooling of regions of images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kn_cpu.calls import NativeCall, Status, UnsupportedError
from kn_cpu.lowering import Calls, Lowering
from kn_cpu.roi import max_roi_pool_call, roi_align_call
from kn_cpu.steps.spacing import channels_last
from kn_graph.dim import Symbol, evaluate
from kn_graph.dtype import DType
from kn_graph.errors import KnError
from kn_graph.ops.roi import MaxRoiPool, RoiAlign, region_error
from kn_plan.plan import Operand, Step

__all__ = ["max_roi_pool", "roi_align"]


def roi_align(low: Lowering, step: Step, op: RoiAlign) -> Calls:
    """Pool samples."""
    (x, rois, images), (out,) = step.reads, step.writes
    if low.dtype(x) is not DType.FLOAT32 or low.dtype(images) is not DType.INT64:
        raise UnsupportedError("its kernel is for float32, and int64 numbers of images")
    before, x = _channels_last(low, x)
    call = roi_align_call(op, out.layout, x.layout, rois.layout, images.layout)
    return [*before, NativeCall("roi", call, (out, x, rois, images, _status(step)))]


def max_roi_pool(low: Lowering, step: Step, op: MaxRoiPool) -> Calls:
    """Take maxima."""
    low.only_float32(step)
    (x, rois), (out,) = step.reads, step.writes
    before, x = _channels_last(low, x)
    call = max_roi_pool_call(op, out.layout, x.layout, rois.layout)
    return [*before, NativeCall("roi", call, (out, x, rois, None, _status(step)))]


def _channels_last(low: Lowering, x: Operand) -> tuple[Calls, Operand]:
    """Return images whose channels lie side by side: each element is read by several samples."""
    if x.layout.strides[1] == 1:
        return [], x
    made = channels_last(low, x)
    return [low.copy(made, x)], made


def _status(step: Step) -> Status:
    """Return what tells of a region without an image."""

    def error(words: Sequence[int], env: Mapping[Symbol, int]) -> KnError | None:
        found = region_error(words, evaluate(step.reads[0].layout.sizes[0], env))
        if found is not None:
            found.add_context(f"node {step.label} ({step.kind})")
        return found

    return Status(error)
