"""Running sums and products."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from kn_graph.errors import DTypeError, ExecutionError, ShapeError
from kn_graph.graph import Graph
from kn_graph.onnx import load_graph_from_onnx_bytes
from kn_graph.ops.cumulative import Cumulative
from tests.ops.single_node import assert_like_onnxruntime, node_model, run_here

F32 = np.float32


def cumulated(op: str, x: Any, axis: Any = 0, *, constant: bool = True, **attributes: Any) -> Any:
    inputs = {"x": x, "axis": np.array(axis, np.int64)}
    names = ["axis"] if constant else []
    return run_here(node_model(op, inputs, opset=26, constant=names, **attributes), inputs)[0]


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("exclusive", [0, 1])
@pytest.mark.parametrize("reverse", [0, 1])
@pytest.mark.parametrize("dtype", [F32, np.float64, np.int32, np.int64])
def test_cumsum_agrees_with_onnxruntime(
    axis: int, exclusive: int, reverse: int, dtype: Any
) -> None:
    x = np.random.default_rng(0).integers(-5, 5, (3, 4)).astype(dtype)
    for constant in ([], ["axis"]):
        assert_like_onnxruntime(
            "CumSum",
            {"x": x, "axis": np.array(axis)},
            opset=14,
            constant=constant,
            exclusive=exclusive,
            reverse=reverse,
        )


@pytest.mark.parametrize(
    ("exclusive", "reverse", "want"),
    [(0, 0, [1, 2, 6]), (1, 0, [1, 1, 2]), (0, 1, [6, 6, 3]), (1, 1, [6, 3, 1])],
)
def test_cumprod_is_as_onnx_shows_it(exclusive: int, reverse: int, want: list[int]) -> None:
    x = np.array([1, 2, 3], F32)
    got = cumulated("CumProd", x, exclusive=exclusive, reverse=reverse)
    np.testing.assert_array_equal(got, np.array(want, F32))


@pytest.mark.parametrize("op", ["CumSum", "CumProd"])
@pytest.mark.parametrize("flags", [(0, 0), (1, 0), (0, 1), (1, 1)])
@pytest.mark.parametrize("shape", [(0,), (2, 0), (0, 2), (1,)])
def test_empty_and_single_axes(op: str, flags: tuple[int, int], shape: tuple[int, ...]) -> None:
    x = np.full(shape, 5, F32)
    got = cumulated(op, x, -1, exclusive=flags[0], reverse=flags[1])
    assert got.shape == shape
    if shape == (1,):
        assert got[0] == (5 if not flags[0] else op == "CumProd")


def test_nan_spreads_to_what_comes_later() -> None:
    x = np.array([1, np.nan, 2], F32)
    np.testing.assert_array_equal(cumulated("CumSum", x), [1, np.nan, np.nan])
    np.testing.assert_array_equal(cumulated("CumSum", x, reverse=1), [np.nan, np.nan, 2])


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_narrow_floats_accumulate_in_float32(dtype: Any) -> None:
    got = cumulated("CumSum", np.ones(3000, dtype))
    assert got.dtype == dtype
    np.testing.assert_array_equal(got, np.arange(1, 3001, dtype=F32).astype(dtype))


def test_integers_wrap() -> None:
    x = np.array([2**30, 2**30, 1], np.int32)
    np.testing.assert_array_equal(cumulated("CumSum", x), [2**30, -(2**31), -(2**31) + 1])


def test_a_wrong_axis_is_refused() -> None:
    x = np.ones((2, 3), F32)
    with pytest.raises(ShapeError, match="axis 2"):
        cumulated("CumSum", x, 2)
    with pytest.raises(ExecutionError, match="index 2 is out of range for axis 0 of size 2"):
        cumulated("CumSum", x, 2, constant=False)
    np.testing.assert_array_equal(cumulated("CumSum", x, -2, constant=False), np.cumsum(x, 0))


def test_booleans_and_scalars_are_refused() -> None:
    g = Graph()
    b, s = g.input("b", "bool", [2]), g.input("s", "float32", [])
    with pytest.raises(DTypeError, match="numbers"):
        g.cumulative("sum", b, 0)
    with pytest.raises(ShapeError, match="rank 0"):
        g.push(Cumulative("sum", 0), s)


def test_symbolic_sizes_are_kept() -> None:
    inputs = {"x": np.ones((2, 3), F32), "axis": np.array(1)}
    model = node_model("CumSum", inputs, constant=["axis"], symbolic={"x": ("n", None)})
    assert str(load_graph_from_onnx_bytes(model).outputs["y"].type) == "float32[n, x_1]"
