"""Sums of overlapping windows: along each axis, every place gathers what lies on it."""

from __future__ import annotations

from collections.abc import Sequence

from kn_graph.dim import Size, size_prod
from kn_graph.dim_facts import surely_ge
from kn_graph.dtype import DType, Kind
from kn_graph.graph import Graph
from kn_graph.ops.fold import Col2Im
from kn_graph.value import Node, Value
from kn_graph.window import window_count

__all__ = ["col2im", "has_windows"]

NARROW = (DType.FLOAT16, DType.BFLOAT16)


def has_windows(node: Node) -> bool:
    """Return whether there are windows for sure, of numbers."""
    assert isinstance(node.op, Col2Im)
    complex_ = node.operands[0].dtype.kind is Kind.COMPLEX
    return not complex_ and all(surely_ge(c, 1) for c in _counts(node.op))


def _counts(op: Col2Im) -> list[Size]:
    axes = zip(op.image, op.kernel, op.strides, op.dilations, op.pads, strict=True)
    return [window_count(*axis, ceil=False) for axis in axes]


def col2im(g: Graph, node: Node, operands: Sequence[Value]) -> Sequence[Value]:
    """Gather and add along one axis after another."""
    op, (x,) = node.op, operands
    assert isinstance(op, Col2Im)
    counts = _counts(op)
    shape = node.results[0].shape
    lead: Size = size_prod(shape[:2])
    rows = g.cast(x, DType.FLOAT32) if x.dtype in NARROW else x
    rows = g.view(rows, (lead, *op.kernel, *counts))
    for axis in reversed(range(len(op.image))):
        rows = _along(g, op, rows, axis, counts[axis])
    return [g.view(g.cast(rows, x.dtype), shape)]


def _along(g: Graph, op: Col2Im, x: Value, axis: int, count: Size) -> Value:
    """Add windows up along the last axis that has any.

    Args:
        g: the graph.
        op: which windows.
        x: [rows, kernel up to `axis`, windows up to `axis`, image behind it].
        axis: along which.
        count: how many windows it has.

    Returns:
        [rows, kernel in front of `axis`, windows in front of it, image from it on].
    """
    taps, image = op.kernel[axis], op.image[axis]
    at = axis + 1  # the axis of the elements of a window
    order = [a for a in range(x.rank) if a != at]
    order.insert(2 * axis + 1, at)
    moved = g.permute(x, order)
    lead, behind = moved.shape[: 2 * axis + 1], moved.shape[2 * axis + 3 :]
    each = g.view(moved, (*lead, taps * count, *behind))
    index, found = _places(g, op, axis, count)
    picked = g.gather(each, index, 2 * axis + 1)  # [.., kernel, image, ..]
    held = g.view(found, (taps, image, *(1,) * len(behind)))
    total = g.select(held, picked, g.scalar(0, x.dtype))
    return g.reduce("sum", total, [2 * axis + 1])


def _places(g: Graph, op: Col2Im, axis: int, count: Size) -> tuple[Value, Value]:
    """Return which element of which window lies on each place, and whether there is one.

    Both are [kernel, image]; elements are numbered t*count + window.
    """
    step, apart = (g.scalar(n, DType.INT64) for n in (op.strides[axis], op.dilations[axis]))
    zero = g.scalar(0, DType.INT64)
    tap = g.unsqueeze(g.iota(op.kernel[axis]), [1])
    place = g.iota(op.image[axis]) + g.size_tensor(op.pads[axis][0]) - tap * apart
    window = g.maximum(g.div(place, step), zero)
    last = g.size_tensor(count - 1)
    inside = g.compare("eq", window * step, place)
    inside = g.binary("logical_and", inside, g.compare("le", window, last))
    return tap * g.size_tensor(count) + g.minimum(window, last), inside
