"""Pooling: windows of max, mean and sum, their ONNX operators, and the inverse."""

from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from kn_graph.dtype import DType
from kn_graph.errors import DTypeError, ExecutionError, MalformedModelError, ShapeError
from kn_graph.graph import Graph
from kn_graph.reference import cpu_eval_graph
from tests.ops.single_node import (
    assert_like_onnxruntime,
    assert_same,
    node_model,
    run_here,
    run_onnxruntime,
)

RNG = np.random.default_rng(5)
CLOSE: dict[str, Any] = {"rtol": 1e-5, "atol": 1e-6}
REDUCE: dict[str, Any] = {"max": np.max, "sum": np.sum, "mean": np.mean}


def normal(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return RNG.standard_normal(shape).astype(dtype)


def pool(x: np.ndarray, fn: Any, kernel: Any, **window: Any) -> np.ndarray:
    g = Graph()
    value = g.input("x", DType.from_numpy(x.dtype), x.shape)
    g.output("out", g.pool(value, fn, kernel, **window))
    return cpu_eval_graph(g, {"x": x})["out"]


def pool_with_indices(x: np.ndarray, kernel: Any, **window: Any) -> tuple[np.ndarray, np.ndarray]:
    g = Graph()
    out = g.max_pool_with_indices(
        g.input("x", DType.from_numpy(x.dtype), x.shape), kernel, **window
    )
    for name, v in zip(("out", "indices"), out, strict=True):
        g.output(name, v)
    return tuple(cpu_eval_graph(g, {"x": x}).values())


def naive_pool(
    x: np.ndarray, fn: str, kernel: Any, strides: Any, dilations: Any, pads: Any, include: bool
) -> np.ndarray:
    """Collect the elements of each window one by one, over the last axes."""
    lead = x.ndim - len(kernel)
    sizes = x.shape[lead:]
    counts = [
        (n + b + a - (k - 1) * d - 1) // s + 1
        for n, k, s, d, (b, a) in zip(sizes, kernel, strides, dilations, pads, strict=True)
    ]
    out = np.empty((*x.shape[:lead], *counts), x.dtype)
    for index in np.ndindex(*counts):
        elements, count = [], 0
        for tap in np.ndindex(*kernel):
            at = [
                i * s - b + t * d
                for i, s, (b, _), t, d in zip(index, strides, pads, tap, dilations, strict=True)
            ]
            inside = all(0 <= p < n for p, n in zip(at, sizes, strict=True))
            count += inside or include
            if inside:
                elements.append(x[(..., *at)])
        stacked = np.stack(elements, -1)
        value = REDUCE[fn](stacked, -1) if fn != "mean" else stacked.sum(-1) / count
        out[(..., *index)] = value
    return out


WINDOWS: list[tuple[tuple, tuple, dict[str, Any]]] = [
    ((2, 3, 7), (3,), {}),
    ((2, 3, 7), (2,), {"strides": [2], "pads": [(1, 0)]}),
    ((1, 2, 6, 5), (3, 2), {"strides": [2, 1], "dilations": [1, 2], "pads": [(1, 1), (0, 1)]}),
    ((1, 2, 3, 4, 5), (2, 2, 2), {"strides": [1, 2, 3]}),
    ((4, 5), (2, 3), {}),
    ((3, 4, 5), (5,), {}),
]


@pytest.mark.parametrize(("shape", "kernel", "window"), WINDOWS)
@pytest.mark.parametrize("fn", ["max", "mean", "sum"])
@pytest.mark.parametrize("include", [False, True])
def test_pool_follows_the_formula(
    shape: tuple, kernel: tuple, window: dict, fn: str, include: bool
) -> None:
    rank = len(kernel)
    full: dict[str, Any] = {"strides": [1] * rank, "dilations": [1] * rank, "pads": [(0, 0)] * rank}
    x = normal(*shape, dtype=np.float64)
    got = pool(x, fn, kernel, **window, count_include_pad=include)
    expected = naive_pool(x, fn, kernel, **{**full, **window}, include=include)
    assert_same([got], [expected], rtol=1e-12, atol=1e-12)


def test_mean_of_a_ceil_window_counts_explicit_padding_but_nothing_beyond() -> None:
    x = np.arange(1, 5, dtype=np.float32)[None]
    window: dict[str, Any] = {"strides": [2], "pads": [(1, 1)], "ceil": True}
    assert pool(x, "mean", [3], **window).tolist() == [[1.5, 3, 4]]  # 4 alone, not 4/3
    got = pool(x, "mean", [3], **window, count_include_pad=True)
    np.testing.assert_allclose(got, [[1, 3, 2]])  # (4 + 0)/2: the third element is not padding


def test_a_ceil_window_that_starts_behind_the_axis_is_left_out() -> None:
    x = np.array([[1, 2]], np.float32)
    got = pool(x, "max", [1], strides=[3], pads=[(1, 1)], ceil=True)
    assert got.shape == (1, 1)
    assert pool(x, "max", [1], strides=[1], pads=[(0, 1)], ceil=True).shape == (1, 2)


def test_windows_of_padding_alone() -> None:
    x = np.array([[1, 2]], np.float32)
    window: dict[str, Any] = {"pads": [(1, 0)]}
    assert pool(x, "max", [1], **window)[0].tolist() == [-np.inf, 1, 2]
    assert pool(x, "sum", [1], **window)[0].tolist() == [0, 1, 2]
    assert np.isnan(pool(x, "mean", [1], **window)[0, 0])
    assert pool(x.astype(np.int8), "max", [1], **window)[0].tolist() == [-128, 1, 2]
    assert pool_with_indices(x, [1], **window)[1][0].tolist() == [-1, 0, 1]


@pytest.mark.parametrize("fn", ["max", "mean", "sum"])
def test_nan_spreads_to_its_windows(fn: str) -> None:
    x = np.array([[1, np.nan, 3, 4]], np.float32)
    assert np.isnan(pool(x, fn, [2]))[0].tolist() == [True, True, False]


def test_indices_name_the_first_largest_element_or_the_first_nan() -> None:
    x = np.array([[5, 5, np.nan, 1, np.nan, 2, -np.inf, -np.inf]], np.float32)
    out, indices = pool_with_indices(x, [2], strides=[2])
    assert indices[0].tolist() == [0, 2, 4, 6]
    assert np.isnan(out)[0].tolist() == [False, True, True, False]
    low = np.full((1, 2), -np.inf, np.float32)
    assert pool_with_indices(low, [2], pads=[(1, 1)])[1][0].tolist() == [0, 0, 1]


def test_indices_in_column_major_order_stay_within_their_plane() -> None:
    x = normal(2, 3, 4, 5)
    rows, columns = (pool_with_indices(x, [2, 2], column_major=flag)[1] for flag in (False, True))
    plane = np.arange(20).reshape(4, 5)
    swapped = np.arange(20).reshape(5, 4).T
    for r, c in zip(rows.ravel(), columns.ravel(), strict=True):
        assert r // 20 == c // 20
        assert swapped[np.where(plane == r % 20)] == c % 20
    np.testing.assert_array_equal(x.ravel()[rows], pool(x, "max", [2, 2]))


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int64, np.float16, ml_dtypes.bfloat16])
def test_maximum_is_exact_in_every_type(dtype: Any) -> None:
    x = (normal(2, 3, 9) * 50).astype(np.int8).astype(dtype)
    got = pool(x, "max", [3], strides=[2], pads=[(1, 1)])
    expected = naive_pool(x.astype(np.float64), "max", [3], [2], [1], [(1, 1)], False)
    assert_same([got], [expected.astype(dtype)])


