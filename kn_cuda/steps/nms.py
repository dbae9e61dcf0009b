"""Choosing boxes that do not overlap: see `kernels/nms.cu`."""

from __future__ import annotations

from kn_cuda.axes import MOST_BLOCKS
from kn_cuda.builder import KernelBuilder
from kn_cuda.lowering import Calls, Lowering
from kn_cuda.types import compute_type
from kn_graph.dim import size_min, size_prod
from kn_graph.dtype import DType
from kn_graph.ops.nms import KeptBoxes
from kn_plan.calls import UnsupportedError
from kn_plan.plan import Step

__all__ = ["kept_boxes"]


def kept_boxes(low: Lowering, step: Step, op: KeptBoxes) -> Calls:
    """Go from box to box, a block for each row of scores."""
    corners, order, candidates, _, _ = step.reads
    dtype = low.dtype(corners)
    if dtype not in (DType.FLOAT32, DType.FLOAT64):
        raise UnsupportedError(f"there is no kernel for boxes of {dtype}")
    b = KernelBuilder("nms", "nms_kept", low.threads)
    b.type("Acc", compute_type(dtype))
    b.writes("kept", *low.typed(step.writes[0]))
    for name, operand in zip(("corners", "order", "candidates", "limit", "iou"), step.reads,
                             strict=True):  # fmt: skip
        b.reads(name, *low.typed(operand))
    rows = size_prod(step.shape[:2])
    b.number("rows", rows)
    b.number("classes", step.shape[1])
    b.number("boxes", step.shape[2])
    named = {"kept": step.writes[0], "corner": corners, "order": order, "candidate": candidates}
    for name, operand in named.items():
        b.numbers(f"{name}_strides", operand.layout.strides)
    # no boxes, no launch
    return [b.launch(size_min(rows * step.shape[2], size_min(rows, MOST_BLOCKS)))]
