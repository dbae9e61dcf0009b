"""Reading by index: negative indices, wrong ones, every rank, and indices of sizes."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from kn_graph.errors import DTypeError, ExecutionError, KnError, ShapeError
from kn_graph.graph import Graph
from kn_graph.onnx import load_graph_from_onnx_bytes
from kn_graph.reference import cpu_eval_graph
from kn_graph.value import Value
from tests.ops.single_node import assert_like_onnxruntime, node_model, run_here

F32 = np.float32


def random(*shape: int, dtype: Any = F32) -> Any:
    return np.random.default_rng(0).normal(size=shape).astype(dtype)


def content(v: Value) -> Any:
    assert v.content is not None
    return v.content.tolist()


# ---- Gather ---------------------------------------------------------------------------------


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("indices", [0, -1, [1, -2, 1], [[0, 1], [-1, -2]], np.zeros((2, 0))])
@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_gather_agrees_with_onnxruntime(axis: int, indices: Any, kind: Any) -> None:
    inputs = {"x": random(3, 2, 4), "i": np.array(indices, kind)}
    for constant in ([], ["i"]):
        assert_like_onnxruntime("Gather", inputs, opset=13, constant=constant, axis=axis)


@pytest.mark.parametrize("opset", [1, 11, 13])
def test_gather_of_strings_and_of_rank_1(opset: int) -> None:
    x = np.array(["a", "b", "c"], object)
    assert_like_onnxruntime("Gather", {"x": x, "i": np.array(-1)}, opset=opset)


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, ml_dtypes.int4, np.bool_, np.complex64])
def test_gather_copies_every_element_type(dtype: Any) -> None:
    g = Graph()
    x = g.constant(np.array([1, 0, 3]).astype(dtype))
    g.output("y", g.gather(x, g.constant(np.array([2, 0]))))
    got = cpu_eval_graph(g, {})["y"]
    np.testing.assert_array_equal(got, np.array([3, 1]).astype(dtype))


def test_an_index_that_does_not_exist_is_an_error_with_its_name() -> None:
    x = random(3, 2)
    for wrong in (2, -3):
        inputs = {"x": x, "i": np.array([0, wrong])}
        with pytest.raises(ShapeError, match=f"index {wrong} exists in axis 1 of x"):
            load_graph_from_onnx_bytes(node_model("Gather", inputs, constant=["i"], axis=1))
        text = f"index {wrong} is out of range for axis 1 of size 2"
        with pytest.raises(ExecutionError, match=text):
            run_here(node_model("Gather", inputs, axis=1), inputs)


def test_a_known_index_restricts_a_symbolic_axis() -> None:
    inputs = {"x": random(2, 3), "i": np.array(2)}
    model = node_model("Gather", inputs, constant=["i"], symbolic={"x": ("n", 3)})
    with pytest.raises(KnError, match="n=2"):
        run_here(model, inputs)
    inputs["x"] = random(3, 3)
    assert run_here(model, inputs)[0].shape == (3,)


def test_an_axis_of_no_elements_gives_only_nothing() -> None:
    for count in (0, 1):
        inputs = {"x": np.zeros((0, 2), F32), "i": np.zeros(count, np.int64)}
        model = node_model("Gather", inputs)
        if not count:
            assert run_here(model, inputs)[0].shape == (0, 2)
            continue
        with pytest.raises(ExecutionError, match="index 0 is out of range for axis 0 of size 0"):
            run_here(model, inputs)


def test_indices_are_integers_and_the_axis_exists() -> None:
    g = Graph()
    x, f = g.input("x", "float32", [2]), g.input("f", "float32", [2])
    with pytest.raises(DTypeError, match="integers"):
        g.gather(x, f, 0)
    with pytest.raises(ShapeError, match="axis 1"):
        g.gather(x, g.constant(np.array(0)), 1)


def test_strided_operands() -> None:
    g = Graph()
    x, i = g.input("x", "float32", [3, 4]), g.input("i", "int64", [2])
    g.output("y", g.gather(g.permute(x, [1, 0]), i, 0))
    data, at = random(6, 8)[::2, ::-2], np.array([0, 9, 3, 9])[::2]
    np.testing.assert_array_equal(cpu_eval_graph(g, {"x": data, "i": at})["y"], data.T[at])


# ---- sizes ----------------------------------------------------------------------------------


def test_sizes_are_chosen_symbolically() -> None:
    g = Graph()
    x = g.input("x", "float32", ["n", 3, "m"])
    n, _, m = x.shape
    sizes = g.size_tensor(x.shape)
    assert content(g.gather(sizes, g.constant(np.array(-1)))) == m
    assert content(g.gather(sizes, g.constant(np.array([[2, 0]])))) == [[m, n]]
    assert content(g.gather_elements(sizes, g.constant(np.array([0, -1, 0])))) == [n, m, n]
    assert content(g.gather_nd(sizes, g.constant(np.array([[2], [1]])))) == [m, 3]
    assert content(g.gather_nd(sizes, g.constant(np.array([0])))) == n
    # an index that is itself a size says nothing before its number is known
    assert g.gather(sizes, g.size_tensor(n)).content is None
    constant = g.gather(sizes, g.constant(np.array(1)))
    assert constant.constant is not None
    assert constant.constant == 3


def test_reshape_by_gathered_sizes_keeps_the_symbols() -> None:
    from onnx import TensorProto, helper

    def number(name: str, value: Any) -> Any:
        kind = helper.make_tensor(name, TensorProto.INT64, np.shape(value), np.ravel(value))
        return helper.make_node("Constant", [], [name], value=kind)

    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        number("zero", 0), number("last", [2]), number("axes", [0]), number("heads", [2, -1]),
        helper.make_node("Gather", ["s", "zero"], ["n"]),
        helper.make_node("Unsqueeze", ["n", "axes"], ["n1"]),
        helper.make_node("Gather", ["s", "last"], ["m1"]),
        helper.make_node("Concat", ["n1", "m1", "heads"], ["t"], axis=0),
        helper.make_node("Reshape", ["x", "t"], ["y"]),
    ]  # fmt: skip
    declared = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 6, "m"])
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    model = helper.make_model(
        helper.make_graph(nodes, "g", [declared], [result]),
        opset_imports=[helper.make_opsetid("", 13)],
        ir_version=10,
    )
    graph = load_graph_from_onnx_bytes(model.SerializeToString())
    assert str(graph.outputs["y"].type) == "float32[n, m, 2, 3]"
    assert not any(node.op.title == "ReadSizes" for node in graph.nodes)


# ---- GatherElements and GatherND ------------------------------------------------------------


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("shape", [(2, 3), (2, 1), (1, 3), (0, 2)])
def test_gather_elements_agrees_with_onnxruntime(axis: int, shape: tuple[int, int]) -> None:
    indices = np.random.default_rng(1).integers(-2, 2, shape)
    inputs = {"x": random(2, 3), "i": indices}
    assert_like_onnxruntime("GatherElements", inputs, opset=13, axis=axis)


def test_gather_elements_takes_more_along_its_axis_and_no_more_elsewhere() -> None:
    x = random(2, 3)
    inputs = {"x": x, "i": np.array([[0, -1, 1, 2, 0]])}
    (got,) = run_here(node_model("GatherElements", inputs, axis=1), inputs)
    np.testing.assert_array_equal(got, x[:1, [0, 2, 1, 2, 0]])
    inputs["i"] = np.zeros((3, 1), np.int64)
    with pytest.raises(ShapeError, match="at axis 0"):
        load_graph_from_onnx_bytes(node_model("GatherElements", inputs, axis=1))
    inputs["i"] = np.zeros(3, np.int64)
    with pytest.raises(ShapeError, match="ranks differ"):
        load_graph_from_onnx_bytes(node_model("GatherElements", inputs, axis=1))


def test_gather_elements_refuses_wrong_indices() -> None:
    inputs = {"x": random(2, 3), "i": np.array([[0, 3]])}
    with pytest.raises(ExecutionError, match="index 3 is out of range for axis 1 of size 3"):
        run_here(node_model("GatherElements", inputs, axis=1), inputs)
    with pytest.raises(ShapeError, match="index 3 exists"):
        load_graph_from_onnx_bytes(node_model("GatherElements", inputs, constant=["i"], axis=1))


@pytest.mark.parametrize(
    ("shape", "indices", "batch"),
    [
        ((2, 2), [[0, 0], [1, -1]], 0),
        ((2, 3), [[1], [0]], 0),
        ((2, 2, 2), [[0, 1], [1, 0]], 0),
        ((2, 2, 2), [[[0, 1]], [[-1, 0]]], 0),
        ((2, 2, 3), [[1], [0]], 1),
        ((2, 3, 4), [[[1], [0]], [[2], [-1]]], 1),
        ((2, 3, 4), [[[1], [0], [2]], [[2], [-1], [3]]], 2),
        ((2, 3), np.zeros((0, 1)), 0),
        ((3,), [2], 0),
    ],
)
def test_gather_nd_agrees_with_onnxruntime(shape: Any, indices: Any, batch: int) -> None:
    inputs = {"x": random(*shape), "i": np.array(indices, np.int64)}
    assert_like_onnxruntime("GatherND", inputs, opset=13, batch_dims=batch)


@pytest.mark.parametrize(
    ("shape", "indices", "batch", "text"),
    [
        ((2, 2), (2, 3), 0, "1 to 2 indices, not 3"),
        ((2, 2), (2, 2), 1, "1 to 1 indices, not 2"),
        ((2, 2), (2, 0), 0, "not 0"),
        ((2, 2), (2, 1), 2, "batch axes"),
        ((2, 2), (3, 1), 1, "batch axis 0"),
        ((), (1,), 0, "must have an axis"),
    ],
)
def test_gather_nd_refuses_wrong_shapes(shape: Any, indices: Any, batch: int, text: str) -> None:
    inputs = {"x": random(*shape), "i": np.zeros(indices, np.int64)}
    with pytest.raises(ShapeError, match=text):
        load_graph_from_onnx_bytes(node_model("GatherND", inputs, batch_dims=batch))


def test_gather_nd_refuses_wrong_indices_and_unknown_lengths() -> None:
    inputs = {"x": random(2, 3), "i": np.array([[0, 0], [1, -4]])}
    with pytest.raises(ExecutionError, match="index -4 is out of range for axis 1 of size 3"):
        run_here(node_model("GatherND", inputs), inputs)
    unknown = node_model("GatherND", inputs, symbolic={"i": (2, "k")})
    with pytest.raises(ShapeError, match="only known at run time"):
        load_graph_from_onnx_bytes(unknown)
    with pytest.raises(KnError, match="batch_dims"):
        load_graph_from_onnx_bytes(node_model("GatherND", inputs, opset=11, batch_dims=0))
