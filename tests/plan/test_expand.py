"""Operations that no device has a kernel for compute the same, written as others."""

from __future__ import annotations

import numpy as np
import pytest

from kn_graph import Graph, cpu_eval_graph
from kn_graph.op import Op
from kn_graph.ops.attention import Attention
from kn_graph.ops.pool import Pool
from kn_graph.ops.resize import Resize
from kn_plan.check import check_plan
from kn_plan.expand import EXPANSIONS, expand_graph
from kn_plan.options import PlanOptions
from kn_plan.planner import plan_graph
from kn_plan.target import NeutralTarget
from tests.cpu.steps import at_ties
from tests.ops.example import Example
from tests.ops.test_examples import name_of
from tests.plan.expansions import EXPANDED
from tests.plan.test_plan import assert_agree

IN_PART: tuple[type[Op], ...] = (Attention, Pool, Resize)
"""Operations that have kernels in most cases."""


@pytest.mark.parametrize("example", EXPANDED, ids=name_of)
def test_an_expansion_computes_what_the_operation_says(example: Example) -> None:
    graph = example.graph()
    expanded = expand_graph(graph, NeutralTarget())
    expanded.verify()
    assert expanded is not graph
    assert example.op in IN_PART or not any(isinstance(n.op, example.op) for n in expanded.nodes)
    for sizes in example.sizes:
        feeds = example.feeds(sizes)
        want, got = cpu_eval_graph(graph, feeds), cpu_eval_graph(expanded, feeds)
        assert_agree(at_ties(want, got, 1), got)
        check_plan(plan_graph(graph), sizes)


def test_every_expansion_is_in_the_table() -> None:
    assert {e.op for e in EXPANDED} == set(EXPANSIONS)


def test_a_graph_without_such_operations_stays_the_same() -> None:
    g = Graph("plain")
    q = g.input("q", "float32", (1, 2, 3, 4))
    g.output("y", g.attention(q, q, q))
    assert expand_graph(g, NeutralTarget()) is g


@pytest.mark.parametrize("length", [1031, 2 * 1021, 40_009], ids=str)
def test_lengths_without_small_divisors_stay_transforms(length: int) -> None:
    g = Graph("prime")
    g.output("y", g.dft(g.input("x", "float32", (1, length, 1)), 1))
    assert (expand_graph(g, NeutralTarget()) is g) == (length != 2 * 1021)


def test_names_and_origins_of_a_node_stay() -> None:
    g = Graph("named")
    with g.origin("/stft"):
        y = g.dft(g.input("x", "float32", ("n", 8, 1)), 1)
    y.names = ("spectrum",)
    g.output("y", y)
    expanded = expand_graph(g, NeutralTarget())
    (made,) = expanded.outputs.values()
    assert "spectrum" in made.names
    added = [n for n in expanded.nodes if n.op.title not in ("Input",)]
    assert {origin for n in added for origin in n.origins} == {"/stft"}


def test_it_can_be_switched_off() -> None:
    g = Graph("kept")
    g.output("y", g.det(g.input("x", "float32", (2, 3, 3))))
    kinds = [
        [s.kind for s in plan_graph(g, options=PlanOptions(expand=on)).steps]
        for on in (False, True)
    ]
    assert "Det" in kinds[0]
    assert "Det" not in kinds[1]


def test_singular_matrices_have_no_volume() -> None:
    g = Graph("det")
    g.output("y", g.det(g.input("x", "float32", (3, 3, 3))))
    columns = np.array([[[0, 1, 2], [0, 4, 5], [0, 7, 8]], [[0, 0, 1], [0, 1, 0], [1, 0, 0]],
                        [[1, 2, 3], [2, 4, 6], [1, 1, 1]]], np.float32)  # fmt: skip
    got = cpu_eval_graph(expand_graph(g, NeutralTarget()), {"x": columns})["y"]
    np.testing.assert_array_equal(got, np.array([0, -1, 0], np.float32))
