"""Clips as exporters write them: a maximum and a minimum with constants, in either order."""

from __future__ import annotations

import math
from dataclasses import dataclass

from kn_graph.optimizer.editor import Editor
from kn_graph.optimizer.pattern import uniform_number
from kn_graph.optimizer.polynomial import function
from kn_graph.value import Node, Value

__all__ = ["Clamp", "clamp_at"]


@dataclass(frozen=True)
class Clamp:
    """A value cut to low..high, with low <= high; then the order of the two does not matter.

    Attributes:
        x: what is cut.
        low: lower bound, -inf without one.
        high: upper bound, inf without one.
        nodes: the minimum and the maximum, the last one first.
    """

    x: Value
    low: float
    high: float
    nodes: tuple[Node, ...]


def clamp_at(edit: Editor, v: Value) -> Clamp | None:
    """Return the clip that makes a value: one or two of relu, max and min with a constant."""
    low, high = -math.inf, math.inf
    nodes: list[Node] = []
    while len(nodes) < 2:
        step = _bound(edit, v)
        if step is None:
            break
        fn, number, x = step
        if fn == "max" and low == -math.inf:
            low = number
        elif fn == "min" and high == math.inf:
            high = number
        else:
            break
        nodes.append(v.node)
        v = x
    return Clamp(v, low, high, tuple(nodes)) if nodes and low <= high else None


def _bound(edit: Editor, v: Value) -> tuple[str, float, Value] | None:
    """Return whether a value is the larger or smaller of a number and another value."""
    fn = function(v.node.op)
    if fn == "relu":
        return "max", 0.0, edit.operands(v.node)[0]
    if fn not in ("max", "min"):
        return None
    x, y = edit.operands(v.node)
    for constant, other in ((y, x), (x, y)):
        number = uniform_number(edit, constant)
        if number is not None:
            return fn, number, other
    return None
