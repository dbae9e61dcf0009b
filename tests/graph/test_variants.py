"""Graphs that hold for some sizes only."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from kn_graph import cpu_eval_graph, load_graph_from_onnx_bytes, optimize_graph
from kn_graph.errors import SymbolError
from kn_graph.graph import Graph


def load(nodes: list, shape: list, *, weights: dict | None = None, ir_version: int = 8) -> Graph:
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
    tensors = [numpy_helper.from_array(a, n) for n, a in (weights or {}).items()]
    inputs += [helper.make_tensor_value_info(t.name, t.data_type, t.dims) for t in tensors]
    output = helper.make_empty_tensor_value_info("y")
    output.type.tensor_type.elem_type = TensorProto.FLOAT
    graph = helper.make_graph(nodes, "g", inputs, [output], tensors)
    opsets = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=ir_version)
    return load_graph_from_onnx_bytes(model.SerializeToString())


def ones(*shape: int) -> np.ndarray:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


SQUEEZE_ALL = [helper.make_node("Squeeze", ["x"], ["y"])]


@pytest.mark.parametrize("optimize", [False, True])
def test_a_squeeze_of_all_axes_follows_the_sizes(optimize: bool) -> None:
    graph = load(SQUEEZE_ALL, ["a", 3, "b"])
    graph = optimize_graph(graph) if optimize else graph
    for shape in [(2, 3, 4), (1, 3, 4), (2, 3, 1), (1, 3, 1), (2, 3, 4)]:
        x = ones(*shape)
        np.testing.assert_array_equal(cpu_eval_graph(graph, {"x": x})["y"], x.squeeze())


def test_a_guard_is_recorded_and_shown() -> None:
    graph = load(SQUEEZE_ALL, ["a", 3])
    (guard,) = graph.guards
    assert str(guard.condition) == "a-1 == 0"
    assert guard.decided is False
    assert "assume a-1 == 0 is False" in str(graph)


def test_a_variant_is_built_once() -> None:
    graph = load(SQUEEZE_ALL, ["a", 3])
    a = graph.symbols["a"].as_symbol
    assert a is not None
    assert graph.variant({a: 2}) is graph
    assert graph.variant({a: 1}) is not graph
    assert graph.variant({a: 1}) is graph.variant({a: 1})


def test_specialize_takes_the_variant_that_the_numbers_call_for() -> None:
    graph = load(SQUEEZE_ALL, ["a", 3])
    assert graph.specialize({"a": 1}).outputs["y"].shape == (3,)
    assert graph.specialize({"a": 5}).outputs["y"].shape == (5, 3)


def test_a_size_of_zero_takes_a_variant() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["y"])]
    graph = load(nodes, ["a", 3])
    assert cpu_eval_graph(graph, {"x": ones(0, 3)})["y"].shape == (0, 3)
    assert cpu_eval_graph(graph, {"x": ones(2, 3)})["y"].shape == (2, 3)


def test_a_graph_built_by_hand_says_what_it_does_not_hold_for() -> None:
    g = Graph()
    g.output("y", g.relu(g.input("x", "float32", ["n"])))
    with pytest.raises(SymbolError, match="size 'n' is 0"):
        cpu_eval_graph(g, {"x": np.zeros(0, np.float32)})


ADD = [helper.make_node("Add", ["x", "w"], ["y"])]


def test_an_initializer_that_is_an_input_is_a_constant_until_it_is_fed() -> None:
    graph = load(ADD, [2], weights={"w": np.ones(2, np.float32)})
    x = ones(2)
    assert [v.name for v in graph.inputs] == ["x"]
    np.testing.assert_array_equal(cpu_eval_graph(graph, {"x": x})["y"], x + 1)
    fed = {"x": x, "w": np.full(2, 5, np.float32)}
    np.testing.assert_array_equal(cpu_eval_graph(graph, fed)["y"], x + 5)
    np.testing.assert_array_equal(cpu_eval_graph(optimize_graph(graph), fed)["y"], x + 5)


def test_before_ir_4_initializers_are_constants() -> None:
    graph = load(ADD, [2], weights={"w": np.ones(2, np.float32)}, ir_version=3)
    with pytest.raises(ValueError, match="no input 'w'"):
        cpu_eval_graph(graph, {"x": ones(2), "w": ones(2)})


def test_shape_arithmetic_of_symbolic_sizes_leaves_no_nodes() -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "zero"], ["b"]),
        helper.make_node("Mul", ["b", "two"], ["b2"]),
        helper.make_node("Concat", ["b2", "half"], ["to"], axis=0),
        helper.make_node("Reshape", ["x", "to"], ["y"]),
    ]
    weights = {
        "zero": np.array([0]),
        "two": np.array([2]),
        "half": np.array([2]),
    }
    graph = load(nodes, ["n", 4], weights=weights)
    assert str(graph.outputs["y"].type) == "float32[2*n, 2]"
    operations = [type(n.op).__name__ for n in optimize_graph(graph).nodes]
    assert operations == ["Input", "View"]
