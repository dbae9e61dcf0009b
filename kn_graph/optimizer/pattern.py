"""Patterns of nodes: trees that say what to look for, and what the pieces are called.

```python
x = Any("x")
silu = Bin("mul", x, Un("sigmoid", x))
found = match(editor, value, silu)      # Match with found["x"], or None
```

Operands of commutative functions match in either order. A name that appears twice must mean the
same value. `Uniform` looks through views and broadcasts at a constant whose elements are equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any as AnyObject

import numpy as np

from kn_graph.op import Op
from kn_graph.ops.elementwise import Binary, Cast, Compare, Unary
from kn_graph.ops.layout import Broadcast, View
from kn_graph.ops.source import Constant
from kn_graph.optimizer.editor import Editor
from kn_graph.value import Node, Value

__all__ = [
    "Any",
    "Bin",
    "Cmp",
    "Match",
    "OpOf",
    "Optional",
    "Pattern",
    "Spread",
    "Un",
    "Uniform",
    "match",
    "spread",
    "uniform_number",
    "uniform_scalar",
]

COMMUTATIVE = frozenset({"add", "mul", "min", "max", "logical_and", "logical_or", "eq", "ne"})


@dataclass
class Match:
    """What a pattern matched.

    Attributes:
        values: named values.
        numbers: named constants that are the same everywhere.
        nodes: every node that is part of the pattern, the root first.
    """

    values: dict[str, Value] = field(default_factory=dict)
    numbers: dict[str, float] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)

    def __getitem__(self, name: str) -> Value:
        """Return a named value."""
        return self.values[name]

    def copy(self) -> Match:
        """Return a copy to go on matching with."""
        return Match(dict(self.values), dict(self.numbers), list(self.nodes))


class Pattern:
    """Something to look for at a value. `find` yields every way in which it matches."""

    def find(self, edit: Editor, v: Value, so_far: Match) -> Iterator[Match]:
        """Yield extensions of a match."""
        raise NotImplementedError


@dataclass(frozen=True)
class Any(Pattern):
    """Any value, under a name; `where` may ask more."""

    name: str
    where: Callable[[Value], bool] | None = None

    def find(self, edit: Editor, v: Value, so_far: Match) -> Iterator[Match]:
        """Bind the name, or compare with what it is bound to."""
        known = so_far.values.get(self.name)
        if known is not None:
            if known is v:
                yield so_far
        elif self.where is None or self.where(v):
            out = so_far.copy()
            out.values[self.name] = v
            yield out


@dataclass(frozen=True)
class Uniform(Pattern):
    """A constant with equal elements: `number`, or one that gets a name.

    Attributes:
        number: what it must be, within a few ulps of float32.
        name: what it is called in `Match.numbers`.
    """

    number: float | None = None
    name: str = ""

    def find(self, edit: Editor, v: Value, so_far: Match) -> Iterator[Match]:
        """Look through views and broadcasts."""
        found = uniform_number(edit, v)
        if found is None:
            return
        if self.number is not None and not np.isclose(found, self.number, rtol=3e-7, atol=0):
            return
        out = so_far.copy()
        if self.name:
            out.numbers[self.name] = found
        yield out


@dataclass(frozen=True)
class OpOf(Pattern):
    """A result of an operation, with patterns for its operands.

    Attributes:
        op: the class.
        operands: one pattern each; more operands than patterns do not match.
        where: asks more of the operation.
        commutative: whether two operands may be swapped.
        result: which result of the node.
        name: what the value is called.
    """

    op: type[Op]
    operands: tuple[Pattern, ...]
    where: Callable[[AnyObject], bool] | None = None
    commutative: bool = False
    result: int = 0
    name: str = ""

    def find(self, edit: Editor, v: Value, so_far: Match) -> Iterator[Match]:
        """Compare the node, then its operands in every allowed order."""
        node = v.node
        if not isinstance(node.op, self.op) or v.result != self.result:
            return
        if self.where is not None and not self.where(node.op):
            return
        operands = edit.operands(node)
        if len(operands) != len(self.operands):
            return
        start = so_far.copy()
        start.nodes.append(node)
        if self.name:
            start.values[self.name] = v
        orders: list[Sequence[Value]] = [operands]
        if self.commutative and operands[0] is not operands[1]:
            orders.append(operands[::-1])
        for order in orders:
            yield from _all(edit, self.operands, order, start)


@dataclass(frozen=True)
class Optional(Pattern):
    """One pattern, or else another."""

    first: Pattern
    second: Pattern

    def find(self, edit: Editor, v: Value, so_far: Match) -> Iterator[Match]:
        """Try both."""
        yield from self.first.find(edit, v, so_far)
        yield from self.second.find(edit, v, so_far)


def _all(
    edit: Editor, patterns: Sequence[Pattern], values: Sequence[Value], so_far: Match
) -> Iterator[Match]:
    """Match several patterns with several values, going back where a later one fails."""
    if not patterns:
        yield so_far
        return
    for found in patterns[0].find(edit, values[0], so_far):
        yield from _all(edit, patterns[1:], values[1:], found)


def Un(fn: str, x: Pattern, **params: float) -> OpOf:  # noqa: N802 - reads as the pattern classes
    """A row of the scalar table with one operand."""
    wanted = tuple(params.items())
    return OpOf(Unary, (x,), lambda op: op.fn == fn and (not wanted or op.params == wanted))


def Bin(fn: str, x: Pattern, y: Pattern) -> OpOf:  # noqa: N802
    """A row of the scalar table with two operands."""
    return OpOf(Binary, (x, y), lambda op: op.fn == fn, commutative=fn in COMMUTATIVE)


def Cmp(fn: str, x: Pattern, y: Pattern) -> OpOf:  # noqa: N802
    """A comparison."""
    return OpOf(Compare, (x, y), lambda op: op.fn == fn, commutative=fn in COMMUTATIVE)


@dataclass(frozen=True)
class Spread(Pattern):
    """A value behind any chain of views that add axes of size 1, broadcasts and, maybe, casts.

    Attributes:
        inner: what is behind them; matched at the first point where it fits.
        casts: whether casts may be in the chain.
    """

    inner: Pattern
    casts: bool = False

    def find(self, edit: Editor, v: Value, so_far: Match) -> Iterator[Match]:
        """Try at every point of the chain, from the outside in."""
        through = (View, Broadcast, Cast) if self.casts else (View, Broadcast)
        current, nodes = v, list(so_far.nodes)
        while True:
            start = so_far.copy()
            start.nodes = list(nodes)
            found = list(self.inner.find(edit, current, start))
            if found:
                yield from found
                return
            if not isinstance(current.node.op, through):
                return
            nodes.append(current.node)
            (current,) = edit.operands(current.node)


def spread(inner: Pattern, *, casts: bool = False) -> Spread:
    """Return a pattern that looks through views and broadcasts."""
    return Spread(inner, casts)


def match(edit: Editor, v: Value, pattern: Pattern) -> Match | None:
    """Return the first way in which a pattern matches at a value."""
    return next(pattern.find(edit, edit.resolve(v), Match()), None)


def uniform_scalar(edit: Editor, v: Value) -> np.generic | None:
    """Return the element that all elements of a constant are equal to, in its own type.

    Looks through views and broadcasts. Constants of more than 64 KiB are not looked at.
    """
    v = edit.resolve(v)
    while isinstance(v.node.op, (View, Broadcast)):
        (v,) = edit.operands(v.node)
    if not isinstance(v.node.op, Constant):
        return None
    if v not in edit.uniform:
        edit.uniform[v] = _repeated(v.node.op.array)
    return edit.uniform[v]


def _repeated(a: np.ndarray[AnyObject, AnyObject]) -> np.generic | None:
    """Return the element that all of an array are equal to."""
    if a.size == 0 or a.nbytes > 65536 or a.dtype == object:
        return None
    first: np.generic = a.reshape(-1)[0]
    return None if a.size > 1 and not (a == first).all() else first


def uniform_number(edit: Editor, v: Value) -> float | None:
    """Return the number that all elements of a constant are equal to, as `uniform_scalar` does."""
    found = uniform_scalar(edit, v)
    return None if found is None or found.dtype.kind == "c" else float(found)
