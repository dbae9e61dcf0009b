"""Interleaved turns of two actions in one process, and what several runs of that say."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

__all__ = ["Spread", "Turns", "few", "interleave"]

Action = Callable[[], object]

TURN = 5e-3
"""Seconds a turn takes at least."""


@dataclass(frozen=True)
class Turns:
    """What one process measured.

    Attributes:
        ours: median seconds of one call.
        theirs: median seconds of one call of the other.
        ratio: median over pairs of turns of how many times longer the other takes.
        count: pairs of turns.
    """

    ours: float
    theirs: float
    ratio: float
    count: int


@dataclass(frozen=True)
class Spread:
    """The ratios of several processes.

    Attributes:
        median: the figure.
        low: the smallest.
        high: the largest.
    """

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, ratios: Sequence[float]) -> Spread:
        """Return the spread of ratios."""
        return cls(statistics.median(ratios), min(ratios), max(ratios))

    def __str__(self) -> str:
        """Return the figure with its spread."""
        return f"{self.median:.2f} ({self.low:.2f} to {self.high:.2f})"


def timed(action: Action, calls: int) -> float:
    """Return the seconds one call takes, over several."""
    start = time.perf_counter()
    for _ in range(calls):
        action()
    return (time.perf_counter() - start) / calls


def interleave(ours: Action, theirs: Action, seconds: float, least: int = 5) -> Turns:
    """Measure two actions in turns for so many seconds, at least so many turns each.

    A short action is called several times in a turn, as its users do.
    """
    once = min(timed(a, n) for n in (2, 1) for a in (ours, theirs))
    calls = max(1, round(TURN / max(once, 1e-7)))
    end = time.perf_counter() + seconds
    pairs: list[tuple[float, float]] = []
    while len(pairs) < least or time.perf_counter() < end:
        pairs.append(pair(ours, theirs, calls, len(pairs) % 2 == 0))
    return summary(pairs)


def few(ours: Action, theirs: Action, count: int) -> Turns:
    """Measure two actions in so many turns of one call."""
    return summary([pair(ours, theirs, 1, i % 2 == 0) for i in range(count)])


def pair(ours: Action, theirs: Action, calls: int, first: bool) -> tuple[float, float]:
    """Measure a turn of each.

    Who begins should change, so that neither always finds the other's data in caches.
    """
    if first:
        took = timed(ours, calls)
        return took, timed(theirs, calls)
    took = timed(theirs, calls)
    return timed(ours, calls), took


def summary(pairs: Sequence[tuple[float, float]]) -> Turns:
    """Return the medians."""
    ours, theirs = (statistics.median(column) for column in zip(*pairs, strict=True))
    return Turns(ours, theirs, statistics.median(b / a for a, b in pairs), len(pairs))
