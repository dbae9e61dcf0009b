"""Reductions of one element, of reductions, and of permuted tensors.

The sum, mean, product, maximum or minimum along an axis of size 1 is a view. A maximum of maxima is
one maximum, and so are minima, truths, and sums and products of integers; sums of floats would
round differently. A reduction of a permuted tensor is one along other axes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from kn_graph.op import Op
from kn_graph.ops.layout import Permute, View
from kn_graph.ops.reduce import Reduce
from kn_graph.optimizer.editor import Editor
from kn_graph.optimizer.rule import Rule
from kn_graph.optimizer.settings import OptimizerSettings
from kn_graph.value import Node, Value

__all__ = ["RULES", "ReduceOfPermute", "ReduceOfReduce", "ReduceUnits"]

EXACT = frozenset({"max", "min", "any", "all"})
INTEGER = frozenset({"sum", "prod"})


@dataclass(frozen=True)
class Reduced:
    """What is reduced, and how."""

    x: Value
    ops: tuple[Op, ...]


class ReduceRule(Rule[Reduced]):
    """A rule that finds a simpler reduction."""

    roots: ClassVar[tuple[type[Op], ...]] = (Reduce,)

    def rewrite(self, edit: Editor, found: Reduced) -> Value:
        """Apply the operations."""
        x = found.x
        for op in found.ops:
            x = edit.graph.push(op, x)
        return x


class ReduceUnits(ReduceRule):
    """Axes of size 1 are dropped, not reduced."""

    name = "reduce_units"

    def match(self, edit: Editor, node: Node, settings: OptimizerSettings) -> Reduced | None:
        """Find axes of size 1 among those that are reduced."""
        op, (x,) = node.op, edit.operands(node)
        assert isinstance(op, Reduce)
        units = [a for a in op.axes if x.shape[a] == 1]
        if not units:
            return None
        shape = tuple(s for a, s in enumerate(x.shape) if a not in units)
        rest = tuple(a - sum(u < a for u in units) for a in op.axes if a not in units)
        return Reduced(x, (View(shape), replace(op, axes=rest)))


class ReduceOfReduce(ReduceRule):
    """max(max(x, a), b) = max(x, a and b)."""

    name = "reduce_of_reduce"

    def match(self, edit: Editor, node: Node, settings: OptimizerSettings) -> Reduced | None:
        """Find the same reduction under it, which is only read here."""
        op, (v,) = node.op, edit.operands(node)
        inner = v.node.op
        assert isinstance(op, Reduce)
        if not isinstance(inner, Reduce) or inner.fn != op.fn or edit.uses(v) > 1:
            return None
        if op.fn not in EXACT and not (op.fn in INTEGER and v.dtype.is_int):
            return None
        (x,) = edit.operands(v.node)
        kept = [a for a in range(x.rank) if a not in inner.axes]
        axes = tuple(sorted((*inner.axes, *(kept[a] for a in op.axes))))
        return Reduced(x, (replace(op, axes=axes),))


class ReduceOfPermute(ReduceRule):
    """Where the axes that stay are in order, the permutation does not matter."""

    name = "reduce_of_permute"

    def match(self, edit: Editor, node: Node, settings: OptimizerSettings) -> Reduced | None:
        """Find a permutation of which only the reduced axes are out of order."""
        op, (v,) = node.op, edit.operands(node)
        permute = v.node.op
        assert isinstance(op, Reduce)
        if not isinstance(permute, Permute):
            return None
        kept = [a for i, a in enumerate(permute.axes) if i not in op.axes]
        if kept != sorted(kept):
            return None
        axes = tuple(sorted(permute.axes[a] for a in op.axes))
        return Reduced(edit.operands(v.node)[0], (replace(op, axes=axes),))


RULES = (ReduceUnits(), ReduceOfReduce(), ReduceOfPermute())
