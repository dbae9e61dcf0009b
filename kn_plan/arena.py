"""Places in one block of memory for buffers that live at different times.

Buffers are intervals: a size, and the first and the last step that needs them. Those that live at
the same time must not overlap. Finding the smallest block is NP-hard (dynamic storage allocation,
Garey and Johnson 1979, SR2). Of a few greedy orders the best is taken, and where it does not reach
the lower bound, the largest sum of sizes at any one step, buffers that lie on top come first in
further tries. Networks whose buffers die soon reach the bound nearly always.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

__all__ = ["ALIGNMENT", "Allocation", "CapacityArena", "Intervals", "allocate", "round_up"]

ALIGNMENT = 64
"""Bytes: a cache line, and the widest vector."""

Ints = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True)
class Intervals:
    """When buffers live; element i of each array belongs to buffer i.

    Attributes:
        births: the first step that needs it.
        deaths: the last one.
    """

    births: Ints
    deaths: Ints

    @classmethod
    def of(cls, births: Sequence[int], deaths: Sequence[int]) -> Intervals:
        """Take numbers; each interval holds at least one step."""
        b, d = np.asarray(births, np.int64), np.asarray(deaths, np.int64)
        if (b > d).any():
            raise ValueError(f"buffer {int(np.argmax(b > d))} dies before it is born")
        return cls(b, d)

    def __len__(self) -> int:
        """Return the number of buffers."""
        return len(self.births)

    def lower_bound(self, sizes: Ints) -> int:
        """Return the largest sum of the sizes of buffers that live at one step."""
        if not len(self):
            return 0
        change = np.zeros(int(self.deaths.max()) + 2, np.int64)
        np.add.at(change, self.births, sizes)
        np.add.at(change, self.deaths + 1, -sizes)
        return int(np.cumsum(change).max())


@dataclass(frozen=True)
class Allocation:
    """Where buffers lie.

    Attributes:
        offsets: in bytes, multiples of `ALIGNMENT`.
        sizes: in bytes, rounded up to it.
        total: bytes of the block.
        lower_bound: no block is smaller.
        heuristic: the order that gave it.
    """

    offsets: Ints
    sizes: Ints
    total: int
    lower_bound: int
    heuristic: str


Order = Callable[[Ints, Intervals], Ints]

HEURISTICS: Mapping[str, tuple[Order, bool]] = {
    "largest, first gap": (lambda s, t: -s, False),
    "largest, tightest gap": (lambda s, t: -s, True),
    "largest area, first gap": (lambda s, t: -s * (t.deaths - t.births + 1), False),
    "earliest, tightest gap": (lambda s, t: t.births, True),
}
"""What buffers are placed first, and whether into the smallest gap that holds them."""

REPAIRS = 16
"""How often buffers are placed again with the one on top first."""

PLACED = 8192
"""How many buffers are placed again, all tries together: large plans are bound quickly."""


def allocate(sizes: Sequence[int] | Ints, lives: Intervals) -> Allocation:
    """Place buffers so that none overlap that live at the same time.

    Args:
        sizes: in bytes; empty buffers lie at 0.
        lives: when each is needed.
    """
    rounded = -(-np.asarray(sizes, np.int64) // ALIGNMENT) * ALIGNMENT
    bound = lives.lower_bound(rounded)
    best: Allocation | None = None
    first = np.arange(len(rounded))
    for name, (key, tightest) in HEURISTICS.items():
        order = np.argsort(key(rounded, lives), kind="stable")
        offsets, total = _place(rounded, lives, order, tightest)
        if best is None or total < best.total:
            best, first = Allocation(offsets, rounded, total, bound, name), order
        if total == bound:
            break
    assert best is not None
    return best if best.total == bound else _repaired(best, lives, first)


def _repaired(best: Allocation, lives: Intervals, order: Ints) -> Allocation:
    """Return a smaller allocation if one is found by placing the buffer on top before all others.

    What no gap was left for is large where much else lives: it leaves gaps itself if it is first.
    """
    sizes, found = best.sizes, best
    offsets, total = best.offsets, best.total
    for _ in range(min(REPAIRS, PLACED // max(len(sizes), 1))):
        top = order[np.argmax((offsets + sizes)[order] == total)]
        order = np.concatenate(([top], order[order != top]))
        offsets, total = _place(sizes, lives, order, tightest=False)
        if total < found.total:
            name = f"{best.heuristic}, repaired"
            found = Allocation(offsets, sizes, total, best.lower_bound, name)
        if total == best.lower_bound:
            break
    return found


def _place(sizes: Ints, lives: Intervals, order: Ints, tightest: bool) -> tuple[Ints, int]:
    offsets = np.zeros(len(sizes), np.int64)
    placed = _Placed(len(sizes))
    total = 0
    for i in order.tolist():
        size = int(sizes[i])
        if size:
            birth, death = int(lives.births[i]), int(lives.deaths[i])
            at = offsets[i] = placed.gap(size, birth, death, tightest)
            placed.add(at, at + size, birth, death)
            total = max(total, int(at) + size)
    return offsets, total


class _Placed:
    """The buffers that have a place, by offset."""

    def __init__(self, room: int) -> None:
        self._table = np.empty((4, room), np.int64)  # offset, end, birth, death
        self._count = 0

    def gap(self, size: int, birth: int, death: int, tightest: bool) -> int:
        """Return where a buffer fits between those that live at the same time."""
        starts, ends, births, deaths = self._table[:, : self._count]
        live = (births <= death) & (deaths >= birth)
        starts, ends = starts[live], np.maximum.accumulate(ends[live])
        gap_starts = np.concatenate(([0], ends))
        room = np.concatenate((starts, [np.iinfo(np.int64).max])) - gap_starts
        fits = np.nonzero(room >= size)[0]
        return int(gap_starts[fits[np.argmin(room[fits])] if tightest else fits[0]])

    def add(self, start: int, end: int, birth: int, death: int) -> None:
        """Note the place of a buffer."""
        n = self._count
        at = int(np.searchsorted(self._table[0, :n], start, side="right"))
        self._table[:, at + 1 : n + 1] = self._table[:, at:n]
        self._table[:, at] = start, end, birth, death
        self._count = n + 1


def round_up(n: int) -> int:
    """Return the next of {1, 1.25, 1.5, 1.75} * 2^k."""
    power = 1 << max(n - 1, 0).bit_length()
    if power < 8:
        return n
    return next(power // 8 * k for k in (5, 6, 7, 8) if power // 8 * k >= n)


@dataclass
class CapacityArena:
    """Offsets that stay as they are while sizes grow a little.

    They are made for a capacity: every symbol rounded up by `round_up`, never below what it was.
    The test at each binding is on the sizes of the buffers themselves, so it is right for sizes
    that shrink as a symbol grows.

    Attributes:
        sizes_at: bytes of each buffer for numbers of the symbols.
        lives: when each buffer is needed.
        allocation: the offsets in use.
        reallocations: how often they were made anew.
    """

    sizes_at: Callable[[Mapping[Any, int]], Ints]
    lives: Intervals
    allocation: Allocation | None = None
    reallocations: int = 0
    _capacity: Ints | None = None
    _most: dict[Any, int] = field(default_factory=dict)

    def bind(self, env: Mapping[Any, int]) -> Allocation:
        """Return offsets that hold for these numbers of the symbols."""
        sizes = self.sizes_at(env)
        if self.allocation is None or self._capacity is None or (sizes > self._capacity).any():
            self._most = {s: max(round_up(n), self._most.get(s, 0)) for s, n in env.items()}
            wanted = sizes if self._most == env else np.maximum(self._rounded(), sizes)
            grown = wanted if self._capacity is None else np.maximum(wanted, self._capacity)
            self.allocation = allocate(grown, self.lives)
            self._capacity = grown
            self.reallocations += 1
        return self.allocation

    def _rounded(self) -> Ints:
        try:
            return self.sizes_at(self._most)
        except OverflowError:
            return np.zeros(len(self.lives), np.int64)
