"""Numbers that a function computes of sizes: what no arithmetic on sizes says in few terms.

Block sizes and the choice of a kernel follow from sizes by loops and comparisons. Where sizes are
known the function is called at once; else its results are atoms, computed when sizes are bound.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf

from kn_graph.dim import Atom, Dim, Size, of_atom
from kn_graph.dim.polynomial import intern

__all__ = ["Derived", "Rule", "derive"]

Rule = Callable[..., tuple[int, ...]]
"""Computes numbers of numbers, and of nothing else."""


class Derived(Atom):
    """One of the results of `rule(*args)`.

    Attributes:
        rule: a function of numbers.
        place: which of its results.
    """

    __slots__ = ("place", "rule")

    def __init__(self, rule: Rule, place: int, args: tuple[Size, ...]) -> None:
        super().__init__(args)
        self.rule, self.place = rule, place
        self.limits = (-inf, inf)

    def compute(self, numbers: list[int]) -> int:
        """Call the function."""
        return self.rule(*numbers)[self.place]

    def __str__(self) -> str:
        """Return `rule(a, b)[0]`."""
        return f"{self.rule.__name__}({', '.join(map(str, self.args))})[{self.place}]"


@dataclass(frozen=True)
class _Kind:
    """Makes atoms; equal ones are one."""

    rule: Rule
    place: int

    def __call__(self, args: tuple[Size, ...]) -> Derived:
        return Derived(self.rule, self.place, args)


def derive(rule: Rule, results: int, *args: Size) -> tuple[Size, ...]:
    """Return `rule(*args)`.

    Args:
        rule: a function of numbers.
        results: how many numbers it returns.
        args: its arguments.
    """
    numbers = [a for a in args if not isinstance(a, Dim)]
    if len(numbers) == len(args):
        return rule(*numbers)
    return tuple(of_atom(intern(_Kind(rule, place), *args)) for place in range(results))
