"""Numbers of a plan, bound to sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kn_graph.dim import Size, UnboundSymbolError, ceildiv, evaluate, size_max, size_min, symbol
from kn_plan.binding import FIRST, NumberTable
from kn_plan.derived import derive

N, M = symbol("n"), symbol("m")
SN: Any = N.as_symbol
SM: Any = M.as_symbol


def env(n: int, m: int) -> dict[Any, int]:
    return {SN: n, SM: m}


@st.composite
def sizes(draw: st.DrawFn) -> Size:
    size: Size = draw(st.sampled_from([N, M]))
    for _ in range(draw(st.integers(0, 6))):
        other: Size = draw(st.one_of(st.integers(-3, 9), st.sampled_from([N, M, N * M])))
        size = draw(
            st.sampled_from(
                [
                    lambda a, b: a + b,
                    lambda a, b: a - b,
                    lambda a, b: a * b,
                    lambda a, b: a // (b if isinstance(b, int) and b > 0 else 7),
                    size_max,
                    size_min,
                ]
            )
        )(size, other)
    return size


@settings(max_examples=200, deadline=None)
@given(st.lists(sizes(), min_size=1, max_size=5), st.integers(1, 40), st.integers(0, 40))
def test_numbers_are_those_of_the_expressions(given_: list[Size], n: int, m: int) -> None:
    table = NumberTable()
    table.add_all(given_)
    binder = table.binder()
    want = [evaluate(s, env(n, m)) for s in given_]
    for _ in range(FIRST + 1):  # looked at, then compiled
        assert binder(env(n, m)).tolist() == want


def test_equal_expressions_are_computed_once() -> None:
    table = NumberTable()
    for _ in range(100):
        table.add_all([N, 3, N * M, ceildiv(N * M, 4)])
    assert len(table) == 400
    assert len(table.unique) == 4
    binder = table.binder()
    assert binder.source.count("//") == 1
    np.testing.assert_array_equal(binder(env(3, 5)), [3, 3, 15, 4] * 100)


def test_places_are_in_order() -> None:
    table = NumberTable()
    assert table.add(N) == 0
    assert table.add_all([M, N]) == range(1, 3)
    assert table.binder()(env(2, 7)).tolist() == [2, 7, 2]


def test_numbers_alone_need_no_symbol() -> None:
    table = NumberTable()
    table.add_all([1, -4])
    assert table.binder().symbols == ()
    assert table.binder()({}).tolist() == [1, -4]


def test_nothing_overflows_in_silence() -> None:
    table = NumberTable()
    table.add(N * N)
    binder = table.binder()
    for _ in range(FIRST + 1):
        with pytest.raises(OverflowError):
            binder(env(1 << 40, 0))


def test_a_symbol_without_a_number_is_named() -> None:
    table = NumberTable()
    table.add(N + M)
    with pytest.raises(UnboundSymbolError, match="size m has no number"):
        table.binder()({SN: 3})


def halves_down_to(n: int, least: int) -> tuple[int, int]:
    """Return n halved until it is at most `least`, and how often."""
    times = 0
    while n > least:
        n, times = n // 2, times + 1
    return n, times


def test_a_function_of_known_sizes_is_called_at_once() -> None:
    assert derive(halves_down_to, 2, 100, 10) == (6, 4)


@settings(max_examples=50, deadline=None)
@given(sizes(), st.integers(1, 40), st.integers(0, 40))
def test_functions_of_sizes_are_computed_when_sizes_are_bound(size: Size, n: int, m: int) -> None:
    results = derive(halves_down_to, 2, size * N, 5)
    table = NumberTable()
    table.add_all([results[0] * M + 1, *results])
    halved, times = halves_down_to(evaluate(size, env(n, m)) * n, 5)
    binder = table.binder()
    for _ in range(FIRST + 1):
        assert binder(env(n, m)).tolist() == [halved * m + 1, halved, times]
    assert [evaluate(r, env(n, m)) for r in results] == [halved, times]


def test_equal_functions_of_equal_sizes_are_one_number_and_one_call() -> None:
    first, second = (derive(halves_down_to, 2, N * M, 5) for _ in range(2))
    assert first == second
    assert first[0] != first[1]
    assert derive(halves_down_to, 2, N, 5) != first
    table = NumberTable()
    table.add_all([*first, *second, first[0] + 1])
    assert table.binder().source.count("(p0, 5)") == 1
