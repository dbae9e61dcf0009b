"""Softmax against the NumPy reference."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from kn_cpu.softmax import softmax_call
from kn_graph.ops.norm import Softmax
from tests.cpu.check import Array, check, normal, reference, stored
from tests.cpu.rows import Bound, layout_of

SIZES = [0, 1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 64, 65, 127, 1000, 5003, 70_001]


def check_softmax(op: Softmax, x: Array, *orders: tuple[int, ...]) -> None:
    """Check with the operand, and the result, in memory of some orders."""
    views = [stored(x, order) for order in orders] or [x]
    for view in views:
        for like in views:
            out = stored(np.zeros_like(x), orders[0]) if like is views[0] else np.zeros_like(x)
            check(op, softmax_call(op, layout_of(out), layout_of(view)), out, view, operands=[x])


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("n", SIZES)
def test_rows_and_columns(n: int, log: bool) -> None:
    x = normal((3, n), n) * 4
    for orders in (((0, 1),), ((1, 0),), ((0, 1), (1, 0))):
        check_softmax(Softmax(1, log), x, *orders)


@pytest.mark.parametrize("axis", range(4))
@pytest.mark.parametrize("order", list(permutations(range(4))))
def test_any_axis_of_any_order(order: tuple[int, ...], axis: int) -> None:
    x = stored(normal((2, 19, 5, 37)), order, gap=order[0] % 2)
    for log in (False, True):
        op = Softmax(axis, log)
        out = stored(np.zeros_like(x), order)
        check(op, softmax_call(op, layout_of(out), layout_of(x)), out, x, operands=[x])


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize("gap", [0, 1])
def test_special_values(gap: int, order: tuple[int, ...], log: bool) -> None:
    x = normal((22, 41)) * 30
    x[1, 3] = np.nan
    x[2, 40] = np.nan
    x[3, 7] = np.inf
    x[4, :] = -np.inf
    x[5, 1:] = -np.inf
    x[6, 0] = -np.inf
    x[7, :] = 3e38
    x[8, ::2] = -3e38
    x[9, :] = -1000 * np.arange(41)
    x[10] = np.array([0x7FC0_01FF], np.uint32).view(np.float32)  # a NaN that carries something
    x[11, 5] = np.array([0xFFC0_0123], np.uint32).view(np.float32)[0]
    op = Softmax(1, log)
    view, out = stored(x, order, gap), stored(np.zeros_like(x), order)
    check(op, softmax_call(op, layout_of(out), layout_of(view)), out, view, operands=[x])


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize("log", [False, True])
def test_in_place(log: bool, order: tuple[int, ...]) -> None:
    op, x = Softmax(1, log), stored(normal((37, 61)), order)
    want = reference(op, x)
    Bound(softmax_call(op, layout_of(x), layout_of(x)), (x, x))()
    np.testing.assert_allclose(x, want, rtol=1e-5, atol=1e-6)