def test_mean_of_narrow_floats_does_not_overflow() -> None:
    x = np.full((1, 4), 60000, np.float16)
    assert pool(x, "mean", [4]).item() == 60000


@pytest.mark.parametrize("shape", [(0, 3, 4), (2, 0, 4), (2, 3, 0)])
def test_empty_tensors(shape: tuple) -> None:
    got = pool(np.zeros(shape, np.float32), "max", [3], pads=[(1, 1)])
    assert got.shape == shape
    out, indices = pool_with_indices(np.zeros(shape, np.float32), [3], pads=[(1, 1)])
    assert out.shape == indices.shape == shape


def test_symbolic_sizes() -> None:
    g = Graph()
    x = g.input("x", "float32", ["n", "c", "h", 8])
    out = g.pool(x, "max", [2, 2], strides=[2, 2], ceil=True)
    g.output("out", out)
    for h in (2, 5, 6):
        a = normal(2, 3, h, 8)
        assert_same(
            [cpu_eval_graph(g, {"x": a})["out"]],
            [pool(a, "max", [2, 2], strides=[2, 2], ceil=True)],
        )


@pytest.mark.parametrize(
    ("shape", "dtype", "fn", "window", "error"),
    [
        ((4,), "float32", "max", {"kernel": [2, 2]}, ShapeError),
        ((4,), "float32", "max", {"kernel": [5]}, ShapeError),
        ((4,), "float32", "max", {"kernel": [0]}, ShapeError),
        ((4,), "float32", "max", {"kernel": [2], "strides": [0]}, ShapeError),
        ((4,), "float32", "max", {"kernel": [2], "pads": [(0, 0), (0, 0)]}, ShapeError),
        ((4,), "int32", "mean", {"kernel": [2]}, DTypeError),
        ((4,), "bool", "max", {"kernel": [2]}, DTypeError),
    ],
)
def test_pool_refuses_what_does_not_fit(
    shape: Any, dtype: str, fn: Any, window: Any, error: Any
) -> None:
    g = Graph()
    with pytest.raises(error):
        g.pool(g.input("x", dtype, shape), fn, **window)


