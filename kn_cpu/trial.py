"""How many threads short runs take: found by trying, since results do not depend on it."""

from __future__ import annotations

from math import inf

__all__ = ["ThreadTrial"]

SHORT = 200e-6
"""Seconds from which on a run wins back what it costs to wake a thread."""

TURNS = 4
"""How often each of the two numbers of threads is tried."""


class ThreadTrial:
    """Compares one thread with all in the first runs, in turns.

    Attributes:
        threads: how many the next run takes.
        open: whether that is not decided yet.
    """

    __slots__ = ("_best", "_most", "_turn", "open", "threads")

    def __init__(self, most: int) -> None:
        self.threads = self._most = most
        self.open = most > 1
        self._best = {1: inf, most: inf}
        self._turn = 0

    def note(self, seconds: float) -> None:
        """Take the time of a run on `threads`; the first one is cold and does not count."""
        self._turn += 1
        if self._turn == 1:
            return
        used = self.threads
        self._best[used] = min(self._best[used], seconds)
        if used > 1 and seconds > SHORT:
            self.open = False
        elif self._turn > 2 * TURNS:
            self.threads = 1 if self._best[1] <= self._best[self._most] else self._most
            self.open = False
        else:
            self.threads = 1 if used > 1 else self._most
