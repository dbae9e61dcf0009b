"""Choosing boxes that do not overlap: see `native/kn_nms.h`."""

from __future__ import annotations

from kn_cpu.axes import KernelCall
from kn_cpu.calls import NativeCall
from kn_cpu.lowering import Calls, Lowering
from kn_graph.dim import size_max
from kn_graph.dtype import DType
from kn_graph.ops.nms import KeptBoxes
from kn_plan.calls import UnsupportedError
from kn_plan.plan import Step

__all__ = ["kept_boxes"]


def kept_boxes(low: Lowering, step: Step, op: KeptBoxes) -> Calls:
    """Go from box to box, rows of scores at the same time."""
    corners, order, candidates, limit, iou = step.reads
    (out,) = step.writes
    if low.dtype(corners) is not DType.FLOAT32:
        raise UnsupportedError("its kernel is for float32")
    images, classes, boxes = order.layout.sizes
    units = size_max(1, images * classes)
    operands = (out, corners, order, candidates)
    strides = [n for o in operands for n in o.layout.strides]
    numbers = (units, images, classes, boxes, *strides)
    call = KernelCall("kept_boxes_f32", numbers, units, scratch=20 * boxes + 64)
    return [NativeCall("nms", call, (*operands, limit, iou))]
