"""Deformable convolutions as samples at places, and a product with the weights.

The samples of a window lie side by side, channel after channel, where a product reads them; so does
a result whose channels lie side by side.
"""

from __future__ import annotations

from collections.abc import Sequence

from kn_graph.dim import Size, exact_div, size_prod
from kn_graph.dtype import DType
from kn_graph.graph import Graph
from kn_graph.ops.deform import DeformConv
from kn_graph.types import Shape
from kn_graph.value import Node, Value

__all__ = ["deform_conv", "is_divided"]

MOST_AXES = 3
"""Along which images are sampled."""


def is_divided(node: Node) -> bool:
    """Return whether groups divide the channels for sure, and images have few axes."""
    op, (x, w, *_) = node.op, node.operands
    assert isinstance(op, DeformConv)
    parts = ((x.shape[1], op.offset_groups), (x.shape[1], op.groups), (w.shape[0], op.groups))
    whole = all(isinstance(n, int) for n in w.shape[2:])
    return whole and x.rank - 2 <= MOST_AXES and all(exact_div(*p) is not None for p in parts)


def deform_conv(g: Graph, node: Node, operands: Sequence[Value]) -> Sequence[Value]:
    """Sample, weigh and multiply."""
    op, (x, w, offset, *mask) = node.op, operands
    assert isinstance(op, DeformConv)
    outputs = exact_div(w.shape[0], op.groups)
    assert outputs is not None
    wide = DType.FLOAT64 if x.dtype is DType.FLOAT64 else DType.FLOAT32
    x, w, offset, *mask = (g.cast(v, wide) for v in (x, w, offset, *mask))
    columns = _columns(g, op, x, offset, mask, w.shape[2:])  # [batch, windows, taps, channels]
    batch, windows, taps, _ = columns.shape
    inside, rows = w.shape[1], size_prod([batch, windows])
    columns = g.view(columns, (rows, taps, op.groups, inside))
    columns = g.view(g.permute(columns, (2, 0, 1, 3)), (op.groups, rows, taps * inside))
    weights = g.permute(g.view(w, (op.groups, outputs, inside, taps)), (0, 3, 2, 1))
    product = g.matmul(columns, g.view(weights, (op.groups, taps * inside, outputs)))
    product = g.permute(g.view(product, (op.groups, batch, windows, outputs)), (1, 0, 3, 2))
    return [g.view(g.cast(product, node.results[0].dtype), node.results[0].shape)]


def _columns(
    g: Graph, op: DeformConv, x: Value, offset: Value, mask: Sequence[Value], kernel: Shape
) -> Value:
    """Return the samples of all windows: [batch, windows, taps, channels]."""
    batch, channels = x.shape[:2]
    windows, taps, parts = offset.shape[2:], size_prod(kernel), op.offset_groups
    each = exact_div(channels, parts)
    assert each is not None
    images = g.view(x, (batch * parts, each, *x.shape[2:]))
    sampled = g.grid_sample(images, _grid(g, op, offset, kernel), in_elements=True)
    columns = g.view(sampled, (batch, parts, each, size_prod(windows), taps))
    for factors in mask:
        by_tap = g.view(factors, (batch, parts, 1, taps, size_prod(windows)))
        columns = g.mul(columns, g.permute(by_tap, (0, 1, 2, 4, 3)))
    columns = g.permute(columns, (0, 3, 4, 1, 2))
    return g.view(columns, (batch, size_prod(windows), taps, channels))


def _grid(g: Graph, op: DeformConv, offset: Value, kernel: Shape) -> Value:
    """Return the place of each sample, its last axis first: [images, *windows * taps, axes]."""
    rank, taps, windows = len(kernel), size_prod(kernel), offset.shape[2:]
    images = offset.shape[0] * op.offset_groups
    shifts = g.view(offset, (images, taps, rank, *windows))
    places = []
    for axis in reversed(range(rank)):
        tap = g.view(g.iota(kernel[axis]), _only(axis, rank, kernel[axis]))
        tap = g.view(g.broadcast(tap, kernel), (taps, *(1,) * rank))
        window = g.view(g.iota(windows[axis]), _only(axis, rank, windows[axis]))
        start = window * op.strides[axis] - g.size_tensor(op.pads[axis][0])
        at = g.cast(start + tap * op.dilations[axis], offset.dtype)
        at = g.add(at, g.view(g.slice(shifts, 2, axis, 1), (images, taps, *windows)))
        places.append(g.permute(at, (0, *range(2, rank + 2), 1)))
    grid = g.concat([g.unsqueeze(p, [p.rank]) for p in places], rank + 2)
    # the taps are a part of the last axis: an image has as many as its samples
    return g.view(grid, (images, *windows[:-1], windows[-1] * taps, rank))


def _only(axis: int, rank: int, size: Size) -> Shape:
    return tuple(size if a == axis else 1 for a in range(rank))
