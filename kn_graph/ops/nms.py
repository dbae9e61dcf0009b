"""Choosing boxes that do not overlap."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kn_graph.dtype import DType
from kn_graph.errors import DTypeError, ShapeError
from kn_graph.op import EvalContext, InferContext, Op
from kn_graph.scalar import widen
from kn_graph.types import TensorType

__all__ = ["NonMaxSuppression"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class NonMaxSuppression(Op):
    """Per image and class, take boxes by descending score, except those that overlap one taken.

    Boxes overlap if intersection / union > `iou`. Those with a score below `score` are left out,
    where that operand is there. Of equal scores the lower box index comes first; a NaN comes last.
    An empty box overlaps nothing.

    Shapes: boxes [batch, n, 4], scores [batch, classes, n], max_boxes int64 [] (a class of an
    image), iou [], optional score [] -> int64 [selected, 3]: (image, class, box), selected a new
    size bound at run time.

    Attributes:
        centered: boxes are (x center, y center, width, height), else two opposite corners
            (y1, x1, y2, x2) in any order.
    """

    centered: bool = False

    def infer(
        self,
        ctx: InferContext,
        boxes: TensorType,
        scores: TensorType,
        max_boxes: TensorType,
        iou: TensorType,
        score: TensorType | None = None,
    ) -> TensorType:
        """Make a size for the count."""
        for t in (boxes, scores, iou, score):
            if t is not None and not t.dtype.is_float:
                raise DTypeError(f"boxes, scores and thresholds are floats, got {t}")
        if not max_boxes.dtype.is_int:
            raise DTypeError(f"the number of boxes is an integer, got {max_boxes}")
        if boxes.rank != 3 or scores.rank != 3:
            raise ShapeError(f"expected [batch, n, 4] and [batch, classes, n]: {boxes}, {scores}")
        if any(t is not None and t.rank for t in (max_boxes, iou, score)):
            raise ShapeError("the number of boxes and the thresholds have rank 0")
        ctx.require_eq(boxes.shape[2], 4, "a box has 4 coordinates")
        ctx.require_eq(boxes.shape[0], scores.shape[0], "boxes and scores are of the same images")
        ctx.require_eq(boxes.shape[1], scores.shape[2], "there is one score a box")
        return TensorType(DType.INT64, (ctx.data_symbol("selected"), 3))

    def eval(self, ctx: EvalContext, boxes: Array, scores: Array, *options: Array) -> Array:
        """Search greedily."""
        max_boxes, iou = int(options[0]), options[1]
        score = options[2] if len(options) > 2 else None
        corners, scores = self._corners(widen(boxes)), widen(scores)
        rows = [
            (image, kind, box)
            for image, kind in np.ndindex(*scores.shape[:2])
            for box in _selected(corners[image], scores[image, kind], max_boxes, iou, score)
        ]
        return np.array(rows, np.int64).reshape(len(rows), 3)

    def _corners(self, boxes: Array) -> Array:
        """Return boxes [batch, n, 4] as (low, low, high, high)."""
        first, second = boxes[..., :2], boxes[..., 2:]
        if self.centered:
            half = second / 2
            first, second = first - half, first + half
        return np.concatenate([np.minimum(first, second), np.maximum(first, second)], -1)


def _selected(
    corners: Array, scores: Array, max_boxes: int, iou: Array, threshold: Array | None
) -> list[int]:
    """Return the boxes of one image and class that are taken, in order."""
    order = np.argsort(-scores, kind="stable")
    if threshold is not None:
        order = order[scores[order] >= threshold]
    taken: list[int] = []
    while order.size and len(taken) < max_boxes:
        best, order = order[0], order[1:]
        taken.append(int(best))
        order = order[~(_overlap(corners[best], corners[order]) > iou)]
    return taken


def _overlap(box: Array, others: Array) -> Array:
    """Return intersection over union of one box with others; 0 where either is empty."""
    low, high = np.maximum(box[:2], others[:, :2]), np.minimum(box[2:], others[:, 2:])
    common = np.prod(np.maximum(high - low, 0), axis=1)
    area = np.prod(box[2:] - box[:2])
    areas = np.prod(others[:, 2:] - others[:, :2], axis=1)
    union = area + areas - common
    with np.errstate(all="ignore"):
        valid = (area > 0) & (areas > 0) & (union > 0)
        return np.asarray(np.where(valid, common / union, np.zeros_like(common)))
