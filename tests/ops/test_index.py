"""Positions and what is computed from them: Range, OneHot, Trilu, EyeLike, ReverseSequence."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from kn_graph.dtype import DType
from kn_graph.errors import DTypeError, KnError, MalformedModelError
from kn_graph.graph import Graph
from kn_graph.onnx import load_graph_from_onnx_bytes
from kn_graph.reference import cpu_eval_graph
from tests.ops.single_node import assert_like_onnxruntime, node_model, run_here

F32 = np.float32


# ---- Iota -----------------------------------------------------------------------------------


def test_iota_counts_and_small_ones_are_constant() -> None:
    g = Graph()
    n = g.symbol("n", lo=0)
    g.output("y", g.iota(n))
    g.output("wrapped", g.iota(300, DType.UINT8))
    known = g.iota(3, DType.INT32)
    assert known.constant is not None
    assert (known.constant.dtype, known.constant.tolist()) == (np.int32, [0, 1, 2])
    for count in (0, 4):
        out = cpu_eval_graph(g, {}, dims={"n": count})
        assert out["y"].tolist() == list(range(count))
        assert out["wrapped"][299] == 299 - 256
    with pytest.raises(DTypeError, match="integers"):
        g.iota(3, DType.FLOAT32)


# ---- Range ----------------------------------------------------------------------------------

RANGES = [
    (0, 5, 1),
    (3, 9, 3),
    (10, 4, -2),
    (1, 8, 3),
    (5, 5, 1),
    (5, 0, 1),
    (0, 5, -1),
    (-3, 3, 2),
]


@pytest.mark.parametrize("bounds", RANGES)
@pytest.mark.parametrize("dtype", [np.int16, np.int32, np.int64, F32, np.float64])
@pytest.mark.parametrize("constant", [(), ("start", "limit", "delta"), ("start", "delta")])
def test_range_agrees_with_onnxruntime(bounds: Any, dtype: Any, constant: Any) -> None:
    inputs = dict(zip(("start", "limit", "delta"), np.array(bounds, dtype), strict=True))
    assert_like_onnxruntime("Range", inputs, opset=11, constant=constant)


@pytest.mark.parametrize("constant", [(), ("s", "l", "d")])
def test_range_of_fractions(constant: Any) -> None:
    for start, limit, delta in [(0, 1, 0.1), (1, 0, -0.3), (0.5, 0.50001, 1)]:
        inputs = {"s": F32(start), "l": F32(limit), "d": F32(delta)}
        # onnxruntime adds delta up; the ONNX text says start + i*delta
        assert_like_onnxruntime("Range", inputs, opset=11, constant=constant, rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("constant", [(), ("s", "l", "d")])
def test_narrow_ranges_are_computed_in_float32(dtype: Any, constant: Any) -> None:
    inputs = {n: np.array(v, dtype) for n, v in zip("sld", (0.5, 300, 1), strict=True)}
    (got,) = run_here(node_model("Range", inputs, opset=27, constant=constant), inputs)
    want = (F32(0.5) + np.arange(300, dtype=F32)).astype(dtype)
    np.testing.assert_array_equal(got, want)


def test_range_of_sizes_is_symbolic() -> None:
    from onnx import TensorProto, helper

    for limit, step, text in [("n", 1, "n"), ("n", 2, "((n+1)//2)"), ("zero", -1, "n")]:
        start = "n" if limit == "zero" else "zero"
        nodes = [
            helper.make_node("Shape", ["x"], ["s"]),
            helper.make_node("Constant", [], ["zero"], value_int=0),
            helper.make_node("Constant", [], ["step"], value_int=step),
            helper.make_node("Gather", ["s", "zero"], ["n"]),
            helper.make_node("Range", [start, limit, "step"], ["y"]),
        ]
        graph = load_graph_from_onnx_bytes(
            helper.make_model(
                helper.make_graph(
                    nodes,
                    "g",
                    [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"])],
                    [helper.make_tensor_value_info("y", TensorProto.INT64, None)],
                ),
                opset_imports=[helper.make_opsetid("", 13)],
                ir_version=10,
            ).SerializeToString()
        )
        (size,) = graph.outputs["y"].shape
        assert str(size) == text
        want = np.arange(5 if start == "n" else 0, 0 if start == "n" else 5, step)
        np.testing.assert_array_equal(cpu_eval_graph(graph, {"x": np.zeros(5, F32)})["y"], want)


def test_a_step_of_0_is_refused() -> None:
    for dtype in (np.int64, F32):
        inputs = {"s": dtype(0), "l": dtype(3), "d": dtype(0)}
        with pytest.raises(MalformedModelError, match="delta is 0"):
            run_here(node_model("Range", inputs, constant=["d"]), inputs)
    inputs = {"s": F32(0), "l": F32(np.inf), "d": F32(1)}
    with pytest.raises(MalformedModelError, match="inf elements"):
        run_here(node_model("Range", inputs, constant=["s", "l", "d"]), inputs)


# ---- OneHot ---------------------------------------------------------------------------------


@pytest.mark.parametrize("axis", [-1, 0, 1, 2, -3])
@pytest.mark.parametrize("kind", [np.int64, np.int32, F32])
@pytest.mark.parametrize("depth_kind", [np.int64, np.int32, F32])
@pytest.mark.parametrize("constant", [[], ["d"]])
def test_one_hot_agrees_with_onnxruntime(
    axis: int, kind: Any, depth_kind: Any, constant: Any
) -> None:
    supported = {(np.int64, np.int64), (np.int32, np.int32), (F32, F32), (np.int64, np.int32)}
    inputs = {
        "i": np.array([[0, 2], [-1, -3], [3, -4]], kind),
        "d": np.array([3], depth_kind),
        "v": np.array([2, 5], F32),
    }
    model = node_model("OneHot", inputs, opset=11, constant=constant, axis=axis)
    (got,) = run_here(model, inputs)
    wrapped = np.where(inputs["i"] < 0, inputs["i"] + 3, inputs["i"])
    hot = np.expand_dims(wrapped, axis) == np.arange(3).reshape(
        [3 if a == axis % 3 else 1 for a in range(3)]
    )
    np.testing.assert_array_equal(got, np.where(hot, F32(5), F32(2)))
    if (kind, depth_kind) in supported:
        assert_like_onnxruntime("OneHot", inputs, opset=11, constant=constant, axis=axis)


def test_one_hot_of_a_scalar_and_of_depth_0() -> None:
    inputs = {"i": np.array(1), "d": np.array(2), "v": np.array([0, 7], np.int8)}
    (got,) = run_here(node_model("OneHot", inputs), inputs)
    assert (got.dtype, got.tolist()) == (np.int8, [0, 7])
    inputs["d"] = np.array(0)
    assert run_here(node_model("OneHot", inputs), inputs)[0].shape == (0,)
    with pytest.raises(KnError, match="at least 0"):
        run_here(node_model("OneHot", inputs), {**inputs, "d": np.array(-1)})


# ---- Trilu and EyeLike ----------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(3, 4), (4, 3), (2, 3, 3), (1, 5), (0, 3), (2, 3, 0)])
@pytest.mark.parametrize("k", [None, 0, 1, -1, 7, -7])
@pytest.mark.parametrize("upper", [0, 1])
def test_trilu_agrees_with_onnxruntime(shape: Any, k: Any, upper: int) -> None:
    x = np.arange(1, np.prod(shape) + 1, dtype=np.int64).reshape(shape)
    inputs = {"x": x, **({} if k is None else {"k": np.array(k)})}
    for constant in ([], ["k"] if k is not None else []):
        assert_like_onnxruntime("Trilu", inputs, opset=14, constant=constant, upper=upper)


def test_trilu_drops_nan_and_keeps_every_type() -> None:
    x = np.full((2, 2), np.nan, F32)
    (got,) = run_here(node_model("Trilu", {"x": x}), {"x": x})
    np.testing.assert_array_equal(got, [[np.nan, np.nan], [0, np.nan]])
    for dtype in (np.bool_, ml_dtypes.bfloat16, np.float16):
        x = np.ones((2, 2)).astype(dtype)
        (got,) = run_here(node_model("Trilu", {"x": x}, upper=0), {"x": x})
        assert got.dtype == dtype
        assert got.astype(F32).tolist() == [[1, 0], [1, 1]]
    text = np.array([["a", "b"]], object)
    assert run_here(node_model("Trilu", {"x": text}, upper=0), {"x": text})[0].tolist() == [
        ["a", ""]
    ]
    with pytest.raises(MalformedModelError, match="matrices"):
        load_graph_from_onnx_bytes(node_model("Trilu", {"x": np.ones(2, F32)}))


@pytest.mark.parametrize("k", [0, 1, -2, 9])
@pytest.mark.parametrize("dtype", [None, 1, 7])
def test_eye_like_agrees_with_onnxruntime(k: int, dtype: Any) -> None:
    x = np.zeros((3, 4), np.int32)
    options = {"k": k} if dtype is None else {"k": k, "dtype": dtype}
    assert_like_onnxruntime("EyeLike", {"x": x}, opset=9, **options)


def test_eye_like_keeps_symbols_and_needs_a_matrix() -> None:
    model = node_model("EyeLike", {"x": np.zeros((2, 3), F32)}, symbolic={"x": ("n", "m")}, dtype=9)
    graph = load_graph_from_onnx_bytes(model)
    assert str(graph.outputs["y"].type) == "bool[n, m]"
    with pytest.raises(MalformedModelError, match="matrix"):
        load_graph_from_onnx_bytes(node_model("EyeLike", {"x": np.zeros(2, F32)}))


# ---- ReverseSequence ------------------------------------------------------------------------


@pytest.mark.parametrize("axes", [(0, 1), (1, 0)])
@pytest.mark.parametrize("lengths", [[4, 1, 3], [1, 2, 1]])
@pytest.mark.parametrize("rest", [(), (2,)])
def test_reverse_sequence_agrees_with_onnxruntime(axes: Any, lengths: Any, rest: Any) -> None:
    time, batch = axes
    shape = (4, 3) if time == 0 else (3, 4)
    x = np.arange(np.prod(shape + rest), dtype=F32).reshape(shape + rest)
    inputs = {"x": x, "n": np.array(lengths)}
    assert_like_onnxruntime("ReverseSequence", inputs, opset=10, time_axis=time, batch_axis=batch)


def test_reverse_sequence_of_length_0_changes_nothing() -> None:
    x = np.arange(4, dtype=F32).reshape(2, 2)
    inputs = {"x": x, "n": np.array([0, 2])}
    (got,) = run_here(node_model("ReverseSequence", inputs), inputs)
    np.testing.assert_array_equal(got, [[0, 3], [2, 1]])


def test_reverse_sequence_refuses_other_axes_and_lengths() -> None:
    x = np.zeros((2, 2, 2), F32)
    inputs = {"x": x, "n": np.array([1, 1])}
    with pytest.raises(MalformedModelError, match="0 and 1"):
        load_graph_from_onnx_bytes(node_model("ReverseSequence", inputs, time_axis=2))
    with pytest.raises(KnError):
        load_graph_from_onnx_bytes(node_model("ReverseSequence", {**inputs, "n": np.array([1])}))
    with pytest.raises(KnError, match="out of range"):
        run_here(node_model("ReverseSequence", inputs), {**inputs, "n": np.array([5, 1])})
