"""What a plan requires of sizes, looked at once for each set of numbers that runs find."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kn_graph.dim import Symbol
from kn_graph.dim_facts import Constraint
from kn_graph.reference import check_constraints
from kn_plan.recent import Recent
from kn_plan.repeat import Repeat

__all__ = ["Required"]


class Required:
    """Requirements of a plan; safe among threads.

    Sizes that nodes find are mostly those of the run before, and computing what depends on them
    takes longer than small steps.
    """

    def __init__(self, constraints: Sequence[Constraint], repeats: Sequence[Repeat]) -> None:
        self._repeats = tuple(repeats)
        self._repeated, self._constrained = _symbols_of(repeats), _symbols_of(constraints)
        self._held = Recent[bool]()
        self._left = Recent[list[Constraint]]()

    def check_repeats(self, env: Mapping[Symbol, int]) -> None:
        """Check axes that are repeated, where all sizes are known.

        Raises:
            ExecutionError: an axis of another size than 1 would be repeated.
        """
        numbers = tuple(map(env.get, self._repeated))
        if self._held.get(numbers):
            return
        for repeat in self._repeats:
            if repeat.symbols <= env.keys():
                repeat.check(env)
        self._held.keep(numbers, True)

    def check_constraints(
        self, pending: Sequence[Constraint], env: Mapping[Symbol, int], where: str
    ) -> list[Constraint]:
        """Check those that could not be checked before, and return those that still cannot.

        Args:
            pending: what numbers known before have left; it follows from them.
            env: numbers known now.
            where: what has made them known.

        Raises:
            ExecutionError: one does not hold.
        """
        numbers = tuple(map(env.get, self._constrained))
        left = self._left.get(numbers)
        if left is None:
            left = check_constraints(pending, env, where)
            self._left.keep(numbers, left)
        return left


def _symbols_of(rules: Iterable[Constraint | Repeat]) -> tuple[Symbol, ...]:
    return tuple({s: None for r in rules for s in r.symbols})
