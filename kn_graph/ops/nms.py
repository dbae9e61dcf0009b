"""Choosing boxes that do not overlap, and the part of it that goes from box to box."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kn_graph.dtype import DType
from kn_graph.errors import DTypeError, ShapeError
from kn_graph.op import EvalContext, InferContext, Op
from kn_graph.scalar import widen
from kn_graph.types import TensorType

__all__ = ["KeptBoxes", "NonMaxSuppression"]

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


@dataclass(frozen=True)
class KeptBoxes(Op):
    """Which of ordered boxes are kept: those that overlap none that is kept before them.

    Boxes overlap as in `NonMaxSuppression`, which becomes sorting and this where kernels run it.
    Of each row of boxes at most `limit` are kept, and no box that is no candidate.

    Shapes: corners float [batch, n, 4] as (low, low, high, high), order int64 [batch, classes, n]
    of indices of boxes, candidates bool and in that order [batch, classes, n], limit int64 [],
    iou float [] -> bool [batch, classes, n], in that order.
    """

    internal = True

    def infer(
        self,
        ctx: InferContext,
        corners: TensorType,
        order: TensorType,
        candidates: TensorType,
        limit: TensorType,
        iou: TensorType,
    ) -> TensorType:
        """Check the types; the shape is that of the order."""
        types = (order.dtype, candidates.dtype, limit.dtype)
        if types != (DType.INT64, DType.BOOL, DType.INT64) or iou.dtype is not corners.dtype:
            raise DTypeError(f"expected int64, bool, int64 and {corners.dtype}: {types}, {iou}")
        ranks = tuple(t.rank for t in (corners, order, candidates, limit, iou))
        if ranks != (3, 3, 3, 0, 0):
            raise ShapeError(f"expected ranks 3, 3, 3, 0, 0, got {ranks}")
        sizes = zip((corners.shape[0], *order.shape), (order.shape[0], *candidates.shape),
                    strict=True)  # fmt: skip
        for a, b in (*sizes, (corners.shape[1], order.shape[2]), (corners.shape[2], 4)):
            ctx.require_eq(a, b, "boxes, their order and the candidates")
        return TensorType(DType.BOOL, order.shape)

    def eval(
        self,
        ctx: EvalContext,
        corners: Array,
        order: Array,
        candidates: Array,
        limit: Array,
        iou: Array,
    ) -> Array:
        """Search greedily."""
        kept = np.zeros_like(candidates)
        for image, kind in np.ndindex(*order.shape[:2]):
            (places,) = np.nonzero(candidates[image, kind])
            boxes = corners[image][order[image, kind]]
            kept[image, kind, _without_overlap(boxes, places, int(limit), iou)] = True
        return kept


def _selected(
    corners: Array, scores: Array, max_boxes: int, iou: Array, threshold: Array | None
) -> list[int]:
    """Return the boxes of one image and class that are taken, in order."""
    order = np.argsort(-scores, kind="stable")
    if threshold is not None:
        order = order[scores[order] >= threshold]
    return _without_overlap(corners, order, max_boxes, iou)


def _without_overlap(corners: Array, order: Array, most: int, iou: Array) -> list[int]:
    """Return which boxes are taken of some in an order."""
    taken: list[int] = []
    while order.size and len(taken) < most:
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
