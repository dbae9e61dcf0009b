"""Deformable convolutions as samples at places, and a product with the weights."""

from __future__ import annotations

from collections.abc import Sequence

from kn_graph.dim import Size, exact_div, size_prod
from kn_graph.dtype import DType
from kn_graph.graph import Graph
from kn_graph.ops.deform import DeformConv
from kn_graph.types import Shape
from kn_graph.value import Node, Value

__all__ = ["deform_conv"]

MOST_AXES = 3
"""Along which images are sampled."""


def deform_conv(g: Graph, node: Node, operands: Sequence[Value]) -> Sequence[Value] | None:
    """Sample, weigh and multiply; None for sizes that no number of channels divides."""
    op, (x, w, offset, *mask) = node.op, operands
    assert isinstance(op, DeformConv)
    kernel, shape = w.shape[2:], node.results[0].shape
    each = exact_div(x.shape[1], op.offset_groups)
    outputs = exact_div(w.shape[0], op.groups)
    whole = all(isinstance(n, int) for n in kernel)
    if each is None or outputs is None or not whole or len(kernel) > MOST_AXES:
        return None
    batch, windows, taps = x.shape[0], shape[2:], size_prod(kernel)
    wide = DType.FLOAT64 if x.dtype is DType.FLOAT64 else DType.FLOAT32
    x, w, offset, *mask = (g.cast(v, wide) for v in (x, w, offset, *mask))
    images = g.view(x, (batch * op.offset_groups, each, *x.shape[2:]))
    grid = _grid(g, op, offset, kernel, windows)
    columns = g.grid_sample(images, grid, in_elements=True)  # [images, each, taps, *windows]
    if mask:
        weights = g.view(mask[0], (batch * op.offset_groups, 1, taps, size_prod(windows)))
        columns = g.mul(g.view(columns, (*columns.shape[:2], taps, size_prod(windows))), weights)
    depth = w.shape[1] * taps
    columns = g.view(columns, (batch, op.groups, depth, size_prod(windows)))
    weights = g.view(w, (1, op.groups, outputs, depth))
    product = g.matmul(weights, columns)
    return [g.view(g.cast(product, node.results[0].dtype), shape)]


def _grid(g: Graph, op: DeformConv, offset: Value, kernel: Shape, windows: Shape) -> Value:
    """Return the place of each sample, its last axis first: [images, taps, *windows, axes]."""
    rank, taps = len(kernel), size_prod(kernel)
    images = offset.shape[0] * op.offset_groups
    shifts = g.view(offset, (images, taps, rank, *windows))
    # all axes of the samples but the first of the windows become one, as an image has as many
    places = []
    for axis in reversed(range(rank)):
        tap = g.view(g.iota(kernel[axis]), _only(axis, rank, kernel[axis]))
        tap = g.view(g.broadcast(tap, kernel), (taps, *(1,) * rank))
        window = g.view(g.iota(windows[axis]), _only(axis, rank, windows[axis]))
        start = window * op.strides[axis] - g.size_tensor(op.pads[axis][0])
        at = g.cast(start + tap * op.dilations[axis], offset.dtype)
        places.append(g.add(at, g.view(g.slice(shifts, 2, axis, 1), (images, taps, *windows))))
    grid = g.concat([g.unsqueeze(p, [p.rank]) for p in places], rank + 2)
    return g.view(grid, (images, taps * windows[0], *windows[1:], rank))


def _only(axis: int, rank: int, size: Size) -> Shape:
    return tuple(size if a == axis else 1 for a in range(rank))
