"""Softmax as exporters spell it out, and reshape around it: one Softmax is left."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kn_graph import DType, Graph, cpu_eval_graph
from kn_graph.ops.norm import Softmax
from kn_graph.optimizer import OptimizerSettings, optimize_graph_report
from kn_graph.transform import clone_graph
from tests.optimizer.exported import drawn, exported, only, special
from tests.optimizer.rewriting import MODELS, ops, optimized, refusals, stored

# name: (text, rule, axis, whether it is a logarithm, whether a maximum is subtracted)
FORMS: dict[str, tuple[str, str, int, bool, bool]] = {
    "keras": (
        "e = Exp(Sub(x, ReduceMax(x, axes=[-1])))\ny = Div(e, ReduceSum(e, [-1]))",
        "softmax",
        2,
        False,
        True,
    ),
    "keras, axis 1": (
        "e = Exp(Sub(x, ReduceMax(x, axes=[1])))\ny = Div(e, ReduceSum(e, [1]))",
        "softmax",
        1,
        False,
        True,
    ),
    "without keepdims": (
        "m = Unsqueeze(ReduceMax(x, axes=[2], keepdims=0), [2])\n"
        "e = Exp(Sub(x, m))\n"
        "y = Div(e, Unsqueeze(ReduceSum(e, [2], keepdims=0), [2]))",
        "softmax",
        2,
        False,
        True,
    ),
    "plain": ("e = Exp(x)\ny = Div(e, ReduceSum(e, [2]))", "softmax", 2, False, False),
    "reciprocal": (
        "e = Exp(x)\ny = Mul(Reciprocal(ReduceSum(e, [2])), e)",
        "softmax",
        2,
        False,
        False,
    ),
    "logarithm": ("y = Log(Softmax(x, axis=-1))", "log_of_softmax", 2, True, True),
    "written out": (
        "d = Sub(x, ReduceMax(x, axes=[2]))\ny = Sub(d, Log(ReduceSum(Exp(d), [2])))",
        "log_softmax",
        2,
        True,
        True,
    ),
    "maximum added": (
        "m = ReduceMax(x, axes=[2])\ny = Sub(x, Add(m, Log(ReduceSum(Exp(Sub(x, m)), [2]))))",
        "log_softmax",
        2,
        True,
        True,
    ),
    "torch logsumexp": (
        "y = Sub(x, ReduceLogSumExp(x, axes=[2]))",
        "log_softmax",
        2,
        True,
        True,
    ),
    "logsumexp without keepdims": (
        "y = Sub(x, Unsqueeze(ReduceLogSumExp(x, axes=[1], keepdims=0), [1]))",
        "log_softmax",
        1,
        True,
        True,
    ),
    "log of sum": ("y = Sub(x, Log(ReduceSum(Exp(x), [2])))", "log_softmax", 2, True, False),
}
SHAPE = ["n", 3, "c"]


def exact_of(x: np.ndarray, axis: int, *, log: bool) -> np.ndarray:
    x = x.astype(np.float64)
    with np.errstate(all="ignore"):
        d = x - x.max(axis, keepdims=True, initial=-np.inf)
        total = np.exp(d).sum(axis, keepdims=True)
        return d - np.log(total) if log else np.exp(d) / total


def softmaxes(graph: Graph) -> list[Softmax]:
    return [n.op for n in graph.nodes if isinstance(n.op, Softmax)]


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("name", FORMS)
def test_each_form_is_one_softmax(name, dtype):
    text, rule, axis, log, _ = FORMS[name]
    graph = exported(text, dtype=dtype, shape=SHAPE)
    out, _ = optimized(graph, **{rule: 1})
    assert softmaxes(out) == [Softmax(axis, log)]
    assert ops(out).total() == 1
    for shape in ((2, 3, 4), (1, 3, 1), (0, 3, 2)):
        x = drawn(dtype, shape, sum(shape))
        got = cpu_eval_graph(out, {"x": x})["y"]
        eps = {"float64": 1e-14, "float32": 1e-6, "float16": 2e-3, "bfloat16": 2e-2}[dtype]
        assert got.dtype == x.dtype
        np.testing.assert_allclose(
            got.astype(np.float64), exact_of(x, axis, log=log), rtol=eps, atol=eps
        )


@pytest.mark.parametrize("name", FORMS)
def test_no_other_rule_is_needed(name):
    text, rule, axis, log, _ = FORMS[name]
    out, report = optimize_graph_report(exported(text, shape=SHAPE), only("softmax"))
    assert report.fired[rule] == 1, str(report)
    assert softmaxes(out) == [Softmax(axis, log)]


@pytest.mark.parametrize("name", FORMS)
def test_nan_comes_out_where_it_did(name):
    """Where a maximum is subtracted; else what overflowed becomes right."""
    text, _, axis, log, shifted = FORMS[name]
    graph = exported(text, shape=SHAPE)
    out, _ = optimized(graph)
    for rows in special("float32"):
        x = np.stack([rows, rows[::-1], [1, 2, 3, 4]]).reshape(1, 3, 4).astype(np.float32)
        before, after = (cpu_eval_graph(g, {"x": x})["y"] for g in (graph, out))
        if shifted and "LogSumExp" not in text:
            np.testing.assert_array_equal(np.isnan(before), np.isnan(after))
        exact = exact_of(x, axis, log=log)
        np.testing.assert_array_equal(np.isnan(exact), np.isnan(after))


def test_nothing_overflows_any_more():
    graph = exported(FORMS["plain"][0], shape=SHAPE)
    out, _ = optimized(graph)
    x = np.array([[[1000, 999, 0]] * 3], np.float32)
    assert np.isnan(cpu_eval_graph(graph, {"x": x})["y"]).any()
    got = cpu_eval_graph(out, {"x": x})["y"]
    np.testing.assert_allclose(got, exact_of(x, 2, log=False), rtol=1e-6)
    graph = exported(FORMS["logarithm"][0], shape=SHAPE)
    got = cpu_eval_graph(optimized(graph)[0], {"x": x})["y"]
    np.testing.assert_allclose(got, exact_of(x, 2, log=True), rtol=1e-6)


@pytest.mark.parametrize("axes", [(1, 2), (2, 3), (1, 2, 3), (0, 1)])
@pytest.mark.parametrize("log", [False, True])
def test_neighbouring_axes_become_one(axes, log):
    a = list(axes)
    text = f"d = Sub(x, ReduceMax(x, axes={a}))\n"
    text += (
        f"y = Sub(d, Log(ReduceSum(Exp(d), {a})))"
        if log
        else f"e = Exp(d)\ny = Div(e, ReduceSum(e, {a}))"
    )
    graph = exported(text, shape=["n", 2, 3, "c"])
    out, _ = optimized(graph, **{"log_softmax" if log else "softmax": 1})
    assert ops(out).total() == 1
    for shape in ((2, 2, 3, 4), (1, 2, 3, 1), (0, 2, 3, 1)):
        x = {"x": drawn("float32", shape)}
        before, after = (cpu_eval_graph(g, x)["y"] for g in (graph, out))
        np.testing.assert_allclose(after, before, rtol=1e-5, atol=1e-6)


def test_axes_apart_are_refused():
    text = "e = Exp(x)\ny = Div(e, ReduceSum(e, [0, 2]))"
    _, report = optimized(exported(text, shape=SHAPE), softmax=0)
    assert refusals(report, "softmax") == ["the axes are no neighbours"]


NEAR_MISSES = {
    "other sum": "e = Exp(x)\ny = Div(e, ReduceSum(x, [2]))",
    "mean": "e = Exp(x)\ny = Div(e, ReduceMean(e, axes=[2]))",
    "the other way": "e = Exp(x)\ny = Div(ReduceSum(e, [2]), e)",
    "stabilised": "e = Exp(x)\ny = Div(e, Add(ReduceSum(e, [2]), 1e-6))",
    "product": "e = Exp(x)\ny = Mul(e, ReduceSum(e, [2]))",
    "doubled": "e = Mul(Exp(x), 2.0)\ny = Div(e, ReduceSum(Exp(x), [2]))",
    "logarithm of a sum": "y = Log(Add(Softmax(x, axis=-1), 1e-6))",
    "root": "y = Sqrt(Softmax(x, axis=-1))",
    "other exponential": "d = Sub(x, ReduceMax(x, axes=[2]))\n"
    "y = Sub(x, Log(ReduceSum(Exp(d), [2])))",
    "other maximum": "d = Sub(x, ReduceMax(x, axes=[1]))\n"
    "y = Sub(x, Add(ReduceMax(x, axes=[2]), Log(ReduceSum(Exp(d), [2]))))",
    "added minimum": "d = Sub(x, ReduceMax(x, axes=[2]))\n"
    "y = Sub(x, Add(ReduceMin(x, axes=[2]), Log(ReduceSum(Exp(d), [2]))))",
    "added": "y = Add(x, ReduceLogSumExp(x, axes=[2]))",
}


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_near_misses_are_left_alone(name):
    graph = exported(NEAR_MISSES[name], shape=["n", 4, 4])
    optimized(graph, only("softmax"), softmax=0, log_softmax=0, log_of_softmax=0)
    out, _ = optimized(graph, softmax=0, log_softmax=0, log_of_softmax=0)
    x = {"x": drawn("float32", (2, 4, 4))}
    before, after = (cpu_eval_graph(g, x)["y"] for g in (graph, out))
    np.testing.assert_allclose(after, before, rtol=1e-5, atol=1e-6)


def test_the_maximum_over_other_axes_is_no_part_of_it():
    text = "e = Exp(Sub(x, ReduceMax(x, axes=[1])))\ny = Div(e, ReduceSum(e, [2]))"
    out, _ = optimized(exported(text, shape=["n", 4, 4]), softmax=1)
    assert ops(out) == {"reduce_max": 1, "sub": 1, "Softmax": 1}


def test_the_maximum_of_rows_is_not_that_of_columns():
    g = Graph("square")
    x = g.input("x", "float32", [4, 4])
    e = g.exp(g.sub(x, g.broadcast(g.reduce("max", x, [1]), (4, 4))))
    g.output("y", g.div(e, g.broadcast(g.reduce("sum", e, [1], keep=True), (4, 4))))
    out, _ = optimized(g, softmax=1)
    assert ops(out) == {"reduce_max": 1, "sub": 1, "Softmax": 1}


def test_the_sum_of_rows_is_not_that_of_columns():
    g = Graph("square")
    e = g.exp(g.input("x", "float32", [4, 4]))
    g.output("y", g.div(e, g.broadcast(g.reduce("sum", e, [1]), (4, 4))))
    optimized(g, softmax=0)


@pytest.mark.parametrize(
    ("text", "shared", "rule"),
    [
        ("e = Exp(x)\ny = Div(e, ReduceSum(e, [2]))", "e", "softmax"),
        ("s = ReduceSum(Exp(x), [2])\ny = Div(Exp(x), s)", "s", "softmax"),
        ("s = Softmax(x)\ny = Log(s)", "s", "log_of_softmax"),
        ("s = ReduceLogSumExp(x, axes=[2])\ny = Sub(x, s)", "s", "log_softmax"),
    ],
)
def test_what_others_read_stays(text, shared, rule):
    graph = clone_graph(exported(text, shape=SHAPE))
    also = next(v for n in graph.nodes for v in n.results if shared in v.names)
    graph.output("also", also)
    _, report = optimized(graph, **{rule: 0})
    assert refusals(report, rule) == ["an intermediate result has other readers"]


def test_settings_switch_it_off():
    graph = exported(FORMS["keras"][0], shape=SHAPE)
    out, _ = optimized(graph, OptimizerSettings(fuse_softmax=False), softmax=0)
    assert not softmaxes(out)


# ---- around a softmax -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "axis", "fires"),
    [
        (["n", 10, 1, 1], 1, 1),  # a classifier of tf2onnx or caffe2
        (["n", 1, "c"], 1, 1),
        (["n", 1, 1, 5], 2, 1),
        (["n", 3, 4], 1, 0),  # two axes together
        (["n", "m", "c"], 2, 0),  # nothing to reshape
    ],
)
@pytest.mark.parametrize("name", ["Softmax", "LogSoftmax"])
def test_a_softmax_of_opset_11_over_one_long_axis(shape, axis, fires, name):
    graph = exported(f"y = {name}(x, axis={axis})", shape=shape, opset=11)
    out, _ = optimized(graph, softmax_view=fires)
    assert len(softmaxes(out)) == 1
    if fires:
        assert sum(n.op.title == "View" for n in out.nodes) == 0
    sizes = {"n": 2, "m": 3, "c": 4}
    x = {"x": drawn("float32", [s if isinstance(s, int) else sizes[s] for s in shape])}
    before, after = (cpu_eval_graph(g, x)["y"] for g in (graph, out))
    np.testing.assert_allclose(after, before, rtol=1e-6)


def test_leading_axes_may_be_merged_around_a_softmax():
    g = Graph("merged")
    x = g.input("x", "float32", ["n", "m", 5])
    n, m, _ = x.shape
    g.output("y", g.view(g.softmax(g.view(x, (n * m, 5)), 1), (n, m, 5)))
    out, _ = optimized(g, softmax_view=1)
    assert softmaxes(out) == [Softmax(2)]
    assert [n.op.title for n in out.nodes] == ["Input", "Softmax"]


def test_an_axis_that_was_split_stays_split():
    g = Graph("split")
    x = g.input("x", "float32", ["n", 6])
    n, _ = x.shape
    g.output("y", g.view(g.softmax(g.view(x, (n, 2, 3)), 2), (n, 6)))
    out, report = optimized(g, softmax_view=0)
    assert softmaxes(out) == [Softmax(2)]
    assert refusals(report, "softmax_view")


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.integers(1, 3), min_size=1, max_size=4),
    st.lists(st.integers(1, 3), min_size=1, max_size=4),
    st.integers(0, 3),
)
def test_any_reshape_around_a_softmax(shape, other, axis):
    total = int(np.prod(shape))
    other = [*other, 1]
    if total % int(np.prod(other)):
        other = [*shape[::-1]]
    other[-1] *= total // int(np.prod(other))
    g = Graph("any")
    x = g.input("x", "float32", shape)
    g.output("y", g.view(g.softmax(g.view(x, other), axis % len(other)), shape))
    out, _ = optimize_graph_report(g)
    given_x = {"x": drawn("float32", shape)}
    before, after = (cpu_eval_graph(h, given_x)["y"] for h in (g, out))
    np.testing.assert_allclose(after, before, rtol=1e-6)


def test_permutations_around_a_softmax_of_tf2onnx():
    text = "t = Transpose(x, perm=[0, 2, 3, 1])\n"
    text += "y = Transpose(Softmax(t, axis=3), perm=[0, 3, 1, 2])"
    graph = exported(text, shape=["n", 3, "h", "w"])
    out, _ = optimized(graph)
    assert softmaxes(out) == [Softmax(1)]
    assert [n.op.title for n in out.nodes] == ["Input", "Softmax"]
    x = {"x": drawn("float32", (2, 3, 4, 5))}
    before, after = (cpu_eval_graph(g, x)["y"] for g in (graph, out))
    np.testing.assert_allclose(after, before, rtol=1e-6)


def test_another_permutation_stays():
    text = "t = Transpose(x, perm=[0, 2, 3, 1])\n"
    text += "y = Transpose(Softmax(t, axis=3), perm=[0, 2, 3, 1])"
    graph = exported(text, shape=["n", 3, "h", "w"])
    out, _ = optimized(graph)
    x = {"x": drawn("float32", (2, 3, 4, 5))}
    before, after = (cpu_eval_graph(g, x)["y"] for g in (graph, out))
    np.testing.assert_allclose(after, before, rtol=1e-6)


@pytest.mark.parametrize(("dtype", "code"), [("float16", 10), ("bfloat16", 16)])
def test_a_narrow_softmax_is_exact(dtype, code):
    text = f"y = Cast(Softmax(Cast(x, to=1), axis=-1), to={code})"
    graph = exported(text, dtype=dtype, shape=SHAPE)
    out, _ = optimized(graph, narrow_softmax=1)
    assert ops(out) == {"Softmax": 1}
    x = np.concatenate([drawn(dtype, (9, 4)), special(dtype)[:3]]).reshape(4, 3, 4)
    before, after = (cpu_eval_graph(g, {"x": x})["y"] for g in (graph, out))
    np.testing.assert_array_equal(after.astype(np.float32), before.astype(np.float32))


def test_a_softmax_between_other_casts_stays():
    for code in (16, 11):
        text = f"y = Cast(Softmax(Cast(x, to=1), axis=-1), to={code})"
        optimized(exported(text, dtype="float16", shape=SHAPE), narrow_softmax=0)


def test_integers_have_no_softmax():
    g = Graph("integers")
    x = g.input("x", DType.INT32, ["n", 4])
    total = g.reduce("sum", x, [1], keep=True)
    g.output("y", g.div(x, g.broadcast(total, x.shape)))
    optimized(g, softmax=0)


@pytest.mark.real_models
def test_softmax_of_a_tf2onnx_model():
    out, _ = optimized(stored(MODELS, "fe2d2eb49c5f.onnx"), softmax=1)
    assert ops(out)["Softmax"] == 1
    assert "exp" not in ops(out)
