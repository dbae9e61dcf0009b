"""Cheap elements that are broadcast: computed again by every reader where a step costs more."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from kn_graph import Graph, cpu_eval_graph
from kn_graph.value import Value
from kn_graph.variants import open_call
from kn_plan.plan import Plan
from kn_plan.planner import plan_graph
from kn_plan.replay import replay
from kn_plan.target import NeutralTarget

SCALES = np.linspace(0.5, 2, 48, dtype=np.float32)


class Repeating(NeutralTarget):
    """A device whose steps cost more than arithmetic."""

    repeats = True


def dequantized(middle: Callable[[Graph, Value], Value]) -> Graph:
    """A product whose columns are scaled by what follows from an input of one element."""
    g = Graph("dequantized")
    x, scale = g.input("x", "float32", ("n", 32)), g.input("scale", "float32", ())
    w = np.random.default_rng(0).standard_normal((32, 48)).astype(np.float32)
    g.output("y", (x @ g.constant(w)) * middle(g, scale))
    return g


def replayed(graph: Graph, *, repeats: bool) -> Plan:
    x = np.random.default_rng(1).standard_normal((5, 32)).astype(np.float32)
    feeds = {"x": x, "scale": np.array(0.25, np.float32)}
    call = open_call(graph, feeds)
    plan = plan_graph(call.graph, Repeating() if repeats else NeutralTarget())
    got = replay(plan, call.arrays, call.env, check=True)
    np.testing.assert_array_equal(got["y"], cpu_eval_graph(graph, feeds)["y"])
    return plan


def test_a_scale_for_each_column_follows_in_the_program_of_the_product() -> None:
    graph = dequantized(lambda g, scale: scale * g.constant(SCALES))
    assert len(replayed(graph, repeats=True).steps) == 1
    assert len(replayed(graph, repeats=False).steps) == 2


@pytest.mark.parametrize(
    ("middle", "steps"),
    [
        (lambda g, scale: g.exp(scale) * g.constant(SCALES), 2),
        (lambda g, scale: g.exp(scale * g.constant(SCALES)), 2),
        (lambda g, scale: (g.constant(SCALES) + 1) * 2, 1),
    ],
    ids=["what leads to it is costly", "it is costly", "it follows from constants"],
)
def test_what_is_costly_or_constant_is_computed_once(
    middle: Callable[[Graph, Value], Value], steps: int
) -> None:
    plan = replayed(dequantized(middle), repeats=True)
    assert len(plan.steps) == steps
    product = plan.steps[-1]
    assert product.program is not None
    assert "exp" not in str(product.program)
    assert "add" not in str(product.program)
