"""Nodes in any order, and how far models may nest and unfold."""

from __future__ import annotations

import random
import time
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper

from kn_graph import cpu_eval_graph, load_graph_from_onnx_bytes
from kn_graph.errors import MalformedModelError, UnsupportedModelError
from kn_graph.onnx.order import MAX_NESTING, in_order, nested_nodes

INFO = helper.make_tensor_value_info


def node(operator: str, inputs: str, outputs: str, name: str = "", **attributes: Any) -> NodeProto:
    return helper.make_node(operator, inputs.split(), outputs.split(), name, **attributes)


def branch(*nodes: NodeProto, output: str = "r") -> Any:
    return helper.make_graph(list(nodes), "branch", [], [INFO(output, TensorProto.FLOAT, None)])


def model(nodes: list[NodeProto], functions: list[Any] | None = None) -> ModelProto:
    inputs = [INFO("x", TensorProto.FLOAT, ["n"]), INFO("c", TensorProto.BOOL, [])]
    graph = helper.make_graph(nodes, "g", inputs, [INFO("y", TensorProto.FLOAT, None)])
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("own", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10, functions=functions or [])


def result(proto: ModelProto) -> list[float]:
    graph = load_graph_from_onnx_bytes(proto.SerializeToString())
    inputs = {"x": np.array([-2, 3], np.float32), "c": np.array(True)}
    y: list[float] = cpu_eval_graph(graph, inputs)["y"].tolist()
    return y


# ---- order ---------------------------------------------------------------------------------


def test_nodes_in_order_stay_as_they_are() -> None:
    nodes = [node("Neg", "x", "b"), node("Abs", "x", "a"), node("Add", "a b", "y")]
    assert in_order(nodes) is nodes


def test_only_what_is_too_early_moves() -> None:
    late, first, free, user = (
        node("Abs", "a", "b"), node("Neg", "x", "a"), node("Exp", "x", "e"), node("Add", "b e", "y")
    )  # fmt: skip
    assert in_order([late, first, free, user]) == [first, late, free, user]
    assert in_order([user, late, first, free]) == [first, late, free, user]


def test_any_order_gives_the_same_result() -> None:
    nodes = [node("Neg", "x", "t0")] + [node("Add", f"t{i} x", f"t{i + 1}") for i in range(20)]
    nodes.append(node("Identity", "t20", "y"))
    expected = result(model(nodes))
    for seed in range(5):
        random.Random(seed).shuffle(nodes)
        assert result(model(nodes)) == expected


def test_what_subgraphs_read_comes_first() -> None:
    inner = branch(node("If", "c", "r", then_branch=branch(node("Neg", "late", "r")),
                        else_branch=branch(output="late")))  # fmt: skip
    choice = node("If", "c", "y", then_branch=inner, else_branch=branch(node("Abs", "x", "r")))
    assert result(model([choice, node("Exp", "x", "late")])) == [
        -np.float32(np.exp(np.float32(-2))), -np.float32(np.exp(np.float32(3)))
    ]  # fmt: skip


def test_names_made_inside_of_a_subgraph_are_not_waited_for() -> None:
    then = branch(node("Neg", "x", "t"), node("Abs", "t", "r"))
    choice = node("If", "c", "a", then_branch=then, else_branch=branch(node("Abs", "x", "r")))
    nodes = [choice, node("Neg", "a", "t2"), node("Identity", "t2", "y")]
    assert in_order(nodes) is nodes


def test_functions_are_put_in_order_too() -> None:
    body = [node("Abs", "t", "b"), node("Neg", "a", "t")]
    function = helper.make_function("own", "f", ["a"], ["b"], body, [helper.make_opsetid("", 21)])
    assert result(model([node("f", "x", "y", domain="own")], [function])) == [2, 3]


@pytest.mark.parametrize(
    ("nodes", "circle"),
    [
        ([node("Neg", "y", "y", "self")], "self -> self"),
        ([node("Neg", "b", "a", "A"), node("Neg", "a", "b", "B"), node("Abs", "b", "y")], "A.*B"),
        ([node("If", "c", "y", "I", then_branch=branch(node("Neg", "y", "r")),
               else_branch=branch(output="x"))], "I -> I"),
        ([node("Neg", f"t{(i + 1) % 50}", f"t{i}", f"N{i}") for i in range(50)], r"\.\.\."),
    ],
)  # fmt: skip
def test_a_circle_is_named(nodes: list[NodeProto], circle: str) -> None:
    with pytest.raises(MalformedModelError, match=f"in a circle: .*{circle}"):
        result(model(nodes))


def test_a_long_chain_in_reverse_is_quick() -> None:
    nodes = [node("Neg", f"t{i}", f"t{i + 1}") for i in reversed(range(20_000))]
    start = time.perf_counter()
    ordered = in_order(nodes)
    assert time.perf_counter() - start < 5
    assert list(ordered) == nodes[::-1]


# ---- extent --------------------------------------------------------------------------------


def nested_ifs(depth: int) -> NodeProto:
    inner = node("Neg", "x", "r")
    for _ in range(depth):
        sides = {"then_branch": branch(inner), "else_branch": branch(node("Abs", "x", "r"))}
        inner = node("If", "c", "r", **sides)
    return inner


def chained_functions(length: int, calls: int = 1) -> tuple[NodeProto, list[Any]]:
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("own", 1)]
    functions = [helper.make_function("own", "f0", ["a"], ["b"], [node("Neg", "a", "b")], opsets)]
    for i in range(1, length):
        body = [node(f"f{i - 1}", "a", f"t{j}", domain="own") for j in range(calls)]
        body.append(node("Identity", "t0", "b"))
        functions.append(helper.make_function("own", f"f{i}", ["a"], ["b"], body, opsets))
    return node(f"f{length - 1}", "x", "y", domain="own"), functions


def test_depth_of_nesting() -> None:
    assert max(depth for _, depth in nested_nodes([nested_ifs(7)])) == 7


def test_as_deep_as_a_file_can_be_works() -> None:
    deep = nested_ifs(24)  # protobuf allows a hundred messages within each other
    assert result(model([deep, node("Identity", "r", "y")])) == [2, -3]


def test_functions_as_deep_as_allowed_work_and_deeper_ones_are_refused() -> None:
    call, functions = chained_functions(MAX_NESTING)
    assert result(model([call], functions)) == [2, -3]
    call, functions = chained_functions(3000)
    with pytest.raises(UnsupportedModelError, match="nested 3000 deep"):
        result(model([call], functions))


def test_calls_that_unfold_too_far_are_refused_at_once() -> None:
    call, functions = chained_functions(40, calls=8)
    start = time.perf_counter()
    with pytest.raises(UnsupportedModelError, match="unfolded the model has"):
        result(model([call], functions))
    assert time.perf_counter() - start < 5


def test_functions_in_a_circle_are_refused() -> None:
    opsets = [helper.make_opsetid("own", 1)]
    functions = [
        helper.make_function("own", a, ["a"], ["b"], [node(b, "a", "b", domain="own")], opsets)
        for a, b in (("f", "g"), ("g", "f"))
    ]
    with pytest.raises(MalformedModelError, match="functions call each other in a circle: "):
        result(model([node("f", "x", "y", domain="own")], functions))


def test_a_function_defined_twice_is_refused() -> None:
    call, functions = chained_functions(1)
    with pytest.raises(MalformedModelError, match="function 'f0' of domain 'own' is defined twice"):
        result(model([call], functions * 2))
