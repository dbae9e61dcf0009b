"""Bodies of control flow are optimized like the graph around them."""

from __future__ import annotations

import numpy as np
import pytest

from kn_graph import Graph
from kn_graph.liveness import bodies_of
from kn_graph.optimizer import OptimizerSettings
from tests.ops.control_models import load
from tests.optimizer.rewriting import MODELS, assert_equal, ops, optimized

INNER = """
    t = Identity(v)
    two = Constant <value = float {2.0}> ()
    p = Pow(t, two)
    s = Shape(p)
    r = Reshape(p, s)
"""
IF = f"""agraph (bool c, float[n, 3] v) => (float[n, 3] y) {{
  y = If (c) <
    then_branch = a () => (float[n, 3] r) {{ {INNER} }},
    else_branch = b () => (float[n, 3] e) {{ x = Relu(v) e = Relu(x) }}
  >
}}"""
LOOP = """agraph (int64 trip, float[n, 3] x) => (float[n, 3] y, float[k, n, 3] rows) {
  go = Constant <value = bool {1}> ()
  y, rows = Loop (trip, go, x) <
    body = b (int64 i, bool c, float[n, 3] v) => (bool c1, float[n, 3] w, float[n, 3] row) {
      c1 = Identity(c)
      zero = Constant <value = int64 {0}> ()
      first = Equal(i, zero)
      w = If (first) <
        then_branch = a () => (float[n, 3] p) {
          two = Constant <value = float {2.0}> () p = Pow(v, two)
        },
        else_branch = e () => (float[n, 3] q) { x1 = Neg(v) q = Neg(x1) }
      >
      row = Identity(w)
    }
  >
}"""
SCAN = """agraph (float[3] x, float[n, 3] xs) => (float[3] y, float[n, 3] ys) {
  y, ys = Scan (x, xs) <num_scan_inputs = 1,
    body = b (float[3] s, float[3] e) => (float[3] s1, float[3] r) {
      s1 = Add(s, e) one = Constant <value = float {1.0}> () r = Mul(s1, one)
    }
  >
}"""


def inside(graph: Graph) -> list[Graph]:
    """Return the bodies of all control-flow nodes, outer ones first."""
    found, pending = [], [graph]
    while pending:
        bodies = [b for node in pending.pop(0).nodes for b in bodies_of(node)]
        found += bodies
        pending += bodies
    return found


X = np.linspace(-2, 2, 6, dtype=np.float32).reshape(2, 3)


@pytest.mark.parametrize("truth", [False, True])
def test_both_branches(truth: bool) -> None:
    graph = load(IF)
    out, report = optimized(graph)
    then, otherwise = inside(out)
    assert (ops(then), ops(otherwise)) == ({"mul": 1}, {"relu": 1}), str(report)
    assert then.parent is not None
    out.verify()
    assert_equal(graph, out, {"c": np.array(truth), "v": X})


@pytest.mark.parametrize("trip", [0, 1, 3])
def test_a_branch_in_a_loop(trip: int) -> None:
    graph = load(LOOP)
    out, _ = optimized(graph)
    loop, then, otherwise = inside(out)
    assert ops(loop)["If"] == 1
    assert (ops(then), ops(otherwise)) == ({"mul": 1}, {})
    out.verify()
    assert_equal(graph, out, {"trip": np.array(trip), "x": X})


@pytest.mark.parametrize("n", [1, 4])
def test_a_scan(n: int) -> None:
    graph = load(SCAN)
    out, _ = optimized(graph)
    (body,) = inside(out)
    assert ops(body) == {"add": 1}
    assert_equal(graph, out, {"x": X[0], "xs": np.ones((n, 3), np.float32)})


def test_the_graph_given_stays_as_it_is() -> None:
    graph = load(IF)
    before = [str(b) for b in inside(graph)]
    optimized(graph)
    assert [str(b) for b in inside(graph)] == before


def test_settings_hold_inside() -> None:
    rule = "power_form"
    out, report = optimized(load(IF), OptimizerSettings(disabled=frozenset({rule})))
    assert not report.fired[rule]
    assert ops(inside(out)[0]) == {"pow": 1}


@pytest.mark.real_models
def test_silero_computes_no_shape() -> None:
    from benchmarks.op_counts import count
    from kn_graph import load_graph_from_onnx_path, optimize_graph

    counts = count(optimize_graph(load_graph_from_onnx_path(MODELS / "1a153a22f450.onnx")))
    assert counts["Conv"] == 12
    assert not counts.keys() & {"Gather", "Sizes", "pow", "reduce_mean", "Shape"}
