"""Reductions: values, NaN, nothing, axes in every form, sizes, and what is refused."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from kn_graph.dtype import DType
from kn_graph.errors import DTypeError, ExecutionError, KnError, MalformedModelError, ShapeError
from kn_graph.graph import Graph
from kn_graph.onnx import load_graph_from_onnx_bytes
from kn_graph.ops.reduce import ReduceTo, identity_of
from kn_graph.reference import cpu_eval_graph
from kn_graph.value import Value
from tests.ops.single_node import (
    assert_like_onnxruntime,
    assert_same,
    node_model,
    run_here,
    run_onnxruntime,
)

F32 = np.float32
CLOSE: dict[str, Any] = {"rtol": 1e-6, "atol": 1e-6}
NUMBERS = ["ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum"]
FORMULAS = ["ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare"]
NUMPY: dict[str, Any] = {
    "sum": np.sum, "mean": np.mean, "prod": np.prod, "max": np.max, "min": np.min,
}  # fmt: skip


def random(*shape: int, dtype: Any = F32) -> Any:
    return np.random.default_rng(0).uniform(0.5, 2, shape).astype(dtype)


def reduced(fn: Any, x: Any, axes: Any, *, keep: bool = False, shape: Any = None) -> Any:
    g = Graph()
    v = g.input("x", DType.from_numpy(x.dtype), x.shape if shape is None else shape)
    g.output("y", g.reduce(fn, v, axes, keep=keep))
    return cpu_eval_graph(g, {"x": x})["y"]


# ---- the operation --------------------------------------------------------------------------


@pytest.mark.parametrize("fn", sorted(NUMPY))
@pytest.mark.parametrize("axes", [(0,), (-1,), (0, 2), (2, 0, 1), ()])
@pytest.mark.parametrize("keep", [False, True])
def test_reduce_agrees_with_numpy(fn: str, axes: Any, keep: bool) -> None:
    x = random(2, 3, 4)
    want = NUMPY[fn](x, axis=axes, keepdims=keep) if axes else x
    np.testing.assert_allclose(reduced(fn, x, axes, keep=keep), want, rtol=1e-6)


@pytest.mark.parametrize("fn", sorted(NUMPY))
def test_reduce_spreads_nan_wherever_it_stands(fn: str) -> None:
    x = np.array([[np.nan, 1, 2], [1, np.nan, 2], [1, 2, np.nan]], F32)
    assert np.isnan(reduced(fn, x, [1])).all()


NOTHING = {
    ("sum", F32): 0, ("prod", F32): 1, ("mean", F32): np.nan, ("max", F32): -np.inf,
    ("min", F32): np.inf, ("max", np.int32): -(2**31), ("min", np.uint8): 255,
    ("max", ml_dtypes.bfloat16): -np.inf, ("sum", np.int64): 0, ("mean", np.int64): 0,
    ("any", np.bool_): False, ("all", np.bool_): True, ("max", np.bool_): False,
    ("min", np.bool_): True, ("max", ml_dtypes.int4): -8, ("min", ml_dtypes.float8_e4m3fn): 448,
}  # fmt: skip


@pytest.mark.parametrize(("fn", "dtype"), NOTHING)
def test_reduce_over_nothing_gives_the_identity(fn: str, dtype: Any) -> None:
    want = NOTHING[fn, dtype]
    for axes, shape in [((1,), (3,)), ((0, 1), ())]:
        got = reduced(fn, np.zeros((3, 0), dtype), axes)
        assert (got.dtype, got.shape) == (np.dtype(dtype), shape)
        np.testing.assert_array_equal(got.astype(np.float64), np.full(shape, want))
    assert reduced(fn, np.zeros((3, 0), dtype), [0]).shape == (0,)


def test_identity_changes_nothing_when_combined() -> None:
    assert identity_of("max", DType.FLOAT16) == -np.inf
    assert identity_of("max", DType.FLOAT8E4M3FN) == -448
    assert identity_of("min", DType.UINT4) == 15


def test_integers_wrap_and_their_mean_truncates_without_floats() -> None:
    assert reduced("sum", np.array([100, 100], np.int8), [0]) == -56
    assert reduced("prod", np.array([2**40, 2**40], np.int64), [0]) == 0
    assert reduced("sum", np.array([7, 7], ml_dtypes.int4), [0]).astype(int) == -2
    mean = reduced("mean", np.array([[-3, -4], [3, 4]], np.int64), [1])
    np.testing.assert_array_equal(mean, [-3, 3])
    odd = 2**62 + 1
    assert reduced("mean", np.array([odd], np.int64), [0]) == odd
    assert reduced("mean", np.array([2**63 + 1], np.uint64), [0]) == 2**63 + 1


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_narrow_floats_accumulate_in_float32(dtype: Any) -> None:
    x = np.full(5000, 1.0, dtype)
    assert reduced("sum", x, [0]) == np.float32(5000).astype(dtype)
    assert reduced("mean", x, [0]) == 1
    assert reduced("sum", np.full(3, 60000, np.float16), [0]) == np.inf


def test_any_and_all_reduce_booleans_only() -> None:
    x = np.array([[True, False], [True, True]])
    np.testing.assert_array_equal(reduced("all", x, [1]), [False, True])
    np.testing.assert_array_equal(reduced("any", x, [1]), [True, True])
    np.testing.assert_array_equal(reduced("min", x, [1]), [False, True])
    for fn, wrong in [("any", x.astype(F32)), ("sum", x), ("max", np.array(["a"], object))]:
        with pytest.raises(DTypeError, match=fn):
            reduced(fn, wrong, [0])


def test_reduce_of_rank_0_and_of_no_axes_is_the_operand() -> None:
    g = Graph()
    x, s = g.input("x", "float32", [2]), g.input("s", "float32", [])
    assert g.reduce("sum", x, []) is x
    assert g.reduce("max", s) is s


def test_reduce_refuses_axes_that_do_not_exist_or_repeat() -> None:
    for axes, text in [([2], "axis 2"), ([0, -2], "twice")]:
        with pytest.raises(ShapeError, match=text):
            reduced("sum", random(2, 3), axes)


def test_strided_operands_are_read_right() -> None:
    x = random(4, 6)[::2, ::-3]
    np.testing.assert_allclose(reduced("sum", x, [0]), x.sum(0), rtol=1e-6)


# ---- what is known of sizes -----------------------------------------------------------------


def content(v: Value) -> list[Any]:
    assert v.content is not None
    out: list[Any] = v.content.ravel().tolist()
    return out


def test_reductions_of_sizes_stay_symbolic() -> None:
    g = Graph()
    x = g.input("x", "float32", ["n", 3, "m"])
    n, _, m = x.shape
    sizes = g.size_tensor(x.shape)
    assert content(g.reduce("prod", sizes, [0])) == [n * m * 3]
    assert content(g.reduce("sum", sizes)) == [n + m + 3]
    grid = g.view(g.size_tensor((n, 2, m, 4)), (2, 2))
    assert content(g.reduce("prod", grid, [1])) == [n * 2, m * 4]
    assert content(g.reduce("max", g.size_tensor((n, 1)), [0])) == [n]  # n >= 1
    empty = g.constant(np.zeros((2, 0), np.int64))
    assert content(g.reduce("sum", empty, [1])) == [0, 0]
    assert g.reduce("max", empty, [1]).content is None


# ---- reduce to a shape ----------------------------------------------------------------------


def test_reduce_to_is_the_opposite_of_broadcast() -> None:
    g = Graph()
    x = g.input("x", "float32", ["n", 3, 4])
    g.output("y", g.reduce_to("sum", x, (1, 3, 1)))
    g.output("z", g.reduce_to("mean", x, (x.shape[0], 1, 4)))
    assert g.reduce_to("sum", x, x.shape) is x
    data = random(2, 3, 4)
    out = cpu_eval_graph(g, {"x": data})
    np.testing.assert_allclose(out["y"], data.sum((0, 2), keepdims=True), rtol=1e-6)
    np.testing.assert_allclose(out["z"], data.mean(1, keepdims=True), rtol=1e-6)


def test_reduce_to_refuses_other_sizes() -> None:
    g = Graph()
    x, k = g.input("x", "float32", [4, 3]), g.input("k", "int64", [])
    with pytest.raises(ShapeError, match="axis 0 has size 4"):
        g.reduce_to("sum", x, (2, 3))
    with pytest.raises(ShapeError, match="ranks"):
        g.reduce_to("sum", x, (1,))
    (size,) = g.read_sizes(k)
    g.output("y", g.push(ReduceTo("sum", (size, 3)), x))
    with pytest.raises(ExecutionError, match=r"\[4, 3\] to \[2, 3\]"):
        cpu_eval_graph(g, {"x": random(4, 3), "k": np.array(2)})


# ---- ArgReduce and Det ----------------------------------------------------------------------


@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("keep", [0, 1])
def test_arg_extremes_agree_with_onnxruntime(op: str, axis: int, last: int, keep: int) -> None:
    x = np.array([[1, 2, 2], [2, 2, 1], [3, 1, 3]], F32)
    assert_like_onnxruntime(op, {"x": x}, axis=axis, select_last_index=last, keepdims=keep)


def test_arg_extremes_of_nan_are_the_first_or_last_nan() -> None:
    x = np.array([[1, np.nan, 5, np.nan]], F32)
    for op in ("ArgMax", "ArgMin"):
        for last, want in [(0, 1), (1, 3)]:
            model = node_model(op, {"x": x}, axis=1, select_last_index=last, keepdims=0)
            assert run_here(model, {"x": x})[0].tolist() == [want]


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.int64, np.float16, ml_dtypes.bfloat16])
def test_arg_extremes_of_every_width(dtype: Any) -> None:
    x = np.array([[3, 1, 2], [0, 5, 5]]).astype(dtype)
    model = node_model("ArgMax", {"x": x}, axis=1, keepdims=0)
    np.testing.assert_array_equal(run_here(model, {"x": x})[0], [0, 1])


def test_arg_extremes_need_an_element() -> None:
    with pytest.raises(ShapeError, match="needs an element"):
        load_graph_from_onnx_bytes(node_model("ArgMax", {"x": np.zeros((2, 0), F32)}, axis=1))
    empty = np.zeros((0, 3), F32)
    assert run_here(node_model("ArgMax", {"x": empty}, axis=1), {"x": empty})[0].shape == (0, 1)
    model = node_model("ArgMax", {"x": empty}, axis=0, symbolic={"x": ("n", 3)})
    with pytest.raises(KnError):
        run_here(model, {"x": empty})


def test_select_last_index_is_not_known_before_opset_12() -> None:
    with pytest.raises(KnError, match="select_last_index"):
        run_here(node_model("ArgMax", {"x": random(2)}, opset=11, select_last_index=1), {})


@pytest.mark.parametrize("shape", [(2, 2), (3, 1, 1), (0, 2, 2), (2, 3, 4, 4)])
def test_det_agrees_with_numpy(shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).normal(size=shape).astype(F32)
    (got,) = run_here(node_model("Det", {"x": x}), {"x": x})
    assert got.dtype == F32
    np.testing.assert_allclose(got, np.linalg.det(x.astype(np.float64)), rtol=1e-4, atol=1e-5)


def test_det_of_no_rows_is_1_and_of_a_singular_matrix_0() -> None:
    for n, want in [(0, 1), (2, 0)]:
        zeros = np.zeros((n, n), F32)
        assert run_here(node_model("Det", {"x": zeros}), {"x": zeros})[0] == want
    half = np.array([[1, 2], [3, 4]], np.float16)
    assert run_here(node_model("Det", {"x": half}, opset=22), {"x": half})[0] == -2
    for x in (np.zeros((2, 3), F32), np.zeros(2, F32), np.zeros((2, 2), np.int32)):
        with pytest.raises((ShapeError, DTypeError)):
            load_graph_from_onnx_bytes(node_model("Det", {"x": x}))


# ---- converters -----------------------------------------------------------------------------


def axes_options(op: str, opset: int, axes: Any, keep: int) -> tuple[dict[str, Any], dict]:
    """Return the extra inputs and the attributes that give axes at an opset."""
    as_input = opset >= (13 if op == "ReduceSum" else 18)
    attributes: dict[str, Any] = {"keepdims": keep}
    if axes is None:
        return {}, attributes
    if as_input:
        return {"axes": np.array(axes, np.int64)}, attributes
    return {}, {**attributes, "axes": axes}


@pytest.mark.parametrize("op", NUMBERS + FORMULAS)
@pytest.mark.parametrize("opset", [8, 11, 13, 18, 20])
@pytest.mark.parametrize("axes", [None, [1], [-1, 0]])
@pytest.mark.parametrize("keep", [0, 1])
def test_reductions_agree_with_onnxruntime(op: str, opset: int, axes: Any, keep: int) -> None:
    extra, attributes = axes_options(op, opset, axes, keep)
    inputs = {"x": random(2, 3, 4), **extra}
    assert_like_onnxruntime(op, inputs, opset=opset, constant=list(extra), **attributes, **CLOSE)


@pytest.mark.parametrize("op", NUMBERS + FORMULAS)
@pytest.mark.parametrize("axes", [[0], [-1, 0], [2, 1, 0], []])
@pytest.mark.parametrize("keep", [0, 1])
def test_axes_given_at_run_time(op: str, axes: list[int], keep: int) -> None:
    inputs = {"x": random(2, 3, 4), "axes": np.array(axes, np.int64)}
    assert_like_onnxruntime(op, inputs, opset=18, keepdims=keep, **CLOSE)


def test_axes_given_at_run_time_must_exist() -> None:
    x = random(2, 3)
    model = node_model("ReduceSum", {"x": x, "axes": np.array([1])}, opset=18)
    with pytest.raises(ExecutionError, match="index 2 is out of range for axis 0 of size 2"):
        run_here(model, {"x": x, "axes": np.array([2])})
    many = node_model("ReduceSum", {"x": x, "a": np.array([0])}, symbolic={"a": ("k",)})
    with pytest.raises(KnError, match="rank must be known"):
        load_graph_from_onnx_bytes(many)


@pytest.mark.parametrize("op", NUMBERS + FORMULAS)
@pytest.mark.parametrize("noop", [0, 1])
@pytest.mark.parametrize("empty", [True, False])
def test_empty_axes_reduce_all_or_nothing_but_formulas_still_apply(
    op: str, noop: int, empty: bool
) -> None:
    x = random(2, 3)
    inputs: dict[str, Any] = {"x": x, **({"axes": np.zeros(0, np.int64)} if empty else {})}
    constant = ["axes"] if empty else []
    model = node_model(op, inputs, opset=20, constant=constant, noop_with_empty_axes=noop)
    (got,) = run_here(model, inputs)
    if not noop:
        assert got.shape == (1, 1)
        return
    pointwise = {"ReduceL1": np.abs, "ReduceLogSum": np.log, "ReduceSumSquare": np.square}
    np.testing.assert_allclose(got, pointwise.get(op, lambda a: a)(x), rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("op", ["ReduceL1", "ReduceMax", "ReduceMean", "ReduceSum", "ReduceProd"])
def test_integer_reductions_agree_with_onnxruntime(op: str, dtype: Any) -> None:
    x = np.array([[1, -5, 3], [-7, 2, 2]], dtype)
    extra, attributes = axes_options(op, 18, [1], 0)
    constant = list(extra)
    assert_like_onnxruntime(op, {"x": x, **extra}, opset=18, constant=constant, **attributes)


def test_integer_roots_truncate() -> None:
    x = np.array([3, 4, 1], np.int32)
    assert run_here(node_model("ReduceL2", {"x": x}, opset=13, keepdims=0), {"x": x})[0] == 5


@pytest.mark.parametrize("op", ["ReduceMax", "ReduceMin"])
def test_extremes_of_booleans_since_opset_20(op: str) -> None:
    x = np.array([[True, False], [True, True]])
    inputs = {"x": x, "axes": np.array([1])}
    assert_like_onnxruntime(op, inputs, opset=20, constant=["axes"], keepdims=0)


def test_log_sum_exp_is_stable_and_keeps_infinities() -> None:
    big = np.array([[1000, 1000], [-1000, -1000], [np.inf, 1], [-np.inf, -np.inf]], F32)
    model = node_model("ReduceLogSumExp", {"x": big}, opset=13, axes=[1], keepdims=0)
    log2 = np.log(2)
    np.testing.assert_allclose(
        run_here(model, {"x": big})[0], [1000 + log2, log2 - 1000, np.inf, -np.inf], rtol=1e-6
    )
    empty, nan = np.zeros((1, 0), F32), np.array([[np.nan, np.inf]], F32)
    for x, want in [(empty, -np.inf), (nan, np.nan)]:
        model = node_model("ReduceLogSumExp", {"x": x}, opset=13, axes=[1], keepdims=0)
        np.testing.assert_array_equal(run_here(model, {"x": x})[0], [want])


def test_narrow_formulas_are_rounded_once() -> None:
    x = np.full((64,), 300, np.float16)  # 300 * 300 overflows float16
    (got,) = run_here(node_model("ReduceL2", {"x": x}, keepdims=0), {"x": x})
    assert got.dtype == np.float16
    assert got == 2400
    x = random(50, 9, dtype=np.float16)
    inputs = {"x": x, "axes": np.array([1])}
    model = node_model("ReduceSumSquare", inputs, constant=["axes"], keepdims=0)
    want = np.square(x.astype(F32)).sum(1).astype(np.float16)
    np.testing.assert_array_equal(run_here(model, inputs)[0], want)


def test_mean_over_nothing_is_nan_where_onnxruntime_says_0() -> None:
    x = np.zeros((2, 0), F32)
    model = node_model("ReduceMean", {"x": x}, opset=13, axes=[1], keepdims=0)
    assert np.isnan(run_here(model, {"x": x})[0]).all()
    assert_same(run_onnxruntime(model, {"x": x}), [np.zeros(2, F32)])


def test_symbolic_sizes_are_kept() -> None:
    x = random(2, 3)
    model = node_model("ReduceSum", {"x": x}, opset=11, axes=[1], symbolic={"x": ("n", "m")})
    graph = load_graph_from_onnx_bytes(model)
    assert str(graph.outputs["y"].type) == "float32[n, 1]"


def test_attributes_of_other_opsets_are_refused() -> None:
    x = random(2)
    with pytest.raises(KnError, match="axes"):
        run_here(node_model("ReduceSum", {"x": x}, opset=13, axes=[0]), {"x": x})
    with pytest.raises(MalformedModelError, match="keepdims"):
        run_here(node_model("ReduceSum", {"x": x}, keepdims=2), {"x": x})
