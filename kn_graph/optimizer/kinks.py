"""Selections that compare a value with a number, and halves of values."""

from __future__ import annotations

from dataclasses import dataclass

from kn_graph.ops.elementwise import Compare
from kn_graph.optimizer.editor import Editor
from kn_graph.optimizer.pattern import uniform_number
from kn_graph.optimizer.polynomial import FLOATS, function, polynomial
from kn_graph.value import Node, Value

__all__ = ["Kink", "kink_at", "negative_part"]


@dataclass(frozen=True)
class Kink:
    """A selection by comparing x with a number.

    Attributes:
        x: what is compared.
        at: the number.
        above: the result where x is larger.
        below: the result where x is smaller.
        nan_above: whether a NaN takes what is above, else what is below.
        at_above: whether x equal to the number does.
    """

    x: Value
    at: float
    above: Value
    below: Value
    nan_above: bool
    at_above: bool


_MIRRORED = {"gt": "lt", "lt": "gt", "ge": "le", "le": "ge"}


def kink_at(edit: Editor, node: Node) -> Kink | None:
    """Return the selection that a node is, where it compares with a uniform constant."""
    condition, chosen, other = edit.operands(node)
    compare = condition.node.op
    fn = compare.fn if isinstance(compare, Compare) else ""
    if fn not in _MIRRORED or chosen.dtype not in FLOATS:
        return None
    x, y = edit.operands(condition.node)
    number = uniform_number(edit, y)
    if number is None:
        x, fn, number = y, _MIRRORED[fn], uniform_number(edit, x)
    if number is None:
        return None
    if fn in ("gt", "ge"):
        return Kink(x, number, chosen, other, nan_above=False, at_above=fn == "ge")
    return Kink(x, number, other, chosen, nan_above=True, at_above=fn == "lt")


def negative_part(edit: Editor, v: Value, x: Value) -> list[Value] | None:
    """Return the values that make relu(-x) or min(x, 0), the last one first."""
    fn = function(v.node.op)
    if fn == "relu":
        (negated,) = edit.operands(v.node)
        found = polynomial(edit, negated, (x,))
        if found is None or found.terms != {(1,): -1.0}:
            return None
        return [v, *(n.results[0] for n in found.nodes)]
    if fn != "min":
        return None
    first, second = edit.operands(v.node)
    right = (first is x and uniform_number(edit, second) == 0) or (
        second is x and uniform_number(edit, first) == 0
    )
    return [v] if right else None
