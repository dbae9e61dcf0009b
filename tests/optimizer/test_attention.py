"""Attention written out, as exporters do, becomes one operation."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from kn_graph import DType, Graph, Value, cpu_eval_graph
from kn_graph.ops.attention import Attention
from kn_graph.optimizer import OptimizerSettings, optimize_graph_report

Scores = Callable[[Graph, Value, Value], Value]
SIZES = {"b": 2, "s": 3, "t": 5}


def attention_graph(
    scores: Scores,
    *,
    heads: int = 4,
    kv_heads: int = 4,
    guard: bool = False,
    weights: Callable[[Graph, Value], Value] = lambda g, x: x,
) -> Graph:
    """Return softmax(scores(q, k^T)) @ v with symbolic sizes."""
    g = Graph("attention")
    q = g.input("q", "float32", ["b", heads, "s", 8])
    k = g.input("k", "float32", ["b", kv_heads, "t", 8])
    v = g.input("v", "float32", ["b", kv_heads, "t", 6])
    k, v = (repeated(g, x, heads // kv_heads) for x in (k, v))
    p = g.softmax(scores(g, q, g.permute(k, [0, 1, 3, 2])), -1)
    if guard:
        p = g.select(g.unary("isnan", p), g.scalar(0, DType.FLOAT32), p)
    g.output("y", weights(g, p) @ v)
    return g


def repeated(g: Graph, x: Value, times: int) -> Value:
    """Repeat heads as exporters do: unsqueeze, expand, reshape."""
    b, h, t, d = x.shape
    wide = g.broadcast(g.unsqueeze(x, [2]), (b, h, times, t, d))
    return g.view(wide, (b, h * times, t, d))


def feeds(graph: Graph, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    out = {}
    for v in graph.inputs:
        shape = [SIZES[str(s)] if not isinstance(s, int) else s for s in v.shape]
        out[v.name] = rng.standard_normal(shape).astype(np.float32)
    return out


def check(graph: Graph, fired: int = 1) -> Graph:
    optimized, report = optimize_graph_report(graph)
    assert report.fired["attention"] == fired, str(report)
    given = feeds(graph)
    want, got = cpu_eval_graph(graph, given)["y"], cpu_eval_graph(optimized, given)["y"]
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-6)
    again, second = optimize_graph_report(optimized)
    assert not second.fired
    assert len(again.nodes) == len(optimized.nodes)
    return optimized


def attention_of(graph: Graph) -> Attention:
    (op,) = [n.op for n in graph.nodes if isinstance(n.op, Attention)]
    return op


def lower(g: Graph, q: Value, kt: Value) -> Value:
    """Return a causal mask [s, t]."""
    rows, columns = g.iota(q.shape[2]), g.iota(kt.shape[3])
    return g.compare("ge", g.unsqueeze(rows, [1]), g.unsqueeze(columns, [0]))


SCALES: dict[str, tuple[Scores, float]] = {
    "none (T5)": (lambda g, q, kt: q @ kt, 1.0),
    "on both sides (torch 2)": (lambda g, q, kt: (q * 0.5) @ (kt * 0.5), 0.25),
    "on the queries": (lambda g, q, kt: (q * 0.25) @ kt, 0.25),
    "scores divided (transformers, GPT-2)": (lambda g, q, kt: (q @ kt) / 4.0, 0.25),
    "number on the left": (lambda g, q, kt: 0.25 * (q @ kt), 0.25),
}


@pytest.mark.parametrize("name", SCALES)
def test_the_scale_may_stand_anywhere(name: str) -> None:
    scores, scale = SCALES[name]
    assert attention_of(check(attention_graph(scores))).scale == pytest.approx(scale)


MASKS: dict[str, Scores] = {
    "added": lambda g, q, kt: (
        (q @ kt) * 0.3
        + g.select(lower(g, q, kt), g.scalar(0, DType.FLOAT32), g.scalar(-1e9, DType.FLOAT32))
    ),
    "selected, finite": lambda g, q, kt: g.select(
        lower(g, q, kt), (q @ kt) / 3.0, g.scalar(-3e38, DType.FLOAT32)
    ),
    "selected, then scaled": lambda g, q, kt: (
        g.select(lower(g, q, kt), q @ kt, g.scalar(-1e30, DType.FLOAT32)) * 0.25
    ),
    "selected, minus infinity": lambda g, q, kt: g.select(
        lower(g, q, kt), q @ kt, g.scalar(-np.inf, DType.FLOAT32)
    ),
}


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("guard", [False, True])
def test_masks_are_added_or_selected(name: str, guard: bool) -> None:
    check(attention_graph(MASKS[name], guard=guard))


def test_repeated_heads_are_not_repeated_any_more() -> None:
    optimized = check(attention_graph(SCALES["none (T5)"][0], heads=6, kv_heads=2))
    (node,) = [n for n in optimized.nodes if isinstance(n.op, Attention)]
    assert [v.shape[1] for v in node.operands] == [6, 2, 2]


def test_three_axes_get_a_head_axis() -> None:
    g = Graph()
    q, k, v = (g.input(n, "float32", ["b", n, 4]) for n in ("s", "t", "u"))
    v = g.view(v, (v.shape[0], k.shape[1], 4))
    g.output("y", g.softmax((q @ g.permute(k, [0, 2, 1])) * 0.5, -1) @ v)
    optimized, report = optimize_graph_report(g)
    assert report.fired["attention"] == 1
    given = {n: np.ones((2, 3, 4), np.float32) for n in ("s", "t", "u")}
    for graph in (g, optimized):
        np.testing.assert_allclose(cpu_eval_graph(graph, given)["y"], 1)


def second_reader(g: Graph, p: Value) -> Value:
    g.output("weights", p)
    return p


NEAR_MISSES: dict[str, Graph] = {
    "somebody reads the weights": attention_graph(SCALES["none (T5)"][0], weights=second_reader),
    "the weights are changed": attention_graph(
        SCALES["none (T5)"][0], weights=lambda g, p: p + 1.0
    ),
    "the mask number is small": attention_graph(
        lambda g, q, kt: g.select(lower(g, q, kt), q @ kt, g.scalar(-5.0, DType.FLOAT32))
    ),
    "the scale is no number": attention_graph(
        lambda g, q, kt: (q @ kt) * g.unsqueeze(g.reduce("sum", q, [3]), [3])
    ),
    "no product": attention_graph(lambda g, q, kt: g.relu(q @ kt)),
}


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_near_misses_are_left_alone(name: str) -> None:
    _, report = optimize_graph_report(NEAR_MISSES[name])
    assert report.fired["attention"] == 0


def test_the_setting_switches_it_off() -> None:
    graph = attention_graph(SCALES["none (T5)"][0])
    _, report = optimize_graph_report(graph, OptimizerSettings(fuse_attention=False))
    assert not report.fired["attention"]
