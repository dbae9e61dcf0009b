"""Choosing boxes: sort them, go from one to the next, and number those that are kept."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kn_graph.dim import Dim
from kn_graph.dtype import DType
from kn_graph.graph import Graph
from kn_graph.ops.nms import KeptBoxes, NonMaxSuppression
from kn_graph.value import Node, Value
from kn_plan.expand.nonzero import places_of

__all__ = ["non_max_suppression"]


def non_max_suppression(g: Graph, node: Node, operands: Sequence[Value]) -> Sequence[Value]:
    """Sort, suppress and number."""
    op, (boxes, scores, limit, iou, *threshold) = node.op, operands
    assert isinstance(op, NonMaxSuppression)
    types = {v.dtype for v in (boxes, scores, iou, *threshold)}
    wide = DType.FLOAT64 if DType.FLOAT64 in types else DType.FLOAT32
    boxes, scores, iou, *threshold = (g.cast(v, wide) for v in (boxes, scores, iou, *threshold))
    # what is no number, and what is too little, comes last: that is quickly sorted
    wanted = g.compare("ge", scores, threshold[0] if threshold else scores)
    numbers = g.select(wanted, scores, g.scalar(-np.inf, wide))
    _, order = g.top_k(numbers, scores.shape[2], 2)
    candidates = g.broadcast(g.scalar(True, DType.BOOL), scores.shape)
    if threshold:
        candidates = g.gather_elements(wanted, order, 2)
    kept = g.push(
        KeptBoxes(),
        _corners(g, op, boxes),
        order,
        candidates,
        g.cast(limit, DType.INT64),
        iou,
    )
    count = node.results[0].shape[0]
    assert isinstance(count, Dim)
    places = [g.unsqueeze(p, [1]) for p in places_of(g, kept, count)]
    box = g.gather_nd(order, g.concat(places, 1))
    return [g.concat([*places[:2], g.unsqueeze(box, [1])], 1)]


def _corners(g: Graph, op: NonMaxSuppression, boxes: Value) -> Value:
    """Return boxes as (low, low, high, high)."""
    first, second = (g.slice(boxes, 2, start, 2) for start in (0, 2))
    if op.centered:
        half = g.div(second, g.scalar(2, boxes.dtype))
        first, second = g.sub(first, half), g.add(first, half)
    return g.concat([g.minimum(first, second), g.maximum(first, second)], 2)
