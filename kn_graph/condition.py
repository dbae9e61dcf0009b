"""Truth values that depend on symbolic sizes, such as `seq == 1`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kn_graph.dim import Dim, Size, Symbol, evaluate, symbols_of
from kn_graph.dim_facts import provably_eq, provably_ge

__all__ = ["Condition", "Guard", "Truth", "size_eq", "size_ge", "truth_not"]


@dataclass(frozen=True, slots=True)
class Condition:
    """A comparison of a size with zero: `dim == 0`, or `dim >= 0`, or its negation.

    Attributes:
        dim: the symbolic size.
        equal: compare by `==`; otherwise by `>=`.
        negated: whether the comparison is negated.
    """

    dim: Dim
    equal: bool
    negated: bool = False

    def holds(self, env: Mapping[Symbol, int]) -> bool:
        """Return the truth for given numbers of the symbols."""
        number = evaluate(self.dim, env)
        return ((number == 0) if self.equal else (number >= 0)) is not self.negated

    @property
    def symbols(self) -> frozenset[Symbol]:
        """Symbols that the condition depends on."""
        return symbols_of(self.dim)

    def __str__(self) -> str:
        """Return text such as `seq-1 == 0`."""
        sign = {(True, False): "==", (True, True): "!=", (False, False): ">=", (False, True): "<"}
        return f"{self.dim} {sign[self.equal, self.negated]} 0"


Truth = bool | Condition


@dataclass(frozen=True, slots=True)
class Guard:
    """A condition that a graph assumed to be `decided`; another graph serves where it is not.

    Attributes:
        condition: what was decided.
        decided: the truth assumed.
        why: the node that needed the decision.
        forced: whether the model could not be loaded with the other truth.
    """

    condition: Condition
    decided: bool
    why: str
    forced: bool = False

    def __str__(self) -> str:
        """Return text such as `seq-1 == 0 is False (node If_3)`."""
        return f"{self.condition} is {self.decided} ({self.why})"


def size_eq(a: Size, b: Size) -> Truth:
    """Return whether two sizes are equal, as far as it is known."""
    known = provably_eq(a, b)
    if known is not None:
        return known
    difference = a - b
    assert isinstance(difference, Dim)
    return Condition(difference, equal=True)


def size_ge(a: Size, b: Size) -> Truth:
    """Return whether a >= b, as far as it is known."""
    known = provably_ge(a, b)
    if known is not None:
        return known
    difference = a - b
    assert isinstance(difference, Dim)
    return Condition(difference, equal=False)


def truth_not(t: Truth) -> Truth:
    """Return the negation."""
    if isinstance(t, Condition):
        return Condition(t.dim, t.equal, not t.negated)
    return not t
