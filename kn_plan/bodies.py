"""The plans of control-flow bodies, as reports beside the one of the plan that runs them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from kn_graph.dim import Symbol, evaluate, symbols_of
from kn_graph.errors import SymbolError
from kn_graph.graph import Graph
from kn_graph.ops.control import ControlOp
from kn_graph.types import TensorType
from kn_graph.value import Node
from kn_plan.numbers import all_numbers
from kn_plan.plan import Plan
from kn_plan.report import PlanReport

__all__ = ["BodyReport", "Reporter", "body_numbers", "body_reports", "named_bodies"]

Reporter = Callable[[Plan, Mapping[Symbol, int]], PlanReport]
"""Makes the report of a plan at some sizes."""


@dataclass(frozen=True)
class BodyReport:
    """One body of a control step.

    Attributes:
        path: steps and bodies around it, from the outermost step on: `3.then_body.0.body`.
        depth: how many bodies it is in, itself among them.
        step: number of the control step, in the plan around it.
        name: of the body: then_body, else_body, body.
        report: its plan; None where there is none at these sizes.
        note: why there is none.
    """

    path: str
    depth: int
    step: int
    name: str
    report: PlanReport | None
    note: str = ""


def named_bodies(node: Node | None) -> list[tuple[str, Graph]]:
    """Return the bodies of a control node with the names of their attributes; none of others."""
    if node is None or not isinstance(node.op, ControlOp):
        return []
    return [(name, x) for name, x in vars(node.op).items() if isinstance(x, Graph)]


def body_reports(
    plan: Plan, env: Mapping[Symbol, int], make: Callable[[Graph], Plan], report: Reporter
) -> list[BodyReport]:
    """Return the plans of all bodies, each right behind the one it is in.

    Args:
        plan: the outermost one.
        env: numbers of all its symbols.
        make: plans a body.
        report: see `Reporter`.
    """
    found: list[BodyReport] = []
    pending = list(_inside(plan, env, "", 1))[::-1]
    while pending:
        path, depth, step, name, node, body, around = pending.pop()
        inner = make(body)
        try:
            numbers = body_numbers(node, body, around)
            found.append(BodyReport(path, depth, step, name, report(inner, numbers)))
        except SymbolError as error:
            found.append(BodyReport(path, depth, step, name, None, str(error)))
            continue
        pending += list(_inside(inner, numbers, f"{path}.", depth + 1))[::-1]
    return found


_Inside = tuple[str, int, int, str, Node, Graph, Mapping[Symbol, int]]


def _inside(plan: Plan, env: Mapping[Symbol, int], path: str, depth: int) -> Iterator[_Inside]:
    for number, step in enumerate(plan.steps):
        for name, body in named_bodies(step.node):
            assert step.node is not None
            yield f"{path}{number}.{name}", depth, number, name, step.node, body, env


def body_numbers(node: Node, body: Graph, env: Mapping[Symbol, int]) -> dict[Symbol, int]:
    """Return numbers of all symbols of a body, where those around it are known.

    Sizes that change from iteration to iteration are those of the first one; what shows only when
    the body runs is assumed.

    Args:
        node: the control node.
        body: one of its bodies.
        env: numbers of the symbols around it.

    Raises:
        SymbolError: the body does not run at these sizes.
    """
    found = dict(env)
    # what is captured and carried comes last, in operands as in inputs
    for inner, outer in zip(reversed(body.inputs), reversed(node.operands), strict=False):
        if not isinstance(inner.type, TensorType) or not isinstance(outer.type, TensorType):
            continue
        if inner.type.rank != outer.type.rank:
            continue
        for declared, given in zip(inner.type.shape, outer.type.shape, strict=True):
            symbol = None if isinstance(declared, int) else declared.as_symbol
            if symbol is not None and symbols_of(given) <= env.keys():
                found.setdefault(symbol, evaluate(given, env))
    for symbol in body.input_symbols() - found.keys():
        found[symbol] = max(1, symbol.lo)
    return all_numbers(body, {}, found)[0]
