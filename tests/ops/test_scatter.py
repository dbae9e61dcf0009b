"""Writing by index: reductions, repeated indices, caches, and indices of sizes."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from kn_graph.dtype import DType
from kn_graph.errors import DTypeError, ExecutionError, KnError, MalformedModelError, ShapeError
from kn_graph.graph import Graph
from kn_graph.onnx import load_graph_from_onnx_bytes
from kn_graph.reference import cpu_eval_graph
from tests.ops.single_node import assert_like_onnxruntime, node_model, run_here

F32 = np.float32
REDUCTIONS = ["none", "add", "mul", "max", "min"]


def random(*shape: int, dtype: Any = F32) -> Any:
    return np.random.default_rng(0).normal(size=shape).astype(dtype)


def operands(x: Any, indices: Any, updates: Any) -> dict[str, Any]:
    return {"x": x, "i": np.array(indices, np.int64), "u": updates}


# ---- ScatterElements ------------------------------------------------------------------------


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("dtype", [F32, np.int32])
def test_scatter_elements_agrees_with_onnxruntime(axis: int, reduction: str, dtype: Any) -> None:
    x = (random(3, 3) * 4).astype(dtype)
    inputs = operands(x, [[0, -1, 1]], (random(1, 3) * 3).astype(dtype))
    assert_like_onnxruntime(
        "ScatterElements", inputs, opset=18, axis=axis, reduction=reduction, rtol=1e-6
    )


@pytest.mark.parametrize("op", ["Scatter", "ScatterElements"])
def test_the_oldest_forms(op: str) -> None:
    inputs = operands(random(2, 3), [[2, 0]], random(1, 2))
    opset = 9 if op == "Scatter" else 11
    assert_like_onnxruntime(op, inputs, opset=opset, axis=1)
    with pytest.raises(KnError, match="reduction"):
        run_here(node_model(op, inputs, opset=opset, reduction="none"), inputs)


@pytest.mark.parametrize(
    ("reduction", "want"), [("none", 3), ("add", 8), ("mul", 12), ("max", 3), ("min", 1)]
)
def test_repeated_indices_combine_all_updates(reduction: str, want: float) -> None:
    inputs = operands(np.array([2, 2], F32), [0, 0, 0], np.array([1, 2, 3], F32))
    for op, given in [
        ("ScatterElements", inputs),
        ("ScatterND", {**inputs, "i": inputs["i"].reshape(3, 1)}),
    ]:
        (got,) = run_here(node_model(op, given, reduction=reduction), given)
        np.testing.assert_array_equal(got, np.array([want, 2], F32))


def test_none_copies_nan_and_max_propagates_it() -> None:
    inputs = operands(np.array([1, np.nan, 1], F32), [0, 1], np.array([np.nan, 2], F32))
    for reduction, want in [("max", [np.nan, np.nan, 1]), ("none", [np.nan, 2, 1])]:
        model = node_model("ScatterElements", inputs, reduction=reduction)
        np.testing.assert_array_equal(run_here(model, inputs)[0], want)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_narrow_floats_are_combined_in_float32(dtype: Any) -> None:
    count = 4096
    inputs = operands(np.zeros(1, dtype), np.zeros(count), np.ones(count, dtype))
    (got,) = run_here(node_model("ScatterElements", inputs, reduction="add"), inputs)
    assert got == np.array(count).astype(dtype)


def test_integers_wrap_and_strings_are_only_replaced() -> None:
    inputs = operands(np.array([100], np.int8), [0], np.array([100], np.int8))
    assert run_here(node_model("ScatterElements", inputs, reduction="add"), inputs)[0] == -56
    texts = operands(np.array(["a", "b"], object), [1], np.array(["c"], object))
    assert run_here(node_model("ScatterElements", texts), texts)[0].tolist() == ["a", "c"]
    with pytest.raises(DTypeError, match="needs numbers"):
        load_graph_from_onnx_bytes(node_model("ScatterElements", texts, reduction="add"))


def test_nothing_to_write_leaves_everything() -> None:
    x = random(2, 3)
    inputs = operands(x, np.zeros((0, 3)), np.zeros((0, 3), F32))
    np.testing.assert_array_equal(run_here(node_model("ScatterElements", inputs), inputs)[0], x)
    inputs = operands(x, np.zeros((0, 1)), np.zeros((0, 3), F32))
    np.testing.assert_array_equal(run_here(node_model("ScatterND", inputs), inputs)[0], x)


@pytest.mark.parametrize(
    ("indices", "updates", "text"),
    [
        ((3, 3), (3, 3), "at axis 0"),
        ((2, 2), (2, 3), "as many updates"),
        ((2,), (2,), "ranks differ"),
        ((2, 2), (2,), "ranks differ"),
    ],
)
def test_scatter_elements_refuses_wrong_shapes(indices: Any, updates: Any, text: str) -> None:
    inputs = operands(random(2, 3), np.zeros(indices), np.zeros(updates, F32))
    with pytest.raises(ShapeError, match=text):
        load_graph_from_onnx_bytes(node_model("ScatterElements", inputs, axis=1))


def test_wrong_indices_and_types_are_refused() -> None:
    inputs = operands(random(2, 3), [[3]], np.ones((1, 1), F32))
    with pytest.raises(ExecutionError, match="index 3 is out of range for axis 1 of size 3"):
        run_here(node_model("ScatterElements", inputs, axis=1), inputs)
    with pytest.raises(ShapeError, match="index 3 exists"):
        load_graph_from_onnx_bytes(node_model("ScatterElements", inputs, constant=["i"], axis=1))
    inputs["u"] = inputs["u"].astype(np.float64)
    with pytest.raises(DTypeError, match="updates are float64"):
        load_graph_from_onnx_bytes(node_model("ScatterElements", inputs, axis=1))
    with pytest.raises(MalformedModelError, match="none, add, mul, got 'max'"):
        load_graph_from_onnx_bytes(node_model("ScatterElements", inputs, opset=17, reduction="max"))


# ---- ScatterND ------------------------------------------------------------------------------


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize(
    ("shape", "indices", "updates"),
    [
        ((4,), [[1], [-1]], (2,)),
        ((3, 2), [[1], [0]], (2, 2)),
        ((3, 2), [[1, 0], [2, -1]], (2,)),
        ((2, 2, 2), [[[0, 1]], [[1, 0]]], (2, 1, 2)),
        ((3,), [1], ()),
    ],
)
def test_scatter_nd_agrees_with_onnxruntime(
    reduction: str, shape: Any, indices: Any, updates: Any
) -> None:
    inputs = operands(random(*shape), indices, np.asarray(random(*updates), F32))
    assert_like_onnxruntime("ScatterND", inputs, opset=18, reduction=reduction, rtol=1e-6)


@pytest.mark.parametrize(
    ("indices", "updates", "text"),
    [
        ((2, 3), (2,), "not 3"),
        ((2, 1), (2, 2), "at axis 1"),
        ((2, 1), (2,), "expected"),
        ((2, 1), (1, 3), "at axis 0"),
    ],
)
def test_scatter_nd_refuses_wrong_shapes(indices: Any, updates: Any, text: str) -> None:
    inputs = operands(random(2, 3), np.zeros(indices), np.zeros(updates, F32))
    with pytest.raises(ShapeError, match=text):
        load_graph_from_onnx_bytes(node_model("ScatterND", inputs))


def test_scatter_nd_refuses_wrong_indices_and_old_reductions() -> None:
    inputs = operands(random(2, 3), [[0, 5]], np.ones(1, F32))
    with pytest.raises(ExecutionError, match="index 5 is out of range for axis 1 of size 3"):
        run_here(node_model("ScatterND", inputs), inputs)
    with pytest.raises(KnError, match="reduction"):
        load_graph_from_onnx_bytes(node_model("ScatterND", inputs, opset=13, reduction="add"))


@pytest.mark.parametrize("reduction", ["none", "add"])
def test_operands_are_not_changed(reduction: Any) -> None:
    g = Graph()
    x = g.constant(np.zeros((2, 2), F32))
    i, u = g.input("i", "int64", [1, 1]), g.input("u", "float32", [1, 1])
    g.output("y", g.scatter_elements(x, i, u, 0, reduction))
    g.output("x", x)
    out = cpu_eval_graph(g, {"i": np.array([[1]]), "u": np.ones((1, 1), F32)})
    assert out["y"].sum() == 1
    assert out["x"].sum() == 0


# ---- sizes ----------------------------------------------------------------------------------


def test_sizes_are_replaced_symbolically() -> None:
    g = Graph()
    n, m = g.symbol("n"), g.symbol("m")
    sizes = g.size_tensor((n, 3, m))
    one = g.constant(np.array([1]))
    updated = [
        g.scatter_nd(sizes, g.constant(np.array([[1]])), g.size_tensor((n * 2,))),
        g.scatter_elements(sizes, one, g.size_tensor((n * 2,)), 0),
    ]
    for v in updated:
        assert v.content is not None
        assert v.content.tolist() == [n, n * 2, m]
    added = g.scatter_elements(sizes, one, one, 0, "add")
    assert added.content is None


# ---- TensorScatter --------------------------------------------------------------------------


def written(cache: Any, update: Any, starts: Any, axis: int, mode: str) -> Any:
    """The pseudocode of the ONNX text."""
    out = cache.copy()
    for prefix in np.ndindex(cache.shape[:axis]):
        for step in range(update.shape[axis]):
            at = (0 if starts is None else starts[prefix[0]]) + step
            at = at % cache.shape[axis] if mode == "circular" else at
            out[(*prefix, at)] = update[(*prefix, step)]
    return out


@pytest.mark.parametrize("mode", ["linear", "circular"])
@pytest.mark.parametrize("axis", [1, 2, -2, -1])
@pytest.mark.parametrize("starts", [None, [0, 2], [1, 1]])
def test_tensor_scatter_is_as_onnx_writes_it(mode: str, axis: int, starts: Any) -> None:
    shape = [2, 5, 5, 5]
    cache = random(*shape)
    shape[axis] = 3
    update = random(*shape) + 10
    inputs = {"c": cache, "u": update, "w": None if starts is None else np.array(starts)}
    (got,) = run_here(node_model("TensorScatter", inputs, opset=24, axis=axis, mode=mode), inputs)
    np.testing.assert_array_equal(got, written(cache, update, starts, axis % 4, mode))


def test_only_a_circular_cache_wraps_around() -> None:
    inputs = {"c": np.zeros((1, 3, 1), F32), "u": np.ones((1, 2, 1), F32), "w": np.array([2])}
    circular = node_model("TensorScatter", inputs, opset=24, mode="circular")
    assert run_here(circular, inputs)[0].ravel().tolist() == [1, 0, 1]
    with pytest.raises(ExecutionError, match="index 3 is out of range for axis 1 of size 3"):
        run_here(node_model("TensorScatter", inputs, opset=24), inputs)


def test_tensor_scatter_with_symbolic_sizes() -> None:
    inputs = {"c": np.zeros((2, 4, 1), F32), "u": np.ones((2, 2, 1), F32), "w": np.array([0, 3])}
    symbolic = {"c": ("b", "max", 1), "u": ("b", "s", 1), "w": ("b",)}
    model = node_model("TensorScatter", inputs, opset=24, symbolic=symbolic, mode="circular")
    assert str(load_graph_from_onnx_bytes(model).outputs["y"].type) == "float32[b, max, 1]"
    assert run_here(model, inputs)[0][..., 0].tolist() == [[1, 1, 0, 0], [1, 0, 0, 1]]


def test_the_batch_axis_cannot_be_written_along() -> None:
    inputs = {"c": np.zeros((2, 4), F32), "u": np.ones((2, 2), F32)}
    with pytest.raises(MalformedModelError, match="axis 0"):
        load_graph_from_onnx_bytes(node_model("TensorScatter", inputs, opset=24, axis=0))


def test_builder_refuses_indices_of_floats() -> None:
    g = Graph()
    x = g.input("x", DType.FLOAT32, [2])
    with pytest.raises(DTypeError, match="integers"):
        g.scatter_elements(x, x, x, 0)
