"""TopK: order, ties, NaN, numbers known and not."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from kn_graph.errors import DTypeError, ExecutionError, KnError, MalformedModelError, ShapeError
from kn_graph.graph import Graph
from kn_graph.onnx import load_graph_from_onnx_bytes
from kn_graph.reference import cpu_eval_graph
from tests.ops.single_node import assert_like_onnxruntime, assert_same, node_model, run_here

F32 = np.float32
OUT = ("values", "indices")


def topped(x: Any, k: int, *, constant: bool = True, **options: Any) -> list[Any]:
    inputs = {"x": x, "k": np.array([k], np.int64)}
    names = ["k"] if constant else []
    return run_here(node_model("TopK", inputs, OUT, constant=names, **options), inputs)


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize("k", [0, 1, 3, 4])
@pytest.mark.parametrize("dtype", [F32, np.float64, np.int32, np.int64])
def test_top_k_agrees_with_onnxruntime(axis: int, largest: int, k: int, dtype: Any) -> None:
    x = np.random.default_rng(0).integers(-3, 3, (4, 5)).astype(dtype)  # with ties
    inputs = {"x": x, "k": np.array([k])}
    for constant in ([], ["k"]):
        assert_like_onnxruntime(
            "TopK", inputs, OUT, opset=11, constant=constant, axis=axis, largest=largest
        )


def test_top_k_of_opsets_1_and_10() -> None:
    x = np.array([[3, 1, 2]], F32)
    want = [np.array([[3, 2]], F32), np.array([[0, 2]])]
    assert_same(run_here(node_model("TopK", {"x": x}, OUT, opset=1, k=2), {"x": x}), want)
    assert_same(topped(x, 2, opset=10), want)
    assert_same(topped(x, 2, opset=24), want)
    with pytest.raises(KnError, match="largest"):
        topped(x, 2, opset=10, largest=0)
    with pytest.raises(MalformedModelError, match="'k' is required"):
        run_here(node_model("TopK", {"x": x}, OUT, opset=1), {"x": x})


def test_unsorted_results_hold_the_same_elements() -> None:
    x = np.array([3, 1, 2, 5], F32)
    values, indices = topped(x, 2, sorted=0)
    assert set(values) == {3, 5}
    np.testing.assert_array_equal(x[indices], values)


def test_of_equal_elements_the_lower_index_comes_first() -> None:
    x = np.array([1, 2, 2, 1, 2], np.uint8)
    assert topped(x, 4)[1].tolist() == [1, 2, 4, 0]
    assert topped(x, 4, largest=0)[1].tolist() == [0, 3, 1, 2]
    zeros = np.array([0.0, -0.0, 0.0], F32)
    assert topped(zeros, 3)[1].tolist() == [0, 1, 2]


@pytest.mark.parametrize("dtype", [F32, np.float16, ml_dtypes.bfloat16])
def test_a_nan_is_larger_than_every_number(dtype: Any) -> None:
    x = np.array([1, np.nan, np.inf, np.nan, -np.inf], dtype)
    assert topped(x, 5, opset=24)[1].tolist() == [1, 3, 2, 0, 4]
    assert topped(x, 5, opset=24, largest=0)[1].tolist() == [4, 0, 2, 1, 3]


def test_extreme_integers_keep_their_order() -> None:
    x = np.array([0, -(2**63), 2**63 - 1], np.int64)
    assert topped(x, 3)[0].tolist() == [2**63 - 1, 0, -(2**63)]
    u = np.array([0, 2**64 - 1, 1], np.uint64)
    assert topped(u, 3)[0].tolist() == [2**64 - 1, 1, 0]


def test_empty_axes() -> None:
    values, indices = topped(np.zeros((0, 3), F32), 2)
    assert (values.shape, indices.shape, indices.dtype) == ((0, 2), (0, 2), np.int64)
    assert topped(np.zeros((2, 0), F32), 0)[0].shape == (2, 0)


def test_too_many_elements_are_refused() -> None:
    x = np.ones((2, 3), F32)
    with pytest.raises(ShapeError, match="4 elements to take"):
        topped(x, 4)
    with pytest.raises(ExecutionError, match="axis 1 of \\[2, 3\\] has k elements to take"):
        topped(x, 4, constant=False)
    with pytest.raises(KnError):
        topped(x, -1, constant=False)


def test_numbers_that_are_sizes_stay_symbolic() -> None:
    g = Graph()
    x = g.input("x", "float32", ["n", "m"])
    values, indices = g.top_k(x, x.shape[0], 1)
    g.output("v", values)
    assert (str(values.type), str(indices.type)) == ("float32[n, n]", "int64[n, n]")
    out = cpu_eval_graph(g, {"x": np.array([[1, 3, 2], [6, 5, 4]], F32)})
    assert out["v"].tolist() == [[3, 2], [6, 5]]
    with pytest.raises(KnError, match="n"):  # n <= m is required
        cpu_eval_graph(g, {"x": np.ones((3, 2), F32)})


def test_a_number_read_at_run_time_is_a_size_of_both_results() -> None:
    inputs = {"x": np.ones((2, 3), F32), "k": np.array([1])}
    graph = load_graph_from_onnx_bytes(node_model("TopK", inputs, OUT))
    assert graph.outputs["values"].shape == graph.outputs["indices"].shape


def test_strings_and_booleans_have_no_order() -> None:
    g = Graph()
    for name, dtype in [("s", "string"), ("b", "bool")]:
        with pytest.raises(DTypeError, match="no order"):
            g.top_k(g.input(name, dtype, [2]), 1)
