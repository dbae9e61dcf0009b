"""Pooling against the NumPy reference."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kn_cpu.pool import pool_call, pool_supported
from kn_graph.dtype import DType
from kn_graph.ops.pool import Pool, PoolFunction
from tests.cpu.check import Array, check, normal, reference, stored
from tests.cpu.rows import layout_of

FUNCTIONS: tuple[PoolFunction, ...] = ("max", "mean", "sum")
FIRST, LAST = (0, 1, 2, 3), (0, 2, 3, 1)


def window(
    fn: PoolFunction,
    kernel: tuple[int, ...],
    strides: tuple[int, ...] | None = None,
    dilations: tuple[int, ...] | None = None,
    pads: Any = None,
    **rest: Any,
) -> Pool:
    """Return a pool with defaults."""
    ones = (1,) * len(kernel)
    pads = ((0, 0),) * len(kernel) if pads is None else pads
    return Pool(fn, kernel, strides or ones, dilations or ones, pads, **rest)


def check_pool(op: Pool, x: Array, order: tuple[int, ...] | None = None, gap: int = 0) -> None:
    out = stored(np.zeros_like(reference(op, x)), order)
    view = stored(x, order, gap)
    check(op, pool_call(op, layout_of(out), layout_of(view)), out, view, operands=[x])


WINDOWS: list[dict[str, Any]] = [
    {"kernel": (2, 2), "strides": (2, 2)},
    {"kernel": (3, 3), "strides": (2, 2), "pads": ((1, 1), (1, 1))},
    {"kernel": (3, 3), "strides": (1, 1), "pads": ((1, 1), (1, 1)), "count_include_pad": True},
    {"kernel": (3, 2), "strides": (2, 3), "pads": ((0, 1), (1, 0)), "ceil": True},
    {"kernel": (3, 3), "strides": (2, 2), "ceil": True, "pads": ((1, 0), (2, 2)),
     "count_include_pad": True},
    {"kernel": (5, 5), "strides": (1, 1), "pads": ((2, 2), (2, 2))},
    {"kernel": (2, 3), "dilations": (3, 2), "pads": ((2, 1), (1, 3))},
    {"kernel": (2, 2), "strides": (3, 2), "dilations": (2, 2), "pads": ((3, 3), (3, 3))},
    {"kernel": (1, 1), "strides": (2, 2)},
    {"kernel": (13, 11)},
]  # fmt: skip


@pytest.mark.parametrize("fn", FUNCTIONS)
@pytest.mark.parametrize("options", WINDOWS)
@pytest.mark.parametrize("order", [FIRST, LAST, (1, 0, 3, 2)])
@pytest.mark.parametrize("shape", [(2, 3, 13, 11), (1, 33, 16, 47), (1, 80, 14, 13)])
def test_windows(
    shape: tuple[int, ...], order: tuple[int, ...], options: dict[str, Any], fn: PoolFunction
) -> None:
    check_pool(window(fn, **options), normal(shape), order)


@pytest.mark.parametrize("order", list(permutations(range(4))))
@pytest.mark.parametrize("fn", FUNCTIONS)
def test_any_strides(fn: PoolFunction, order: tuple[int, ...]) -> None:
    op = window(fn, (3, 3), (2, 1), pads=((1, 1), (0, 2)))
    check_pool(op, normal((3, 18, 9, 20)), order, gap=order[0] % 2)


@pytest.mark.parametrize("fn", FUNCTIONS)
def test_one_two_and_three_axes(fn: PoolFunction) -> None:
    check_pool(window(fn, (3,), (2,), pads=((1, 1),)), normal((2, 5, 40)))
    check_pool(window(fn, (3,), (2,), pads=((1, 1),)), normal((2, 21, 40)), (0, 2, 1))
    op = window(fn, (2, 3, 2), (2, 1, 2), pads=((1, 0), (1, 1), (0, 1)), ceil=True)
    check_pool(op, normal((2, 3, 6, 7, 35)))
    check_pool(op, normal((2, 19, 6, 7, 9)), (0, 2, 3, 4, 1))
    check_pool(window(fn, (2, 2)), normal((9, 8)))
    check_pool(window(fn, ()), normal((9, 8)))


@pytest.mark.parametrize("order", [FIRST, LAST])
@pytest.mark.parametrize("step", [1, 2, 3])
def test_nan_and_infinities(step: int, order: tuple[int, ...]) -> None:
    x = normal((1, 17, 12, 40))
    rng = np.random.default_rng(5)
    for special in (np.nan, np.inf, -np.inf):
        x[rng.random(x.shape) < 0.03] = special
    x[0, 0, :4] = -np.inf
    for fn in FUNCTIONS:
        check_pool(window(fn, (3, 3), (step, step), pads=((1, 1), (1, 1))), x, order)


@pytest.mark.parametrize("order", [FIRST, LAST])
def test_windows_of_padding_alone(order: tuple[int, ...]) -> None:
    for fn in FUNCTIONS:
        op = window(fn, (2, 2), pads=((3, 3), (3, 3)))
        check_pool(op, normal((1, 20, 3, 4)), order)


def test_empty_tensors() -> None:
    for shape in ((0, 3, 5, 5), (2, 0, 5, 5)):
        check_pool(window("mean", (2, 2)), np.zeros(shape, np.float32))


def test_what_is_supported() -> None:
    assert pool_supported(window("max", (2, 2)), DType.FLOAT32)
    assert not pool_supported(window("max", (2, 2)), DType.INT32)
    assert not pool_supported(window("max", (2, 2), indices="row_major"), DType.INT8)
    assert not pool_supported(window("max", (2, 2, 2, 2)), DType.FLOAT32)


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from(FUNCTIONS), st.integers(1, 4), st.integers(1, 3), st.integers(1, 3),
    st.tuples(st.integers(0, 4), st.integers(0, 4)), st.booleans(), st.booleans(),
    st.integers(9, 70), st.sampled_from([FIRST, LAST]),
)  # fmt: skip
def test_any_window(
    fn: PoolFunction, k: int, s: int, d: int, pads: tuple[int, int], ceil: bool, count: bool,
    n: int, order: tuple[int, ...],
) -> None:  # fmt: skip
    op = window(fn, (k, k), (s, s), (d, d), (pads, pads[::-1]), ceil=ceil, count_include_pad=count)
    check_pool(op, normal((1, 3, 11, n)), order)
