"""Pools over many axes, as one over the last of them and one over those in front."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kn_graph.dtype import DType
from kn_graph.graph import Graph
from kn_graph.ops.pool import Pool
from kn_graph.value import Node, Value

__all__ = ["has_many_axes", "pool"]

MOST_AXES = 3
"""Along which kernels have windows."""

NARROW = (DType.FLOAT16, DType.BFLOAT16)


def has_many_axes(node: Node) -> bool:
    """Return whether there are more than kernels have, and nobody asks for places."""
    assert isinstance(node.op, Pool)
    return len(node.op.kernel) > MOST_AXES and node.op.indices == "none"


def pool(g: Graph, node: Node, operands: Sequence[Value]) -> Sequence[Value]:
    """Pool the last axes, then the others.

    A mean divides by a product over the axes, so it is a mean of means.
    """
    op, (x,) = node.op, operands
    assert isinstance(op, Pool)
    count = len(op.kernel)
    out = g.cast(x, DType.FLOAT32) if x.dtype in NARROW else x
    lead = x.rank - count
    for end in range(count, 0, -MOST_AXES):
        start = max(0, end - MOST_AXES)
        # the axes that are pooled now come last
        order = [a for a in range(x.rank) if not lead + start <= a < lead + end]
        order += range(lead + start, lead + end)
        moved = g.push(_over(op, slice(start, end)), g.permute(out, order))
        out = g.permute(moved, [order.index(a) for a in range(x.rank)])
    return [g.cast(out, x.dtype)]


def _over(op: Pool, axes: slice) -> Pool:
    """Return the pool over some of its axes."""
    return replace(
        op,
        kernel=op.kernel[axes],
        strides=op.strides[axes],
        dilations=op.dilations[axes],
        pads=op.pads[axes],
    )