# ---- ONNX -----------------------------------------------------------------------------------

ONNX_WINDOWS: list[tuple[tuple, dict[str, Any]]] = [
    ((1, 2, 7), {"kernel_shape": [3]}),
    ((1, 2, 7, 6), {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 0, 1, 1]}),
    ((1, 2, 7, 6), {"kernel_shape": [3, 2], "strides": [2, 2], "auto_pad": "SAME_UPPER"}),
    ((1, 2, 7, 6), {"kernel_shape": [3, 2], "strides": [2, 1], "auto_pad": "SAME_LOWER"}),
    ((1, 2, 7, 6), {"kernel_shape": [3, 2], "strides": [2, 3], "auto_pad": "VALID"}),
    ((1, 2, 4, 5, 6), {"kernel_shape": [2, 3, 2], "strides": [2, 1, 2]}),
]
CEIL: list[tuple[tuple, dict[str, Any]]] = [
    ((1, 2, n), {"kernel_shape": [k], "strides": [s], "pads": [p, q], "ceil_mode": 1})
    for n, k, s, p, q in itertools.product((4, 5, 6), (2, 3), (1, 2, 3), (0, 1), (0, 1))
]


@pytest.mark.parametrize(("shape", "attributes"), ONNX_WINDOWS)
@pytest.mark.parametrize(
    ("opset", "more"), [(7, {}), (8, {}), (11, {}), (12, {"dilations": 2}), (22, {})]
)
def test_max_pool_like_onnxruntime(shape: tuple, attributes: dict, opset: int, more: dict) -> None:
    rank = len(shape) - 2
    if more and "auto_pad" not in attributes:
        attributes = {**attributes, "dilations": [2, *[1] * (rank - 1)]}
    assert_like_onnxruntime("MaxPool", {"x": normal(*shape)}, opset=opset, **attributes)


@pytest.mark.parametrize(("shape", "attributes"), CEIL)
def test_ceil_mode_like_onnxruntime(shape: tuple, attributes: dict) -> None:
    inputs = {"x": normal(*shape)}
    assert_like_onnxruntime("MaxPool", inputs, opset=12, **attributes)
    for include in (0, 1):
        options = {**attributes, "count_include_pad": include}
        assert_like_onnxruntime("AveragePool", inputs, opset=19, **CLOSE, **options)


@pytest.mark.parametrize("storage_order", [0, 1])
@pytest.mark.parametrize("shape", [(2, 3, 6), (2, 3, 6, 5), (1, 2, 4, 5, 6)])
def test_max_pool_indices_like_onnxruntime(storage_order: int, shape: tuple) -> None:
    rank = len(shape) - 2
    assert_like_onnxruntime(
        "MaxPool",
        {"x": normal(*shape)},
        ["y", "i"],
        opset=12,
        kernel_shape=[3] * rank,
        strides=[2] * rank,
        pads=[1] * 2 * rank,
        storage_order=storage_order,
    )


@pytest.mark.parametrize(("shape", "attributes"), ONNX_WINDOWS)
@pytest.mark.parametrize("include", [0, 1])
@pytest.mark.parametrize("opset", [7, 10, 11, 19, 22])
def test_average_pool_like_onnxruntime(
    shape: tuple, attributes: dict, include: int, opset: int
) -> None:
    options = {**attributes, "count_include_pad": include}
    assert_like_onnxruntime("AveragePool", {"x": normal(*shape)}, opset=opset, **CLOSE, **options)


def test_pools_of_opset_1() -> None:
    x = normal(1, 1, 4)
    for operator, fn in (("MaxPool", np.max), ("AveragePool", np.mean)):
        got = run_here(node_model(operator, {"x": x}, opset=1, kernel_shape=[4]), {"x": x})
        assert_same(got, [fn(x, -1, keepdims=True)], **CLOSE)
    got = run_here(node_model("LpPool", {"x": x}, opset=1, kernel_shape=[4], p=3.0), {"x": x})
    assert_same(got, [np.sum(np.abs(x) ** 3, -1, keepdims=True) ** (1 / 3)], **CLOSE)


