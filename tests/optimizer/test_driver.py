"""The driver: where rules are tried again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kn_graph import Graph
from kn_graph.ops.elementwise import Unary
from kn_graph.optimizer.driver import REACH, rewrite_graph
from kn_graph.optimizer.editor import Editor
from kn_graph.optimizer.report import OptimizerReport
from kn_graph.optimizer.rule import Refused, Rule
from kn_graph.optimizer.settings import OptimizerSettings
from kn_graph.value import Node, Value


class AbsOfAny(Rule[Node]):
    """abs(x) = 1: wrong, and so that nobody reads x any more."""

    name = "abs_of_any"
    roots = (Unary,)
    functions = frozenset({"abs"})

    def match(self, edit: Editor, node: Node, settings: OptimizerSettings) -> Node:
        return node

    def rewrite(self, edit: Editor, found: Node) -> Value:
        return edit.graph.constant(np.ones(3, np.float32))


class NegOfOwn(Rule[Node]):
    """neg(x) = x where nobody else reads x."""

    name = "neg_of_own"
    roots = (Unary,)
    functions = frozenset({"neg"})

    def match(self, edit: Editor, node: Node, settings: OptimizerSettings) -> Node | Refused | None:
        (x,) = edit.operands(node)
        return node if edit.uses(x) == 1 else Refused("somebody else reads it")

    def rewrite(self, edit: Editor, found: Node) -> Value:
        return edit.operands(found)[0]


class FarNegOfOwn(NegOfOwn):
    looks_far = True


def optimized(*rules: Rule[Any]) -> OptimizerReport:
    """Return what happens to neg(exp(x)), which is looked at before abs(exp(x))."""
    g = Graph()
    e = g.unary("exp", g.input("x", "float32", [3]))
    g.output("neg", g.unary("neg", e))
    g.output("abs", g.unary("abs", e))
    report = OptimizerReport()
    rewrite_graph(g.seal(), [rules], OptimizerSettings(), report)
    return report


def test_rules_that_look_far_are_tried_again_where_nothing_near_changed():
    report = optimized(AbsOfAny(), FarNegOfOwn())
    assert report.fired == {"abs_of_any": 1, "neg_of_own": 1}
    assert not report.refused, "what was refused at first"


def test_others_are_not_and_their_refusals_stay():
    report = optimized(AbsOfAny(), NegOfOwn())
    assert report.fired == {"abs_of_any": 1}
    assert report.refused == {("neg_of_own", "somebody else reads it"): 1}


class SignOfAny(AbsOfAny):
    """sign(x) = 1, and x too."""

    functions = frozenset({"sign"})

    def rewrite(self, edit: Editor, found: Node) -> Value:
        one = super().rewrite(edit, found)
        edit.replace(edit.operands(found)[0], one)
        return one


class NegFarAbove(NegOfOwn):
    """neg(exp(.. exp(1))) = exp(.. exp(1))."""

    def match(self, edit: Editor, node: Node, settings: OptimizerSettings) -> Node | None:
        (v,) = edit.operands(node)
        while v.node.operands:
            (v,) = edit.operands(v.node)
        return node if v.constant is not None else None


@pytest.mark.parametrize("levels", [1, REACH - 2])
def test_rules_are_tried_again_some_levels_above_what_changed(levels: int) -> None:
    """What is changed last is at the bottom of a chain whose end was looked at before."""
    g = Graph()
    x = top = g.unary("abs", g.input("x", "float32", [3]))
    for _ in range(levels):
        top = g.unary("exp", top)
    g.output("neg", g.unary("neg", top))
    g.output("sign", g.unary("sign", x))
    report = OptimizerReport()
    rewrite_graph(g.seal(), [[NegFarAbove(), SignOfAny()]], OptimizerSettings(), report)
    assert report.fired == {"abs_of_any": 1, "neg_of_own": 1}
