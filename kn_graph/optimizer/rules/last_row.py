"""A slice moves in front of what is computed row by row, so that only those rows are computed.

slice(f(x)) = f(slice(x)) for elementwise functions along any axis; for norms and softmaxes along
the other axes; slice(x @ y) = slice(x) @ y along rows, x @ slice(y) along columns, and
slice(x) @ slice(y) along stacked matrices. A decoder whose caller wants the last position only so
multiplies one row by the matrix of its vocabulary. Nothing else may read what is computed in full.

Products of many rows by one matrix are built on a view of the rows, [b, s, k] as [b*s, k]; a slice
moves through both views at once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from kn_graph.op import Op
from kn_graph.ops.elementwise import Binary, Cast, Compare, Select, Unary
from kn_graph.ops.layout import Broadcast, Slice, View
from kn_graph.ops.matmul import MatMul
from kn_graph.ops.norm import Norm, Softmax
from kn_graph.optimizer.editor import Editor
from kn_graph.optimizer.rule import Rule
from kn_graph.optimizer.settings import OptimizerSettings
from kn_graph.types import Shape
from kn_graph.value import Node, Value

__all__ = ["RULES", "SliceEarly"]

ELEMENTWISE = (Unary, Binary, Compare, Select, Cast)


@dataclass(frozen=True)
class Found:
    """A slice behind something that is computed row by row.

    Attributes:
        node: what is computed.
        op: the slice.
        shape: the shape in which `op` slices; other than that of the node where a view of its rows
            is between the two.
    """

    node: Node
    op: Slice
    shape: Shape


class SliceEarly(Rule[Found]):
    """See the module."""

    name = "slice_early"
    roots: ClassVar[tuple[type[Op], ...]] = (Slice,)
    setting = "slice_early"
    looks_far = True

    def match(self, edit: Editor, node: Node, settings: OptimizerSettings) -> Found | None:
        """Look at what is sliced, behind a view of its rows, too."""
        (v,) = edit.operands(node)
        assert isinstance(node.op, Slice)
        shape = v.shape
        if not _only_here(edit, v):
            return None
        if isinstance(v.node.op, View):
            (v,) = edit.operands(v.node)
            if not (_only_here(edit, v) and _is_row_view(v.shape, shape, node.op.axis)):
                return None
        found = Found(v.node, node.op, shape)
        return found if len(v.node.results) == 1 and _moves(edit, found) else None

    def rewrite(self, edit: Editor, found: Found) -> Value:
        """Slice the operands."""
        g, node, op = edit.graph, found.node, found.op
        operands = edit.operands(node)
        if not isinstance(node.op, MatMul):
            parts = [_sliced(edit, v, op, found.shape) for v in operands]
            return g.push(node.op, *parts)
        x, y = operands
        axis, rank = op.axis, len(found.shape)
        if axis == rank - 1:
            return g.push(node.op, x, g.push(replace(op, axis=y.rank - 1), y))
        if found.shape == node.results[0].shape:
            y = y if axis == rank - 2 else g.push(op, y)
            return g.push(node.op, g.push(op, x), y)
        rows = _sliced(edit, x, op, (*found.shape[:-1], x.shape[-1]))
        return g.matmul(rows, y, out_dtype=node.op.out_dtype)


def _only_here(edit: Editor, v: Value) -> bool:
    return edit.uses(v) == 1 and not edit.is_output(v)


def _is_row_view(rows: Shape, shape: Shape, axis: int) -> bool:
    """Return whether a view splits the first axis of a matrix, and a slice cuts those parts."""
    return len(rows) == 2 and len(shape) > 2 and rows[-1] == shape[-1] and axis < len(shape) - 1


def _moves(edit: Editor, found: Found) -> bool:
    op, axis = found.node.op, found.op.axis
    viewed = found.shape != found.node.results[0].shape
    if isinstance(op, (Norm, Softmax)):
        axes = op.axes if isinstance(op, Norm) else (op.axis,)
        return not viewed and axis not in axes
    if isinstance(op, MatMul):
        return True
    return isinstance(op, ELEMENTWISE)


def _sliced(edit: Editor, v: Value, op: Slice, shape: Shape) -> Value:
    """Slice a value, viewed in a shape first, and spare what a broadcast repeats anyway."""
    g = edit.graph
    if isinstance(v.node.op, Broadcast):
        (inner,) = edit.operands(v.node)
        small = (*(1,) * (len(shape) - 1), inner.shape[-1]) if v.shape != shape else inner.shape
        whole = (*shape[: op.axis], op.length, *shape[op.axis + 1 :])
        if v.shape == shape and inner.shape[op.axis] == 1:
            return g.broadcast(inner, whole)
        if v.shape != shape and inner.shape[0] == 1:
            return g.broadcast(g.view(inner, small), whole)
    return g.push(op, _viewed(edit, v, shape))


def _viewed(edit: Editor, v: Value, shape: Shape) -> Value:
    """View a value, or take what it is a view of: another slice of that is then the same node."""
    while isinstance(v.node.op, View) and v.shape != shape:
        (v,) = edit.operands(v.node)
    return edit.graph.view(v, shape)


RULES = (SliceEarly(),)
