"""Graphs for concrete sizes: all that calls with the same sizes share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np

from kn_cpu.bound import BoundStage
from kn_cpu.direct import DirectCall
from kn_cpu.program import Skeleton
from kn_graph.dim import Symbol
from kn_graph.dim_facts import Constraint
from kn_plan.recent import Recent

__all__ = ["Known", "Place", "Ready"]


@dataclass(frozen=True)
class Place:
    """Where an operand is in its buffer, in bytes.

    Attributes:
        shape: of the operand.
        strides: of its axes.
        start: of its first element.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    start: int


@dataclass(frozen=True)
class Known:
    """What follows from the sizes that nodes have found; filled as it is asked for.

    Attributes:
        places: of operands, by identity.
        nbytes: of buffers, by number.
    """

    places: dict[int, Place] = field(default_factory=dict)
    nbytes: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Ready:
    """A plan for numbers of the symbols that inputs show.

    Attributes:
        skeleton: of the graph that holds for them.
        env: the numbers.
        first: its first stage.
        pending: what the graph requires of sizes that only show while it runs.
        direct: what runs it, if it is one native run.
        known: what follows from these numbers and from those that nodes have found, by the latter.
    """

    skeleton: Skeleton
    env: Mapping[Symbol, int]
    first: BoundStage
    pending: Sequence[Constraint]
    direct: DirectCall | None = None
    known: Recent[Known] = field(default_factory=Recent)

    def known_with(self, env: Mapping[Symbol, int]) -> Known:
        """Return what follows from all numbers of a run, which nodes have found in their order."""
        found = tuple(islice(env.values(), len(self.env), None))
        known = self.known.get(found)
        if known is None:
            known = Known()
            self.known.keep(found, known)
        return known

    def fits(self, arrays: Sequence[Any]) -> bool:
        """Return whether arrays of the right shapes are what the graph takes, as they are."""
        inputs, buffers = self.skeleton.plan.inputs, self.skeleton.plan.buffers
        for number, x in zip(inputs, arrays, strict=True):
            dtype = buffers[number].dtype
            if dtype is None or type(x) is not np.ndarray or x.dtype != dtype.numpy:
                return False
        return True
