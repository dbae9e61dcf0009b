"""If: types, values, captured values, and what is decided while loading."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest

from kn_graph.dim_facts import bounds
from kn_graph.dtype import DType
from kn_graph.errors import DTypeError, ShapeError
from kn_graph.graph import Graph
from kn_graph.ops.control import If
from kn_graph.optimizer import optimize_graph
from kn_graph.reference import cpu_eval_graph
from kn_graph.types import SequenceType, TensorType, UnrankedType
from kn_runtime import Device
from tests.ops.control_models import X, flag, load, nodes_of, same_as_onnxruntime

BRANCHES = """
g (bool c, float[n, 3] x, float[3] w) => (float[n, 3] y, float[n, 3] z) {
    y, z = If (c) <
        then_branch = t () => (float[n, 3] p, float[n, 3] q) { p = Add(x, w)  q = Neg(x) },
        else_branch = e () => (float[n, 3] p, float[n, 3] q) {
            two = Constant <value = float {2}> ()
            p = Mul(x, two)
            q = Identity(p)
        }
    >
}"""


@pytest.mark.parametrize("truth", [True, False])
@pytest.mark.parametrize("rows", [0, 2])
def test_if_runs_one_branch(truth: bool, rows: int) -> None:
    feeds = {"c": flag(truth), "x": X[:rows], "w": X[0]}
    same_as_onnxruntime(BRANCHES, feeds)


def test_bodies_have_the_same_inputs_and_sizes_that_are_equal_stay() -> None:
    graph = load(BRANCHES)
    (node,) = nodes_of(graph, If)
    then, otherwise = node.op.then_body, node.op.else_body
    assert [v.type for v in then.inputs] == [v.type for v in otherwise.inputs]
    assert len(then.inputs) == len(node.operands) - 1 == 2
    assert [str(v.type) for v in graph.outputs.values()] == ["float32[n, 3]"] * 2
    assert then.sealed
    assert then.parent is graph


def test_sizes_that_differ_become_data_symbols_that_all_results_share() -> None:
    graph = load("""
        g (bool c, float[n] x) => (float[m] y, float[m] z, float[2] w) {
            y, z, w = If (c) <
                then_branch = t () => (float[m] p, float[m] q, float[2] r) {
                    p = Concat <axis = 0> (x, x)  q = Neg(p)
                    r = Constant <value = float[2] {1, 2}> ()
                },
                else_branch = e () => (float[m] p, float[m] q, float[2] r) {
                    p = Identity(x)  q = Exp(x)  r = Constant <value = float[3] {1, 2, 3}> ()
                }
            >
            s = Add(y, z)
        }""")
    y, z, w = graph.outputs.values()
    assert y.shape == z.shape
    assert bounds(y.shape[0]) == (1, math.inf)
    assert bounds(w.shape[0]) == (2, 3)
    for truth, count in ((True, 4), (False, 2)):
        out = cpu_eval_graph(graph, {"c": flag(truth), "x": X[0, :2]})
        assert [len(v) for v in out.values()] == [count, count, 2 if truth else 3]


SQUEEZE = """
g (float[n, m] x) => (float[k] y) {
    s = Shape(x)  i = Constant <value = int64 {1}> ()  k = Gather(s, i)
    one = Constant <value = int64 {1}> ()
    axes = Constant <value = int64[1] {1}> ()
    c = Equal(k, one)
    y = If (c) <
        then_branch = t () => (float[k] p) { p = Squeeze(x, axes) },
        else_branch = e () => (float[k] p) { p = Identity(x) }
    >
}"""


def test_a_condition_on_a_size_is_decided_and_guarded() -> None:
    graph = load(SQUEEZE)
    assert not nodes_of(graph, If)
    assert len(graph.guards) == 1
    for m, shape in ((3, (2, 3)), (1, (2,))):
        assert cpu_eval_graph(graph, {"x": X[:, :m]})["y"].shape == shape


def test_a_known_condition_leaves_one_branch() -> None:
    for m, shape in ((1, (2,)), (3, (2, 3))):
        graph = load(SQUEEZE, input_shapes={"x": [2, m]})
        assert not graph.guards
        assert graph.outputs["y"].shape == shape


def test_a_decision_inside_of_a_branch_is_taken_where_the_branch_runs() -> None:
    inner = SQUEEZE.split("{", 1)[1].rsplit("}", 1)[0]
    text = f"""
        g (bool b, float[n, m] x) => (float[k] z) {{
            z = If (b) <
                then_branch = t2 () => (float[k] y) {{ {inner} }},
                else_branch = e2 () => (float[k] r) {{ r = Identity(x) }}
            >
        }}"""
    graph = load(text)
    (node,) = nodes_of(graph, If)
    assert not nodes_of(node.op.then_body, If)
    for truth, m, shape in ((True, 3, (2, 3)), (True, 1, (2,)), (False, 1, (2, 1))):
        feeds = {"b": flag(truth), "x": X[:, :m]}
        assert cpu_eval_graph(graph, feeds)["z"].shape == shape


COMPUTED = "zero = Constant <value = float[1] {0}> () c = Greater(s, zero) axes ="


def test_ranks_that_differ_leave_an_unknown_rank() -> None:
    text = """
        g (bool c, float[2, 3] x) => (float[k] y) {
            axes = Constant <value = int64[1] {0}> ()
            y = If (c) <
                then_branch = t () => (float[k] p) { p = ReduceSum <keepdims = 0> (x, axes) },
                else_branch = e () => (float[k] p) { p = Identity(x) }
            >
        }"""
    graph = load(text)
    assert graph.outputs["y"].type == UnrankedType(DType.FLOAT32)
    assert cpu_eval_graph(graph, {"c": flag(True), "x": X})["y"].shape == (3,)
    assert cpu_eval_graph(graph, {"c": flag(False), "x": X})["y"].shape == (2, 3)
    # what needs the rank needs the condition, which as an input decides about the graph
    used = text.replace("float[k] y) {", "float[k] u) {", 1).rsplit("}", 1)[0] + "u = Neg(y) }"
    graph = load(used)
    for truth, expected in ((True, -X.sum(0)), (False, -X), (True, -X.sum(0))):
        u = cpu_eval_graph(graph, {"c": flag(truth), "x": X})["u"]
        np.testing.assert_array_equal(u, expected)
    computed = used.replace("g (bool c,", "g (float[1] s,").replace("axes =", COMPUTED, 1)
    graph = load(computed)  # what follows is a part of both branches
    for s, expected in ((1, -X.sum(0)), (-1, -X), (1, -X.sum(0))):
        for g in (graph, optimize_graph(graph)):
            u = cpu_eval_graph(g, {"s": np.full(1, s, np.float32), "x": X})["u"]
            np.testing.assert_array_equal(u, expected)


TWICE = """
    g (float[1] s, float[1] t, float[2, 3] x) => (float[k] u, float[2, 3] early, float[k] v) {
        axes = Constant <value = int64[1] {0}> ()
        zero = Constant <value = float[1] {0}> ()
        c = Greater(s, zero)
        e = Greater(t, zero)
        early = Abs(x)
        y = If (c) <
            then_branch = t1 () => (float[k] p) { p = ReduceSum <keepdims = 0> (x, axes) },
            else_branch = e1 () => (float[k] p) { p = Identity(x) }
        >
        w = Neg(y)
        z = If (e) <
            then_branch = t2 () => (float[k] q) { q = Unsqueeze(w, axes) },
            else_branch = e2 () => (float[k] q) { q = Identity(w) }
        >
        u = Mul(z, x)
        v = Exp(w)
    }"""


@pytest.mark.parametrize("device", ["reference", "cpu"])
def test_several_ranks_may_be_decided_at_run_time(device: str) -> None:
    prepared = Device.parse(device).prepare(load(TWICE))
    for s, t in product((1, -1), repeat=2):
        feeds = {"s": np.full(1, s, np.float32), "t": np.full(1, t, np.float32), "x": X}
        got = prepared.eval(feeds)
        w = -X.sum(0) if s > 0 else -X
        np.testing.assert_array_equal(got["u"], (w[None] if t > 0 else w) * X)
        np.testing.assert_allclose(got["v"], np.exp(w), rtol=1e-6)
        np.testing.assert_array_equal(got["early"], X)


def test_a_sequence_that_holds_any_rank_still_says_that_it_does() -> None:
    with pytest.raises(ShapeError, match="rank of this tensor is only known at run time"):
        load("g (seq(float) s, int64 i) => (float[k] y) { x = SequenceAt(s, i) y = Neg(x) }")


def test_branches_of_different_element_types_are_refused() -> None:
    with pytest.raises(DTypeError, match=r"one side gives int64\[2, 3\], the other float32"):
        load("""
            g (bool c, float[2, 3] x) => (float[2, 3] y) {
                y = If (c) <
                    then_branch = t () => (float[2, 3] p) { p = Cast <to = 7> (x) },
                    else_branch = e () => (float[2, 3] p) { p = Identity(x) }
                >
            }""")


def test_branches_give_equal_numbers_of_outputs() -> None:
    with pytest.raises(ShapeError, match="one body has 2 outputs, the other 1"):
        load("""
            g (bool c, float[2] x) => (float[2] y) {
                y = If (c) <
                    then_branch = t () => (float[2] p, float[2] q) { p = Neg(x)  q = Exp(x) },
                    else_branch = e () => (float[2] p) { p = Identity(x) }
                >
            }""")


@pytest.mark.parametrize("truth", [True, False])
def test_branches_read_names_from_all_graphs_around(truth: bool) -> None:
    same_as_onnxruntime(
        """
        g (bool c, bool d, float[3] x) => (float[3] y) <float[3] w = {1, 2, 3}> {
            u = Mul(x, w)
            y = If (c) <
                then_branch = t () => (float[3] p) {
                    v = Add(u, w)
                    p = If (d) <
                        then_branch = t2 () => (float[3] q) { r = Mul(u, x)  q = Add(r, v) },
                        else_branch = e2 () => (float[3] q) { q = Sub(v, x) }
                    >
                },
                else_branch = e () => (float[3] p) { p = Identity(w) }
            >
        }""",
        {"c": flag(truth), "d": flag(not truth), "x": X[0]},
    )


def test_the_condition_is_one_boolean() -> None:
    graph = Graph()
    body = Graph("b", parent=graph)
    body.output("y", body.constant(X))
    body.seal()
    two = graph.input("two", "bool", [2])
    with pytest.raises(ShapeError, match="must have one element"):
        graph.if_else(two, body, body)
    number = graph.input("number", "int64", [])
    with pytest.raises(DTypeError, match="the condition has the type int64"):
        graph.if_else(number, body, body)


def test_a_body_is_checked_against_its_operands() -> None:
    graph = Graph()
    c, x = graph.input("c", "bool", []), graph.input("x", "float32", [2, 3])
    body = Graph("b", parent=graph)
    v = body.input_of_type("v", TensorType(DType.FLOAT32, (3,)))
    body.output("y", v)
    body.seal()
    with pytest.raises(ShapeError, match="has 1 inputs for 0 values"):
        graph.if_else(c, body, body)
    with pytest.raises(
        ShapeError, match=r"input 'v' of the body is float32\[3\], got float32\[2, 3\]"
    ):
        graph.if_else(c, body, body, [x])
    with pytest.raises(DTypeError, match="input 'v' of the body"):
        graph.if_else(c, body, body, [graph.cast(x, DType.INT32)])


def test_sequences_and_optionals_of_both_branches_are_joined() -> None:
    graph = load("""
        g (bool c, float[n, 3] x) => (seq(float[k]) y) {
            y = If (c) <
                then_branch = t () => (seq(float[k]) p) { p = SequenceConstruct(x, x) },
                else_branch = e () => (seq(float[k]) p) { p = SequenceEmpty() }
            >
        }""")
    assert graph.outputs["y"].type == SequenceType(graph.inputs[1].type)
    assert len(cpu_eval_graph(graph, {"c": flag(True), "x": X})["y"]) == 2
    assert cpu_eval_graph(graph, {"c": flag(False), "x": X})["y"] == []
