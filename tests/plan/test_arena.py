"""Places in memory: nothing that lives at the same time overlaps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kn_plan.arena import ALIGNMENT, Allocation, CapacityArena, Intervals, allocate, round_up


def overlaps(allocation: Allocation, lives: Intervals) -> list[tuple[int, int]]:
    """Return the pairs of buffers that live at the same time in the same place."""
    found = []
    for i in range(len(lives)):
        for j in range(i):
            together = lives.births[i] <= lives.deaths[j] and lives.births[j] <= lives.deaths[i]
            a, b = allocation.offsets[i], allocation.offsets[j]
            touch = a < b + allocation.sizes[j] and b < a + allocation.sizes[i]
            if together and touch and allocation.sizes[i] and allocation.sizes[j]:
                found.append((i, j))
    return found


BUFFERS = st.tuples(st.integers(0, 5000), st.integers(0, 30), st.integers(0, 12))


@settings(max_examples=200, deadline=None)
@given(st.lists(BUFFERS, min_size=0, max_size=40))
def test_nothing_overlaps(buffers: list[tuple[int, int, int]]) -> None:
    sizes = [s for s, _, _ in buffers]
    lives = Intervals.of([b for _, b, _ in buffers], [b + n for _, b, n in buffers])
    out = allocate(sizes, lives)
    assert overlaps(out, lives) == []
    assert (out.offsets % ALIGNMENT == 0).all()
    assert (out.sizes >= np.asarray(sizes, np.int64)).all()
    assert out.lower_bound <= out.total <= out.sizes.sum()
    assert out.total == max((out.offsets + out.sizes).tolist(), default=0)


def test_a_chain_needs_two_buffers() -> None:
    lives = Intervals.of(range(100), range(1, 101))
    out = allocate([1000] * 100, lives)
    assert out.total == out.lower_bound == 2 * 1024


def test_a_gap_between_two_is_used() -> None:
    lives = Intervals.of([0, 0, 0, 2], [3, 1, 3, 3])
    out = allocate([640, 640, 64, 640], lives)
    assert out.total == out.lower_bound


@pytest.mark.parametrize("seed", range(3))
def test_where_most_buffers_die_soon_the_bound_is_close(seed: int) -> None:
    rng = np.random.default_rng(seed)
    births = rng.integers(0, 1000, 1000)
    lives = Intervals.of(births.tolist(), (births + rng.geometric(0.4, 1000)).tolist())
    out = allocate(rng.integers(1, 1 << 20, 1000), lives)
    assert out.total <= 1.02 * out.lower_bound


def test_what_lies_on_top_comes_first_where_no_order_reaches_the_bound() -> None:
    lives = Intervals.of([1, 0, 4, 3, 2, 2, 6], [1, 3, 7, 4, 4, 2, 7])
    out = allocate([64 * n for n in (4, 1, 4, 1, 3, 1, 1)], lives)
    assert out.total == out.lower_bound  # each of the four orders takes an eighth more
    assert overlaps(out, lives) == []
    assert out.heuristic.endswith("repaired")


def test_who_dies_before_birth_is_refused() -> None:
    with pytest.raises(ValueError, match="buffer 1 dies before it is born"):
        Intervals.of([0, 3], [0, 2])


def test_capacities_are_quarters_of_powers_of_two() -> None:
    assert [round_up(n) for n in (0, 1, 5, 7, 9, 11, 13, 15, 17, 1000)] == [
        0, 1, 5, 7, 10, 12, 14, 16, 20, 1024
    ]  # fmt: skip
    assert all(n <= round_up(n) <= n * 1.25 + 1 for n in range(5000))


def growing(env: Mapping[Any, int]) -> np.ndarray[Any, np.dtype[np.int64]]:
    n = env["n"]
    return np.array([4 * n, max(4000 - 4 * n, 0), 64])


def test_a_growing_size_is_allocated_rarely() -> None:
    arena = CapacityArena(growing, Intervals.of([0, 1, 1], [1, 2, 2]))
    for n in range(1, 4097):
        allocation = arena.bind({"n": n})
        assert (allocation.sizes >= growing({"n": n})).all()
    assert arena.reallocations <= 45


def test_going_back_and_forth_allocates_nothing_twice() -> None:
    arena = CapacityArena(growing, Intervals.of([0, 1, 1], [1, 2, 2]))
    numbers = [10, 900, 10, 40, 900, 3, 3000]
    for n in numbers:
        arena.bind({"n": n})
    before = arena.reallocations
    for n in numbers * 3:
        arena.bind({"n": n})
    assert arena.reallocations == before
