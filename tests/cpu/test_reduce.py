"""Reductions against the NumPy reference."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, combinations, permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kn_cpu.reduce import arg_reduce_call, reduce_call
from kn_graph.dtype import DType
from kn_graph.ops.reduce import ArgReduce, Reduce, ReduceFn
from tests.cpu.check import Array, check, normal, reference, stored
from tests.cpu.rows import layout_of

NUMBERS: tuple[ReduceFn, ...] = ("sum", "mean", "prod", "max", "min")
BOOLS: tuple[ReduceFn, ...] = ("any", "all", "max", "min")
TYPES = [np.float32, np.float64, np.int32, np.int64, np.bool_]
SIZES = [0, 1, 2, 3, 7, 15, 16, 17, 31, 64, 65, 127, 255, 1025, 9001]


def some(shape: tuple[int, ...], dtype: Any, seed: int = 0) -> Array:
    """Return elements near 1, whose products stay finite, or integers that overflow in products."""
    rng = np.random.default_rng(seed)
    if dtype == np.bool_:
        return rng.random(shape) < 0.5
    if np.issubdtype(dtype, np.integer):
        return rng.integers(-50, 50, shape).astype(dtype)
    return (1 + 0.05 * rng.standard_normal(shape)).astype(dtype)


def check_reduce(fn: ReduceFn, x: Array, axes: tuple[int, ...], like: Array | None = None) -> None:
    op = Reduce(fn, axes)
    want = reference(op, x)
    out = np.zeros_like(want) if like is None else like
    call = reduce_call(fn, DType.from_numpy(x.dtype), layout_of(out), layout_of(x), axes)
    check(op, call, out, x, operands=[x])


def functions(dtype: Any) -> tuple[ReduceFn, ...]:
    return BOOLS if dtype == np.bool_ else NUMBERS


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("dtype", TYPES)
def test_rows_and_columns_of_all_sizes(dtype: Any, n: int) -> None:
    x = some((3, n), dtype)
    for fn in functions(dtype):
        check_reduce(fn, x, (1,))
        check_reduce(fn, x, (0,))
        check_reduce(fn, stored(x, (1, 0)), (1,))
        check_reduce(fn, x, (0, 1))


def subsets(rank: int) -> Iterator[tuple[int, ...]]:
    return chain.from_iterable(combinations(range(rank), k) for k in range(rank + 1))


@pytest.mark.parametrize("axes", list(subsets(4)))
@pytest.mark.parametrize("order", [(0, 1, 2, 3), (0, 2, 3, 1), (3, 2, 1, 0), (1, 3, 0, 2)])
def test_any_axes_in_any_order(order: tuple[int, ...], axes: tuple[int, ...]) -> None:
    for dtype in TYPES:
        x = some((3, 18, 5, 35), dtype)
        for fn in functions(dtype):
            check_reduce(fn, stored(x, order, gap=order[0] % 2), axes)


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_results_of_any_strides(order: tuple[int, ...]) -> None:
    x = some((17, 5, 6, 33), np.float32)
    like = stored(np.zeros((17, 6, 33), np.float32), order, gap=1)
    check_reduce("sum", x, (1,), like)


@pytest.mark.parametrize("fn", NUMBERS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_nan_and_infinities(dtype: Any, fn: ReduceFn) -> None:
    x = some((9, 131), dtype)
    x[0, 0] = x[1, 130] = x[2, 64] = np.nan
    x[3, 5] = np.inf
    x[4, 129] = -np.inf
    x[5, 3], x[5, 99] = np.inf, -np.inf
    x[6, 7], x[6, 50] = np.inf, np.nan
    x[7] = -np.inf
    x[8] = 0
    for order in ((0, 1), (1, 0)):
        check_reduce(fn, stored(x, order), (1,))


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_integers_wrap_and_their_mean_truncates(dtype: Any) -> None:
    limits = np.iinfo(dtype)
    x = np.array([[limits.max, 1, -7], [limits.min, -1, 7], [-8, 0, 1]], dtype)
    for fn in NUMBERS:
        for axis in (0, 1):
            check_reduce(fn, x, (axis,))


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0,), (2, 0, 3)])
def test_reductions_over_nothing(shape: tuple[int, ...]) -> None:
    for dtype in TYPES:
        for fn in functions(dtype):
            for axes in subsets(len(shape)):
                check_reduce(fn, np.zeros(shape, dtype), axes)


def test_a_long_sum_stays_in_the_band() -> None:
    x = normal((2, 3_000_001)) + 1
    check_reduce("sum", x, (1,))
    check_reduce("mean", stored(x[:, :1_000_001], (1, 0)), (1,))


# ---- extremes -------------------------------------------------------------------------------


def check_extremes(x: Array, axis: int) -> None:
    for largest in (True, False):
        for last in (True, False):
            op = ArgReduce(axis, largest, last)
            out = np.zeros_like(reference(op, x))
            call = arg_reduce_call(op, DType.from_numpy(x.dtype), layout_of(out), layout_of(x))
            check(op, call, out, x, operands=[x])


@pytest.mark.parametrize("n", SIZES[1:])
@pytest.mark.parametrize("dtype", TYPES[:-1])
def test_extremes_with_ties(dtype: Any, n: int) -> None:
    x = np.random.default_rng(n).integers(-4, 5, (7, n)).astype(dtype)
    check_extremes(x, 1)
    check_extremes(x, 0)
    check_extremes(stored(x, (1, 0)), 1)
    check_extremes(stored(x, (0, 1), gap=1)[:, ::-1], 1)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_nan_is_the_extreme(dtype: Any) -> None:
    x = some((70, 130), dtype)
    rng = np.random.default_rng(3)
    x[rng.random(x.shape) < 0.02] = np.nan
    x[rng.random(x.shape) < 0.02] = np.inf
    x[rng.random(x.shape) < 0.02] = -np.inf
    for axis in (0, 1):
        check_extremes(x, axis)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from([1, 2, 3, 17, 33]), min_size=1, max_size=4), st.data())
def test_any_shape(shape: list[int], data: Any) -> None:
    order = data.draw(st.permutations(range(len(shape))))
    axes = data.draw(st.sets(st.sampled_from(range(len(shape)))))
    x = stored(some(tuple(shape), np.float32), order, data.draw(st.integers(0, 1)))
    for fn in NUMBERS:
        check_reduce(fn, x, tuple(sorted(axes)))
    check_extremes(x, data.draw(st.integers(0, len(shape) - 1)))
