"""Parts of a sequence that repeat, found without names."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["Repeat", "find_repeat", "repeated_paths"]

MIN_PERIOD, MAX_PERIOD = 5, 600
"""Shorter patterns are no blocks (convolution, bias, activation), longer ones take long to find."""

MAX_FINDS = 64
NESTED = 60
"""Blocks longer than this are searched for repeats inside."""


@dataclass(frozen=True)
class Repeat:
    """`count` copies of the same `period` elements, from `start` on."""

    start: int
    period: int
    count: int

    @property
    def stop(self) -> int:
        """Position behind the last copy."""
        return self.start + self.period * self.count


def find_repeat(codes: np.ndarray[Any, Any]) -> Repeat | None:
    """Return the repeat that covers the most of a sequence, the shortest period of those."""
    best = None
    for period in range(MIN_PERIOD, min(MAX_PERIOD, codes.size // 2) + 1):
        equal = np.concatenate(([False], codes[:-period] == codes[period:], [False]))
        edges = np.flatnonzero(equal[1:] != equal[:-1])
        if not edges.size:
            continue
        starts, lengths = edges[::2], edges[1::2] - edges[::2]
        longest = int(lengths.argmax())
        count = (int(lengths[longest]) + period) // period
        if count >= 2 and (best is None or period * count > best.period * best.count):
            best = Repeat(int(starts[longest]), period, count)
    return best


def repeated_paths(kinds: Sequence[Hashable]) -> list[tuple[str, ...]]:
    """Return for each element the repeated block that it is part of, as a path: (`block A1`,).

    Args:
        kinds: equal for elements that may stand at the same place of two copies of a block.
    """
    numbers: dict[Hashable, int] = {}
    codes = np.array([numbers.setdefault(k, len(numbers)) for k in kinds], np.int64)
    marks: list[tuple[tuple[int, int], ...]] = [()] * len(kinds)
    todo = [(0, len(kinds))]
    for find in range(MAX_FINDS):
        if not todo:
            break
        start, stop = todo.pop(0)
        found = find_repeat(codes[start:stop])
        if found is None:
            continue
        prefix = marks[start]
        for copy in range(found.count):
            first = start + found.start + copy * found.period
            last = first + found.period
            marks[first:last] = [(*prefix, (find, copy))] * found.period
            if found.period > NESTED:
                todo.append((first, last))
        todo += [(start, start + found.start), (start + found.stop, stop)]
    return _named(marks)


def _named(marks: Sequence[tuple[tuple[int, int], ...]]) -> list[tuple[str, ...]]:
    """Return names for repeats and copies: letters in the order in which they are met."""
    paths = []
    letters: dict[tuple[str, ...], dict[int, int]] = {}
    for mark in marks:
        path: tuple[str, ...] = ()
        for find, copy in mark:
            met = letters.setdefault(path, {})
            letter = _letters(met.setdefault(find, len(met)))
            path = (*path, f"block {letter}{copy + 1}")
        paths.append(path)
    return paths


def _letters(number: int) -> str:
    text = ""
    while number >= 0:
        text = chr(ord("A") + number % 26) + text
        number = number // 26 - 1
    return text
