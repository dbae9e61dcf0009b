"""Applies rules until none fires."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from kn_graph.errors import InternalError
from kn_graph.graph import Graph
from kn_graph.op import Op
from kn_graph.ops.elementwise import Binary, Unary
from kn_graph.optimizer.editor import Editor
from kn_graph.optimizer.report import OptimizerReport
from kn_graph.optimizer.rule import Refused, Rule
from kn_graph.optimizer.settings import OptimizerSettings
from kn_graph.value import Node, Value

__all__ = ["rewrite_graph"]

SCALAR = (Unary, Binary)

STEPS_PER_NODE = 200
"""A rewrite that goes on longer than this runs in circles."""


def rewrite_graph(
    graph: Graph,
    phases: Sequence[Sequence[Rule[Any]]],
    settings: OptimizerSettings,
    report: OptimizerReport,
) -> Graph:
    """Return a graph in which no rule of the last phase matches any more.

    Args:
        graph: stays as it is.
        phases: rules, tried in this order at each node; those of a phase until none fires.
        settings: which rules may fire.
        report: is told what happened.

    Raises:
        InternalError: the rules do not come to an end.
    """
    edit = Editor(graph)
    limit = STEPS_PER_NODE * (len(edit.graph.nodes) + 50)
    earlier: Counter[tuple[str, str]] = Counter()
    for rules in phases:
        earlier |= report.refused
        table = _table(tuple(rules), settings)
        order = _exhaust(edit, table, settings, report, limit)
    result = edit.finish(order)
    if len(result.nodes) < len(order):
        # nodes that had become equal merged: who is read once only may be another one now
        result = rewrite_graph(result, phases[-1:], settings, report)
    report.refused |= earlier
    return result


def _exhaust(
    edit: Editor,
    table: _Table,
    settings: OptimizerSettings,
    report: OptimizerReport,
    limit: int,
) -> list[Node]:
    """Apply rules until none fires; return the living nodes so that operands come first."""
    fired = -1
    while report.fired.total() > fired:
        # again over everything: rules look further than at what is next to a rewrite
        fired = report.fired.total()
        report.refused.clear()
        order = edit.order()
        work = _Worklist(order)
        while (node := work.take()) is not None:
            if not edit.alive(node):
                continue
            report.steps += 1
            if report.steps > limit:
                raise InternalError(f"the optimizer does not end; fired: {dict(report.fired)}")
            for rule in table.rules(node.op):
                found = rule.match(edit, node, settings)
                if found is not None and _apply(rule, found, edit, node, report, work):
                    break
    return order


class _Worklist:
    """Nodes to look at, each at most once at a time, in order."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._queue = deque(nodes)
        self._waiting = set(nodes)

    def __len__(self) -> int:
        return len(self._queue)

    def add(self, node: Node) -> None:
        if node not in self._waiting:
            self._waiting.add(node)
            self._queue.append(node)

    def take(self) -> Node | None:
        if not self._queue:
            return None
        node = self._queue.popleft()
        self._waiting.discard(node)
        return node


class _Table:
    """Rules by what they start at."""

    def __init__(self, rules: Sequence[Rule[Any]]) -> None:
        self._all = rules
        self._found: dict[tuple[type[Op], str | None], list[Rule[Any]]] = {}

    def rules(self, op: Op) -> list[Rule[Any]]:
        """Return the rules that may match at an operation, in order."""
        function: str | None = getattr(op, "fn", None)
        key = (type(op), function)
        found = self._found.get(key)
        if found is None:
            found = self._found[key] = [
                r
                for r in self._all
                if type(op) in r.roots
                and (r.functions is None or not isinstance(op, SCALAR) or function in r.functions)
            ]
        return found


@lru_cache(maxsize=16)
def _table(rules: tuple[Rule[Any], ...], settings: OptimizerSettings) -> _Table:
    """Return the rules that may fire; the same for all graphs."""
    return _Table([r for r in rules if settings.allows(r.name, r.setting)])


def _apply(
    rule: Rule[Any],
    found: Any,
    edit: Editor,
    node: Node,
    report: OptimizerReport,
    work: _Worklist,
) -> bool:
    if isinstance(found, Refused):
        report.refuse(rule.name, found.reason, node.label)
        return False
    first_new = len(edit.graph.nodes)
    out = rule.rewrite(edit, found)
    results = out if isinstance(out, tuple) else (out,)
    if all(edit.resolve(v) is edit.resolve(w) for v, w in zip(node.results, results, strict=True)):
        return False  # what was built turned out to be the node itself
    report.fired[rule.name] += 1
    for old, new in zip(node.results, results, strict=True):
        if edit.resolve(old) is not edit.resolve(new):
            edit.replace(old, new)
    _look_again(edit, edit.graph.nodes[first_new:], results, work)
    return True


def _look_again(
    edit: Editor, built: Sequence[Node], results: Sequence[Value], work: _Worklist
) -> None:
    """Queue what a rewrite may have made possible: new nodes, their readers, their operands."""
    for node in built:
        if edit.alive(node):
            work.add(node)
            for v in node.results:  # a rewrite may have replaced more than its root
                for user in edit.users(v):
                    work.add(user)
    for v in results:
        v = edit.resolve(v)
        work.add(v.node)
        for user in edit.users(v):
            work.add(user)
        for operand in edit.operands(v.node):
            work.add(operand.node)
