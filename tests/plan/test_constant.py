"""What depends on constants alone is computed when the plan is made."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kn_graph import DType, Graph, cpu_eval_graph
from kn_graph.ops.reduce import Reduce
from kn_graph.variants import open_call
from kn_plan.check import check_plan
from kn_plan.options import PlanOptions
from kn_plan.plan import Home, Plan
from kn_plan.planner import plan_graph
from kn_plan.replay import replay
from kn_plan.target import NeutralTarget

RNG = np.random.default_rng(0)


def dequantized() -> Graph:
    """A product with weights that are small integers in the file."""
    g = Graph("dequantized")
    x = g.input("x", "float32", ["n", 8])
    q = g.constant(RNG.integers(-8, 8, (6, 8)).astype(np.int8))
    scale = g.constant(RNG.standard_normal((6, 1)).astype(np.float32))
    w = g.cast(q, DType.FLOAT32) * scale
    g.output("y", x @ g.permute(w, (1, 0)))
    return g


def run(graph: Graph, options: PlanOptions) -> tuple[Plan, dict[str, np.ndarray]]:
    plan = plan_graph(graph, options=options)
    call = open_call(graph, {"x": RNG.standard_normal((3, 8)).astype(np.float32)})
    got = replay(plan, call.arrays, call.env, options, check=True)
    want = cpu_eval_graph(graph, {"x": call.arrays[0]})
    for name, x in want.items():
        np.testing.assert_allclose(got[name], x, rtol=1e-6)
    return plan, got


def test_weights_are_dequantized_once() -> None:
    graph = dequantized()
    plan, _ = run(graph, PlanOptions())
    assert [step.kind for step in plan.steps] == ["MatMul"]
    left, _ = run(graph, PlanOptions(fold_constants=False))
    assert len(left.steps) > 1


def test_constants_that_nobody_reads_any_more_are_kept_out_of_sight() -> None:
    plan, _ = run(dequantized(), PlanOptions())
    used = {o.buffer for step in plan.steps for o in step.inputs}
    made = {b.number for b in plan.buffers if b.home is Home.CONSTANT} & used
    assert all(b in plan.constants for b in made)


@pytest.mark.parametrize("what", ["random", "impure", "output", "large"])
def test_what_must_not_or_need_not_be_folded(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    g = Graph(what)
    x = g.input("x", "float32", ["n", 8])
    if what == "random":
        value = g.random("normal", (8,), DType.FLOAT32)
    elif what == "impure":
        monkeypatch.setattr(Reduce, "pure", False)
        value = g.reduce("sum", g.constant(np.ones((3, 8), np.float32)), (0,))
    elif what == "output":
        value = g.unary("exp", g.constant(np.ones(8, np.float32)))
        g.output("e", value)
    else:
        row = g.broadcast(g.constant(np.ones((1, 8), np.float32)), (1 << 18, 8))
        value = g.reduce("sum", g.unary("exp", row), (0,))
    g.output("y", x + value)
    plan = plan_graph(g)
    assert len(plan.steps) > 1


def test_the_checker_knows_constants_that_lie_transposed() -> None:
    g = Graph("turned")
    w = np.arange(12, dtype=np.float32).reshape(3, 4).T
    x = g.input("x", "float32", ("n", 4))
    g.output("y", g.matmul(x, g.constant(w)) + g.constant(w[:1, :]))
    plan = plan_graph(g, NeutralTarget())
    check_plan(plan, {"n": 2}).require()
    number = next(n for n, a in plan.constants.items() if a.size == 12)
    wrong = {**plan.constants, number: plan.constants[number].copy()}
    assert not check_plan(replace(plan, constants=wrong), {"n": 2}).ok


@pytest.mark.parametrize("axes", [(1, 0), (0, 2, 1), (2, 0, 1)])
def test_constants_that_were_transposed_are_planned_as_they_lie(axes: tuple[int, ...]) -> None:
    weights = RNG.standard_normal((3, 4, 5)[: len(axes)]).astype(np.float32)
    g = Graph("turned")
    w = g.constant(weights.transpose(axes))
    g.output("y", g.input("x", DType.FLOAT32, w.shape) + w)
    plan = plan_graph(g, NeutralTarget(), PlanOptions())
    (array,) = plan.constants.values()
    assert np.shares_memory(array, weights)
    assert array.shape == weights.shape
    x = RNG.standard_normal(weights.transpose(axes).shape).astype(np.float32)
    call = open_call(g, {"x": x}, None)
    np.testing.assert_array_equal(
        replay(plan, call.arrays, call.env, check=True)["y"], x + weights.transpose(axes)
    )
