"""Graphs for concrete sizes: all that calls with the same sizes share."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Generic, TypeVar

import numpy as np

from kn_cpu.bound import BoundStage
from kn_cpu.direct import DirectCall
from kn_cpu.program import Skeleton
from kn_graph.dim import Symbol
from kn_graph.dim_facts import Constraint

__all__ = ["KEPT", "Place", "Ready", "Recent"]

KEPT = 64
"""How many sets of sizes a graph stays bound to."""

T = TypeVar("T")


class _Entry(Generic[T]):
    """Something kept, and whether it was asked for since it was last looked at."""

    __slots__ = ("made", "used")

    def __init__(self, made: T) -> None:
        self.made, self.used = made, False


class Recent(Generic[T]):
    """What was used last, found by a key; safe among threads.

    What is forgotten is the oldest that nobody asked for since its last turn: nearly the least
    recently used, without a lock where something is found.

    Attributes:
        hits: how often something was found; threads that ask at once may leave out some.
        misses: how often nothing was.
    """

    def __init__(self) -> None:
        self._found: dict[Hashable, _Entry[T]] = {}
        self._lock = Lock()
        self.hits = self.misses = 0

    def __len__(self) -> int:
        """Return how many are kept."""
        return len(self._found)

    def get(self, key: Hashable) -> T | None:
        """Return what has a key, if it is still there."""
        entry = self._found.get(key)
        if entry is None:
            self.misses += 1
            return None
        entry.used = True
        self.hits += 1
        return entry.made

    def keep(self, key: Hashable, made: T) -> None:
        """Note something; another is forgotten where there are too many."""
        with self._lock:
            while len(self._found) >= KEPT:
                oldest = next(iter(self._found))
                entry = self._found.pop(oldest)
                if entry.used:
                    entry.used = False
                    self._found[oldest] = entry
            self._found[key] = _Entry(made)

    def clear(self) -> None:
        """Forget everything."""
        self._found.clear()


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
class Ready:
    """A plan for numbers of the symbols that inputs show.

    Attributes:
        skeleton: of the graph that holds for them.
        env: the numbers.
        first: its first stage.
        pending: what the graph requires of sizes that only show while it runs.
        direct: what runs it, if it is one native run.
        places: of operands whose sizes are known, by identity; filled as they are asked for.
    """

    skeleton: Skeleton
    env: Mapping[Symbol, int]
    first: BoundStage
    pending: Sequence[Constraint]
    direct: DirectCall | None = None
    places: dict[int, Place] = field(default_factory=dict)

    def fits(self, arrays: Sequence[Any]) -> bool:
        """Return whether arrays of the right shapes are what the graph takes, as they are."""
        inputs, buffers = self.skeleton.plan.inputs, self.skeleton.plan.buffers
        for number, x in zip(inputs, arrays, strict=True):
            dtype = buffers[number].dtype
            if dtype is None or type(x) is not np.ndarray or x.dtype != dtype.numpy:
                return False
        return True
