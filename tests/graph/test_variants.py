"""Graphs that hold for some sizes only."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from kn_graph import cpu_eval_graph, load_graph_from_onnx_bytes, optimize_graph
from kn_graph.condition import Condition, size_eq
from kn_graph.dim import symbol
from kn_graph.errors import SymbolError
from kn_graph.graph import Graph
from kn_graph.onnx import graph_to_model_proto
from kn_graph.variants import Assumptions


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


def test_before_ir_4_weights_are_not_written_as_inputs() -> None:
    weights = {"w": np.ones(2, np.float32)}
    for ir_version, listed in ((3, ["x"]), (8, ["x", "w"])):
        graph = load(ADD, [2], weights=weights, ir_version=ir_version)
        assert [i.name for i in graph_to_model_proto(graph).graph.input] == listed


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


@pytest.mark.parametrize(("samples", "truth"), [(2, False), (64, True), (128, False), (512, True)])
def test_a_guess_leaves_a_size_for_what_is_compared_with_one(samples: int, truth: bool) -> None:
    condition = size_eq(symbol("n") // samples, 1)
    assert isinstance(condition, Condition)
    assert Assumptions().decide(condition) is truth  # n is 64, or 512 where that leaves none


def joined(name: str) -> object:
    """Return a body that joins a squeezed [n, 3] with [3]: it holds for n = 1 only."""
    nodes = [
        helper.make_node("Squeeze", [name], [f"s_{name}"]),
        helper.make_node("Concat", [f"s_{name}", "w"], [f"y_{name}"], axis=0),
    ]
    output = helper.make_tensor_value_info(f"y_{name}", TensorProto.FLOAT, [6])
    return helper.make_graph(nodes, f"body_{name}", [], [output])


def branches() -> Graph:
    """Return an If whose branches each hold for one size of an input of their own."""
    inputs = [
        helper.make_tensor_value_info("c", TensorProto.BOOL, []),
        helper.make_tensor_value_info("u", TensorProto.FLOAT, ["m", 3]),
        helper.make_tensor_value_info("v", TensorProto.FLOAT, ["n", 3]),
    ]
    node = helper.make_node("If", ["c"], ["y"], then_branch=joined("u"), else_branch=joined("v"))
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, [6])
    weights = [numpy_helper.from_array(ones(3), "w")]
    graph = helper.make_graph([node], "g", inputs, [output], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return load_graph_from_onnx_bytes(model.SerializeToString())


@pytest.mark.parametrize("optimize", [False, True])
def test_a_branch_that_cannot_hold_matters_only_where_it_runs(optimize: bool) -> None:
    graph = optimize_graph(branches()) if optimize else branches()
    m, n = (graph.symbols[name].as_symbol for name in "mn")
    assert m is not None
    assert n is not None
    assert all(g.forced for g in graph.body_guards)
    assert graph.variant({m: 1, n: 5}) is graph  # it could not be built any better
    feeds = {"u": ones(1, 3), "v": ones(5, 3)}
    y = cpu_eval_graph(graph, {"c": np.array(True), **feeds})["y"]
    np.testing.assert_array_equal(y, [0, 1, 2, 0, 1, 2])
    with pytest.raises(SymbolError, match="does not allow these sizes"):
        cpu_eval_graph(graph, {"c": np.array(False), **feeds})
