"""Chains of minima, maxima and relus: one of each is left, whatever the order of the bounds."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kn_graph import DType, Graph, Value, cpu_eval_graph
from kn_graph.optimizer import OptimizerSettings, optimize_graph_report
from tests.optimizer.check import build_graph, check, model_graph, ops_of, untouched
from tests.small_models import info, node

X = {"x": ("float32", ["n", 4])}
VALUES = np.array([[np.nan, np.inf, -np.inf, 0.0], [-3, -2, -1.5, -1], [1, 1.5, 2, 3]], np.float32)


def chain(g: Graph, x: Value, steps: list[tuple[str, float]]) -> Value:
    for fn, bound in steps:
        x = g.relu(x) if fn == "relu" else g.binary(fn, x, g.scalar(bound, x.dtype))
    return x


STEPS = st.lists(
    st.tuples(st.sampled_from(["min", "max", "relu"]), st.sampled_from([-2, -1, 0, 1, 2])),
    min_size=2,
    max_size=5,
)


@settings(max_examples=150, deadline=None)
@given(STEPS, st.sampled_from(["float32", "float16", "bfloat16", "float64", "int32", "int8"]))
def test_any_chain_is_exactly_the_same(steps, dtype):
    graph = build_graph(lambda g, x: chain(g, x, steps), {"x": (dtype, ["n", 4])})
    optimized, _ = optimize_graph_report(graph)
    kind = DType.parse(dtype)
    x = (VALUES if kind.is_float else np.nan_to_num(VALUES, posinf=9, neginf=-9)).astype(kind.numpy)
    want, got = cpu_eval_graph(graph, {"x": x})["y0"], cpu_eval_graph(optimized, {"x": x})["y0"]
    np.testing.assert_array_equal(got.astype(np.float64), want.astype(np.float64))
    counts = [op for op in ops_of(optimized) if op in ("min", "max", "relu")]
    assert counts.count("min") <= 1
    assert counts.count("max") + counts.count("relu") <= 1
    again, report = optimize_graph_report(optimized)
    assert not report.fired
    assert len(again.nodes) == len(optimized.nodes)


def test_every_pair_of_clips_in_each_order():
    bounds = [-2, -1, 0, 1, 2]
    for a, b, c, d in product(bounds, repeat=4):
        steps = [("max", a), ("min", b), ("max", c), ("min", d)]
        graph = build_graph(lambda g, x, s=steps: chain(g, x, s), X)
        optimized, _ = optimize_graph_report(graph)
        x = {"x": VALUES}
        want, got = cpu_eval_graph(graph, x)["y0"], cpu_eval_graph(optimized, x)["y0"]
        np.testing.assert_array_equal(got, want, err_msg=str(steps))


@pytest.mark.parametrize(
    ("steps", "fires"),
    [
        ([("relu", 0), ("relu", 0)], {"idle_clamp": 1, "clamp_chain": 0}),
        ([("relu", 0), ("min", 6)], {"idle_clamp": 0, "clamp_chain": 0}),
        ([("min", 6), ("relu", 0)], {"clamp_chain": 1}),  # Keras' ReLU(6), the other way round
        ([("max", -np.inf), ("min", np.inf)], {"idle_clamp": 2}),
        ([("max", 0), ("min", 6), ("max", 0), ("min", 6)], {"idle_clamp": 2}),
        ([("max", 0), ("min", 1), ("max", 2), ("min", 3)], {"clamp_chain": 1}),
        ([("max", 3), ("min", 1)], {"clamp_chain": 1}),  # Clip(min=3, max=1) is 1
    ],
)
def test_chains_as_exporters_write_them(steps, fires):
    check(lambda g, x: chain(g, x, steps), X, fires)


def test_clip_of_clip_of_a_model():
    nodes = [node("Clip", "x two three", "a"), node("Clip", "a zero one", "y")]
    bounds = {n: np.float32(i) for i, n in enumerate(("zero", "one", "two", "three"))}
    graph = model_graph(nodes, [info("x", ["n", 4])], weights=bounds)
    optimized, report = optimize_graph_report(graph)
    assert report.fired["clamp_chain"] >= 1
    x = {"x": VALUES}
    want, got = cpu_eval_graph(graph, x), cpu_eval_graph(optimized, x)
    np.testing.assert_array_equal(got["y"], want["y"])
    np.testing.assert_array_equal(got["y"], np.where(np.isnan(VALUES), np.nan, 1))


def test_integers_are_exact_and_their_limits_are_no_bounds():
    low, high = np.iinfo(np.int64).min, np.iinfo(np.int64).max
    x = {"x": ("int64", ["n", 3])}
    check(lambda g, x: chain(g, x, [("max", low), ("min", high)]), x, {"idle_clamp": 2})
    big = 2**53
    steps = [("min", big + 1), ("min", big), ("max", -big - 1)]
    values = np.array([[big - 1, big, big + 1], [-big, -big - 1, -big - 2]], np.int64)
    check(lambda g, x: chain(g, x, steps), x, {"clamp_chain": 2}, feeds=[{"x": values}])


def test_one_bound_for_all_makes_integers_constant_and_keeps_a_nan():
    steps = [("max", 2), ("min", 2)]
    out = check(lambda g, x: chain(g, x, steps), {"x": ("int32", ["n", 3])}, {"clamp_chain": 0})
    assert ops_of(out)
    steps = [("min", 1), ("max", 2)]
    out = check(lambda g, x: chain(g, x, steps), {"x": ("int32", ["n", 3])}, {"clamp_chain": 1})
    assert ops_of(out) == ["Broadcast"]
    check(lambda g, x: chain(g, x, steps), X, {"clamp_chain": 1})


@pytest.mark.parametrize("fn", ["sigmoid", "exp", "softplus", "abs", "sqrt"])
def test_relu_of_what_is_never_negative(fn):
    check(lambda g, x: g.relu(g.unary(fn, x)), X, {"idle_clamp": 1})


def test_ranges_of_products_sums_and_layouts():
    check(lambda g, x: g.relu(g.permute(x * x + g.exp(x), [1, 0])), X, {"idle_clamp": 1})
    check(lambda g, x: g.relu(g.softmax(x)), X, {"idle_clamp": 1})
    check(lambda g, x: g.relu(g.concat([g.relu(x), g.sigmoid(x)], 1)), X, {"idle_clamp": 1})
    # integers wrap
    check(lambda g, x: g.relu(x * x), {"x": ("int8", ["n", 4])}, {"idle_clamp": 0})


def test_near_misses():
    def shared(g: Graph, x: Value) -> list[Value]:
        inner = chain(g, x, [("max", 1)])
        return [inner, chain(g, inner, [("min", 0)])]

    report = untouched(shared, X, "clamp_chain", "idle_clamp")
    assert report.refused["clamp_chain", "what is clamped first is used elsewhere, too"]
    untouched(lambda g, x: chain(g, -chain(g, x, [("max", 1)]), [("min", 0)]), X, "clamp_chain")
    nan = [("max", np.nan), ("min", 0)]
    untouched(lambda g, x: chain(g, x, nan), X, "clamp_chain", "idle_clamp")
    vector = np.array([0, 1, 2, 3], np.float32)
    untouched(
        lambda g, x: g.maximum(g.minimum(x, g.constant(vector)), g.constant(vector[::-1].copy())),
        X,
        "clamp_chain",
    )
    largest = float(np.finfo(np.float32).max)
    untouched(lambda g, x: chain(g, x, [("min", largest)]), X, "idle_clamp")  # infinity becomes it
    untouched(lambda g, x: g.relu(g.tanh(x)), X, "idle_clamp")


def test_it_can_be_switched_off():
    off = OptimizerSettings(fuse_clamp=False)
    steps = [("max", 3), ("min", 1)]
    check(lambda g, x: chain(g, x, steps), X, {"clamp_chain": 0}, settings=off)
