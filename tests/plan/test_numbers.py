"""Numbers for sizes that show only when a node has run, where nobody ran it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import onnx.parser
import pytest

from kn_graph import Graph, load_graph_from_onnx_bytes
from kn_graph.dim import Size, evaluate, floordiv
from kn_graph.errors import SymbolError
from kn_graph.ops.control import If
from kn_plan.bodies import body_numbers, named_bodies
from kn_plan.check import check_plan
from kn_plan.numbers import all_numbers
from kn_plan.planner import plan_graph
from kn_runtime.cli.planned import at_sizes


@dataclass(frozen=True)
class Case:
    """What sizes a, b of a graph, found in this order, have to meet, and which are chosen.

    Attributes:
        require: states it.
        numbers: what is chosen.
    """

    require: Callable[[Graph, Size, Size], None]
    numbers: tuple[int, int]


CASES = {
    "nothing": Case(lambda g, a, b: None, (2, 2)),
    "the same for all": Case(lambda g, a, b: g.require_ge(3, a * b + 1, "few"), (1, 1)),
    "a number": Case(lambda g, a, b: g.require_eq(b, 5, "as wide as weights"), (2, 5)),
    "their sum": Case(lambda g, a, b: g.require_eq(a + b, 9, "as long as weights"), (2, 7)),
    "many": Case(lambda g, a, b: g.require_ge(b, 1000 * a + 1, "long"), (2, 2001)),
    "going back": Case(lambda g, a, b: g.require_eq(a, 3 * b + 1, "rows and a rest"), (1, 0)),
    "no divisor of 0": Case(lambda g, a, b: g.require_ge(floordiv(12, a * b - 4), 1, "d"), (3, 3)),
}


def found_twice() -> tuple[Graph, Size, Size]:
    """Return a graph of two sizes that nodes find."""
    graph = Graph()
    x = graph.input("x", "float32", ["n"])
    found = [graph.nonzero(v) for v in (x, graph.unary("neg", x))]
    for i, v in enumerate(found):
        graph.output(f"y{i}", v)
    a, b = (next(s for s in v.shape if not isinstance(s, int)) for v in found)
    return graph, a, b


@pytest.mark.parametrize("name", CASES)
def test_numbers_are_legal_and_small(name: str) -> None:
    graph, a, b = found_twice()
    CASES[name].require(graph, a, b)
    env, _ = all_numbers(graph.seal(), {"n": 10})
    assert all(c.holds(env) for c in graph.constraints)
    assert (evaluate(a, env), evaluate(b, env)) == CASES[name].numbers


def test_what_no_numbers_meet_is_an_error_that_names_the_given_ones() -> None:
    graph, a, b = found_twice()
    graph.require_eq(2 * a, 2 * b + graph.inputs[0].shape[0], "halves")
    with pytest.raises(SymbolError, match="give others than n = 11"):
        all_numbers(graph.seal(), {"n": 11})


def test_a_body_knows_the_sizes_that_were_found_around_it() -> None:
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 18]>
        g (float[n] x, bool c) => (float[k] y) {
            found = NonZero(x)
            f = Cast <to = 1> (found)
            y = If (c) <
                then_branch = t () => (float[1, p] a) { a = Neg(f) },
                else_branch = e () => (float[1, q] b) { b = Exp(f) }
            >
        }""")
    graph = load_graph_from_onnx_bytes(model.SerializeToString())
    env, _ = all_numbers(graph, {"n": 5})
    (node,) = (n for n in graph.nodes if isinstance(n.op, If))
    for _, body in named_bodies(node):
        plan = plan_graph(body)
        assert not check_plan(plan, found=body_numbers(node, body, env)).faults


def test_what_a_node_finds_is_not_assumed_with_the_sizes_of_inputs() -> None:
    graph, _, b = found_twice()
    graph.require_eq(b, 5, "as wide as weights")
    assert at_sizes(graph.seal(), {}).dims.keys() == {"n"}
