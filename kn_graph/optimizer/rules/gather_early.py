"""Rows of a table are taken before what is computed of its elements.

gather(f(x, y), i) = f(gather(x, i), gather(y, i)) for elementwise f. A table of words that is
stored as integers is so converted row by row as it is read, and not in full in every run. That is
done where the table is made of constants alone (too large to be computed beforehand, or it would
have been), and nothing else reads it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from kn_graph.op import Op
from kn_graph.ops.elementwise import Binary, Cast, Compare, Select, Unary
from kn_graph.ops.gather import Gather
from kn_graph.ops.layout import Broadcast, View
from kn_graph.ops.source import Constant
from kn_graph.optimizer.editor import Editor
from kn_graph.optimizer.rule import Rule
from kn_graph.optimizer.settings import OptimizerSettings
from kn_graph.types import Shape
from kn_graph.value import Node, Value

__all__ = ["RULES", "GatherEarly"]

ELEMENTWISE = (Unary, Binary, Compare, Select, Cast)

MAX_NODES = 64
"""Of a computation that is looked through."""


@dataclass(frozen=True)
class Found:
    """What computes the table, and how it is read."""

    table: Node
    op: Gather
    indices: Value


class GatherEarly(Rule[Found]):
    """See the module."""

    name = "gather_early"
    roots: ClassVar[tuple[type[Op], ...]] = (Gather,)
    setting = "slice_early"

    def match(self, edit: Editor, node: Node, settings: OptimizerSettings) -> Found | None:
        """Look at what computes the table."""
        assert isinstance(node.op, Gather)
        table, indices = edit.operands(node)
        alone = edit.uses(table) == 1 and not edit.is_output(table)
        if not alone or not isinstance(table.node.op, ELEMENTWISE) or not _constant(edit, table):
            return None
        return Found(table.node, node.op, indices)

    def rewrite(self, edit: Editor, found: Found) -> Value:
        """Take rows of the operands."""
        rows = [_rows(edit, v, found) for v in edit.operands(found.table)]
        return edit.graph.push(found.table.op, *rows)


def _constant(edit: Editor, v: Value) -> bool:
    """Return whether a value is computed of constants alone, element by element."""
    stack, seen = [v.node], set[Node]()
    while stack:
        node = stack.pop()
        if isinstance(node.op, Constant) or node in seen:
            continue
        if not isinstance(node.op, (*ELEMENTWISE, View, Broadcast)) or len(seen) == MAX_NODES:
            return False
        seen.add(node)
        stack += [o.node for o in edit.operands(node)]
    return True


def _rows(edit: Editor, v: Value, found: Found) -> Value:
    """Take rows of an operand, and spare what a broadcast repeats anyway."""
    g, axis, taken = edit.graph, found.op.axis, found.indices.shape
    if not isinstance(v.node.op, Broadcast):
        return g.push(found.op, v, found.indices)
    (inner,) = edit.operands(v.node)
    if inner.shape[axis] == 1:
        rows = g.push(View(_with(inner.shape, axis, (1,) * len(taken))), inner)
    else:
        rows = g.push(found.op, inner, found.indices)
    return g.push(Broadcast(_with(v.shape, axis, taken)), rows)


def _with(shape: Shape, axis: int, sizes: Shape) -> Shape:
    """Return a shape with other axes in place of one."""
    return (*shape[:axis], *sizes, *shape[axis + 1 :])


RULES = (GatherEarly(),)