def test_same_padding_with_strides_wider_than_the_window() -> None:
    x = np.arange(6, dtype=np.float32).reshape(1, 1, 6)
    model = node_model("MaxPool", {"x": x}, kernel_shape=[2], strides=[4], auto_pad="SAME_LOWER")
    assert_same(run_here(model, {"x": x}), [np.array([[[1, 5]]], np.float32)])


def test_valid_padding_does_not_round_up() -> None:
    x = normal(1, 1, 4)
    attributes: dict[str, Any] = {"kernel_shape": [3], "strides": [2], "ceil_mode": 1}
    got = run_here(node_model("MaxPool", {"x": x}, auto_pad="VALID", **attributes), {"x": x})
    assert got[0].shape == (1, 1, 1)  # ceil((4 - 3 + 1) / 2)


@pytest.mark.parametrize("p", [1, 2, 3])
@pytest.mark.parametrize(("shape", "attributes"), ONNX_WINDOWS[:2])
def test_lp_pool_like_onnxruntime(p: int, shape: tuple, attributes: dict) -> None:
    for opset in (11, 18, 22):
        options = {**attributes, "p": p}
        assert_like_onnxruntime("LpPool", {"x": normal(*shape)}, opset=opset, **CLOSE, **options)


@pytest.mark.parametrize("shape", [(2, 3, 4), (2, 3, 4, 5), (1, 2, 3, 4, 5)])
@pytest.mark.parametrize(
    ("operator", "attributes"),
    [
        ("GlobalAveragePool", {}),
        ("GlobalMaxPool", {}),
        ("GlobalLpPool", {}),
        ("GlobalLpPool", {"p": 1}),
        ("GlobalLpPool", {"p": 3}),
    ],
)
def test_global_pools_like_onnxruntime(shape: tuple, operator: str, attributes: dict) -> None:
    for opset in (7,) if operator == "GlobalLpPool" else (7, 22):
        assert_like_onnxruntime(operator, {"x": normal(*shape)}, opset=opset, **CLOSE, **attributes)


def test_global_lp_pool_of_opset_1_and_of_narrow_floats() -> None:
    x = np.array([[[300, 400]]], np.float16)
    got = run_here(node_model("GlobalLpPool", {"x": x}, opset=1, p=2.0), {"x": x})
    assert_same(got, [np.array([[[500]]], np.float16)])


def test_max_unpool_inverts_max_pool() -> None:
    x = normal(2, 3, 6, 4)
    out, indices = pool_with_indices(x, [2, 2], strides=[2, 2])
    inputs = {"x": out, "i": indices}
    attributes: dict[str, Any] = {"kernel_shape": [2, 2], "strides": [2, 2]}
    model = node_model("MaxUnpool", inputs, opset=11, **attributes)
    got = run_here(model, inputs)
    assert_same(got, run_onnxruntime(model, inputs))
    assert_same([pool(got[0], "max", [2, 2], strides=[2, 2])], [np.maximum(out, 0)])
    larger = {**inputs, "shape": np.array([2, 3, 7, 5])}
    for constant in ((), ("shape",)):
        model = node_model("MaxUnpool", larger, opset=22, constant=constant, **attributes)
        assert_same(run_here(model, larger), [np.pad(got[0], [(0, 0), (0, 0), (0, 1), (0, 1)])])


def test_max_unpool_refuses_indices_outside() -> None:
    inputs = {"x": normal(1, 1, 2), "i": np.array([[[0, 4]]])}
    model = node_model("MaxUnpool", inputs, opset=11, kernel_shape=[2], strides=[2])
    with pytest.raises(ExecutionError, match="index 4"):
        run_here(model, inputs)


@pytest.mark.parametrize(
    ("operator", "attributes"),
    [
        ("MaxPool", {}),
        ("MaxPool", {"kernel_shape": [2]}),
        ("MaxPool", {"kernel_shape": [2, 2], "storage_order": 2}),
        ("LpPool", {"kernel_shape": [2, 2], "p": 0}),
        ("AveragePool", {"kernel_shape": [2, 2], "pads": [1, 1, 1]}),
    ],
)
def test_wrong_attributes_are_refused(operator: str, attributes: dict) -> None:
    with pytest.raises(MalformedModelError, match="node node"):
        run_here(node_model(operator, {"x": normal(1, 1, 4, 4)}, **attributes), {})
