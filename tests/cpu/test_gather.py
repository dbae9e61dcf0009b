"""Gather and scatter against the NumPy reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kn_cpu.gather import (
    gather_call,
    gather_elements_call,
    gather_nd_call,
    scatter_elements_call,
    scatter_nd_call,
)
from kn_graph.dtype import DType
from kn_graph.errors import ExecutionError
from kn_graph.ops.gather import Gather, GatherElements, GatherND
from kn_graph.ops.scatter import ScatterElements, ScatterND
from kn_plan.statuses import index_status
from tests.cpu.check import Array, check, reference, stored
from tests.cpu.rows import layout_of, run

INDEX_TYPES = [np.int64, np.int32, np.int16, np.int8, np.uint8, np.uint16, np.uint32, np.uint64]
TYPES = [np.uint8, np.float16, np.float32, np.int64]


def some(shape: Any, dtype: Any = np.float32) -> Array:
    return np.arange(int(np.prod(shape))).astype(dtype).reshape(shape)


def places(shape: Any, n: int, dtype: Any = np.int64, seed: int = 0) -> Array:
    """Return indices into an axis of size n, negative ones where the type has them."""
    low = 0 if np.issubdtype(dtype, np.unsignedinteger) else -n
    return np.random.default_rng(seed).integers(low, n, shape).astype(dtype)


def check_gather(axis: int, x: Array, indices: Array, like: Array | None = None) -> None:
    op = Gather(axis)
    out = np.zeros_like(reference(op, x, indices)) if like is None else like
    status = np.zeros(3, np.int64)
    layouts = [layout_of(a) for a in (out, x, indices)]
    call = gather_call(
        op, *layouts, dtype=DType.from_numpy(x.dtype), index_dtype=DType.from_numpy(indices.dtype)
    )
    check(op, call, out, x, indices, status, operands=[x, indices])
    assert not status.any()


@pytest.mark.parametrize("axis", range(3))
@pytest.mark.parametrize("shape", [(), (1,), (7,), (3, 5), (2, 0), (2, 3, 2)])
@pytest.mark.parametrize("dtype", TYPES)
def test_any_axis_and_indices(dtype: Any, shape: tuple[int, ...], axis: int) -> None:
    x = some((6, 9, 17), dtype)
    for order in ((0, 1, 2), (2, 1, 0), (1, 2, 0)):
        view = stored(x, order, gap=order[0] % 2)
        check_gather(axis, view, places(shape, x.shape[axis]))


@pytest.mark.parametrize("dtype", INDEX_TYPES)
def test_all_types_of_indices(dtype: Any) -> None:
    check_gather(0, some((50, 33)), places((40,), 50, dtype))
    check_gather(1, some((5, 100)), places((6, 4), 100, dtype)[:, ::2])


def test_rows_of_a_large_table_and_strided_results() -> None:
    x, indices = some((1000, 384)), places((2, 128), 1000)
    check_gather(0, x, indices)
    check_gather(0, x, indices, stored(np.zeros((2, 128, 384), np.float32), (2, 0, 1), gap=1))
    check_gather(
        0,
        x.reshape(1000, 4, 96),
        indices,
        stored(np.zeros((2, 128, 4, 96), np.float32), (0, 2, 1, 3)),
    )


def test_empty_axes() -> None:
    check_gather(0, some((0, 3)), np.zeros((0,), np.int64))
    check_gather(1, some((4, 0)), np.zeros((0, 2), np.int64))
    check_gather(0, some((4, 0)), places((3,), 4))


@pytest.mark.parametrize("bad", [9, -10, 2**40, -(2**63), 2**63 - 1])
def test_an_index_out_of_range_is_reported(bad: int) -> None:
    x, indices = some((9, 5)), places((40,), 9)
    indices[33] = bad
    out, status = np.zeros((40, 5), np.float32), np.zeros(3, np.int64)
    layouts = [layout_of(a) for a in (out, x, indices)]
    run(
        gather_call(Gather(0), *layouts, dtype=DType.FLOAT32, index_dtype=DType.INT64),
        out,
        x,
        indices,
        status,
    )
    error = index_status((0,), x.shape[:1]).error(status.tolist(), {})
    with pytest.raises(ExecutionError) as expected:
        reference(Gather(0), x, indices)
    assert str(error) == str(expected.value)


@pytest.mark.parametrize("axis", range(3))
@pytest.mark.parametrize("dtype", TYPES)
def test_gather_elements(dtype: Any, axis: int) -> None:
    op, x = GatherElements(axis), some((6, 9, 17), dtype)
    for shape in ((6, 9, 17), (2, 3, 5), (1, 1, 1), (0, 3, 3)):
        grown = [30 if a == axis and n else n for a, n in enumerate(shape)]
        for order in ((0, 1, 2), (2, 0, 1)):
            indices, view = stored(places(grown, x.shape[axis]), order), stored(x, order)
            out, status = np.zeros(grown, dtype), np.zeros(3, np.int64)
            layouts = [layout_of(a) for a in (out, view, indices)]
            call = gather_elements_call(
                op, *layouts, dtype=DType.from_numpy(x.dtype), index_dtype=DType.INT64
            )
            check(op, call, out, view, indices, status, operands=[x, indices])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 6), min_size=1, max_size=4), st.data())
def test_scatter_elements(shape: list[int], data: Any) -> None:
    axis = data.draw(st.integers(0, len(shape) - 1))
    small = [data.draw(st.integers(0, n)) for n in shape]
    small[axis] = data.draw(st.integers(0, 9))
    x, updates = some(shape), -1 - some(small)
    op, indices = ScatterElements(axis), places(small, shape[axis])
    out, status = stored(x, data.draw(st.permutations(range(len(shape))))), np.zeros(3, np.int64)
    layouts = [layout_of(a) for a in (out, updates, indices)]
    call = scatter_elements_call(op, *layouts, dtype=DType.FLOAT32, index_dtype=DType.INT64)
    check(op, call, out, updates, indices, status, operands=[x, indices, updates])


def test_scattered_indices_out_of_range_write_nothing() -> None:
    out, updates, status = some((4, 3)), -some((1, 3)), np.zeros(3, np.int64)
    before, indices = out.copy(), np.array([[4, -5, 100]])
    layouts = [layout_of(a) for a in (out, updates, indices)]
    call = scatter_elements_call(
        ScatterElements(0), *layouts, dtype=DType.FLOAT32, index_dtype=DType.INT64
    )
    run(call, out, updates, indices, status)
    np.testing.assert_array_equal(out, before)
    assert status[0] == 1
    assert status[1] in (4, -5, 100)


def tuples(shape: list[int], sizes: list[int], seed: int = 0) -> Array:
    """Return index tuples into axes of some sizes."""
    return np.stack([places(shape, n, seed=seed + n) for n in sizes], -1)


@settings(max_examples=80, deadline=None)
@given(st.lists(st.integers(1, 7), min_size=1, max_size=5), st.data())
def test_gather_by_tuples(shape: list[int], data: Any) -> None:
    batch = data.draw(st.integers(0, len(shape) - 1))
    depth = data.draw(st.integers(1, len(shape) - batch))
    listed = data.draw(st.lists(st.integers(0, 5), max_size=2))
    orders = [data.draw(st.permutations(range(n))) for n in (len(shape), batch + len(listed) + 1)]
    x = some(shape)
    indices = tuples([*shape[:batch], *listed], shape[batch : batch + depth])
    view, stored_indices = stored(x, orders[0]), stored(indices, orders[1], gap=1)
    op = GatherND(batch)
    out, status = np.zeros_like(reference(op, x, indices)), np.zeros(3, np.int64)
    layouts = [layout_of(a) for a in (out, view, stored_indices)]
    call = gather_nd_call(op, *layouts, dtype=DType.FLOAT32, index_dtype=DType.INT64)
    check(op, call, out, view, stored_indices, status, operands=[x, indices])
    assert not status.any()


@settings(max_examples=80, deadline=None)
@given(st.lists(st.integers(1, 7), min_size=1, max_size=4), st.data())
def test_scatter_by_tuples(shape: list[int], data: Any) -> None:
    depth = data.draw(st.integers(1, len(shape)))
    listed = data.draw(st.lists(st.integers(0, 5), max_size=2))
    x, indices = some(shape), tuples(listed, shape[:depth])
    updates = np.asarray(-1 - some([*listed, *shape[depth:]]))
    out, status = stored(x, data.draw(st.permutations(range(len(shape))))), np.zeros(3, np.int64)
    layouts = [layout_of(a) for a in (out, updates, indices)]
    op = ScatterND()
    call = scatter_nd_call(op, *layouts, dtype=DType.FLOAT32, index_dtype=DType.INT64)
    check(op, call, out, updates, indices, status, operands=[x, indices, updates])


def test_an_error_in_a_tuple_names_its_axis() -> None:
    x, indices = some((4, 5, 6)), np.array([[0, 1], [3, 5]])
    out, status = np.zeros((2, 6), np.float32), np.zeros(3, np.int64)
    layouts = [layout_of(a) for a in (out, x, indices)]
    call = gather_nd_call(GatherND(), *layouts, dtype=DType.FLOAT32, index_dtype=DType.INT64)
    run(call, out, x, indices, status)
    with pytest.raises(ExecutionError) as expected:
        reference(GatherND(), x, indices)
    error = index_status((0, 1), x.shape[:2]).error(status.tolist(), {})
    assert str(error) == str(expected.value)
