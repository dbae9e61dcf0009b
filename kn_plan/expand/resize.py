"""Resizes along many axes, as one along some of them after another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kn_graph.dtype import DType
from kn_graph.graph import Graph
from kn_graph.ops.resize import Resize
from kn_graph.value import Node, Value
from kn_plan.resampling import has_tables

__all__ = ["resize", "resizes_many_axes"]

MOST_AXES = 3
"""Along which kernels resample."""

NARROW = (DType.FLOAT16, DType.BFLOAT16)


def resizes_many_axes(node: Node) -> bool:
    """Return whether there are more than kernels have, and no sum is rounded in between."""
    op = node.op
    assert isinstance(op, Resize)
    exact = op.mode == "nearest" or node.operands[0].dtype.is_float
    return len(op.axes) > MOST_AXES and has_tables(op) and exact


def resize(g: Graph, node: Node, operands: Sequence[Value]) -> Sequence[Value]:
    """Resize a few axes at a time."""
    op, x = node.op, operands[0]
    assert isinstance(op, Resize)
    weighted = op.mode != "nearest"
    out = g.cast(x, DType.FLOAT32) if weighted and x.dtype in NARROW else x
    for start in range(0, len(op.axes), MOST_AXES):
        some = slice(start, start + MOST_AXES)
        scales = op.scales[some] if isinstance(op.scales, tuple) else op.scales
        out = g.push(replace(op, axes=op.axes[some], sizes=op.sizes[some], scales=scales), out)
    return [g.cast(out, x.dtype)]
