"""The memory of a plan: one arena a stage, laid out for the sizes at hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from kn_graph.dim import Symbol, evaluate
from kn_plan.arena import Allocation, Intervals, allocate
from kn_plan.options import PlanOptions
from kn_plan.plan import Home, Plan

__all__ = ["Arena", "arenas"]


@dataclass(frozen=True)
class Arena:
    """The buffers that are born in one stage; they may live longer.

    Attributes:
        members: their numbers; those that take over others' memory are not among them.
        lives: from birth to the death of the last that takes over.
    """

    members: tuple[int, ...]
    lives: Intervals

    def sizes(self, plan: Plan, env: Mapping[Symbol, int]) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Return the bytes of each member.

        Raises:
            OverflowError: together they are more than any memory has.
        """
        sizes = [evaluate(plan.buffers[m].nbytes, env) for m in self.members]
        if sum(sizes) >= 1 << 62:
            raise OverflowError(f"an arena of {sum(sizes)} bytes")
        return np.array(sizes, np.int64)

    def allocate(self, plan: Plan, env: Mapping[Symbol, int]) -> Allocation:
        """Return places for sizes."""
        return allocate(self.sizes(plan, env), self.lives)


def arenas(plan: Plan, options: PlanOptions) -> tuple[Arena, ...]:
    """Return the arena of each stage."""
    last: dict[int, int] = {}
    for b in plan.buffers:
        if b.home is Home.ARENA:
            root = plan.root(b.number)
            last[root] = max(last.get(root, -1), plan.deaths[b.number])
    count = len(plan.steps)
    found = []
    for stage in plan.stages:
        members = tuple(m for m in last if plan.births[m] in stage)
        births = [plan.births[m] for m in members]
        deaths = [last[m] if options.reuse_memory else count for m in members]
        found.append(Arena(members, Intervals.of(births, deaths)))
    return tuple(found)
