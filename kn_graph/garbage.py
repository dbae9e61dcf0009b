"""The collection of cyclic garbage, put off while much is built that stays."""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import wraps
from mmap import PAGESIZE
from typing import ParamSpec, TypeVar

__all__ = ["uncollected"]

P = ParamSpec("P")
T = TypeVar("T")

LEAST = 200_000
"""So many objects are set aside at least before all are looked at: some 20 MB."""

EVERY = 4
"""In how many turns the memory of the process is asked for once: that takes 20 microseconds."""

ROOM = 64 << 20
"""By so many bytes, and a quarter, the process may grow before: weights are few objects."""


def uncollected(f: Callable[P, T]) -> Callable[P, T]:
    """Put off collections while a function runs, and spare the collector what it has built.

    A graph is many small objects that all stay. The collector would look at them again and again,
    and at everything else in the process, which takes longer than to load a small model.
    """

    @wraps(f)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        if not gc.isenabled():
            return f(*args, **kwargs)
        gc.disable()
        try:
            return f(*args, **kwargs)
        finally:
            try:
                _aside.put_young()
            finally:
                gc.enable()

    return run


class _Aside:
    """Objects that only a full collection looks at; when the next one is due.

    The collector makes one when what it has kept grew by a quarter, which it does not see of these:
    so the same rule is applied here, and to the memory of the process.
    """

    def __init__(self) -> None:
        self._count, self._most = 0, LEAST
        self._turns, self._bytes = 0, _most_bytes()

    def put_young(self) -> None:
        """Set all objects aside that the collector has not seen, or let it see everything."""
        if gc.get_freeze_count():
            return  # frozen by somebody who wants them to stay so
        self._count += gc.get_count()[0]
        self._turns += 1
        grown = self._turns % EVERY == 0 and _resident() > self._bytes
        if self._count < self._most and not grown:
            gc.freeze()
            gc.unfreeze()
        else:
            gc.collect()
            self._count, self._most = 0, max(LEAST, len(gc.get_objects()) // 4)
            self._bytes = _most_bytes()


def _most_bytes() -> int:
    return _resident() * 5 // 4 + ROOM


def _resident() -> int:
    """Return the bytes of memory that the process has; 0 where the system does not say."""
    try:
        with open("/proc/self/statm", "rb", buffering=0) as file:
            return int(file.read().split()[1]) * PAGESIZE
    except (OSError, ValueError, IndexError):
        return 0


_aside = _Aside()
