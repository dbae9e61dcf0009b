"""Bound plans that were used last."""

from __future__ import annotations

from collections.abc import Hashable
from threading import Lock
from typing import Generic, TypeVar

__all__ = ["KEPT", "Recent"]

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
