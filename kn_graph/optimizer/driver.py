"""Applies rules until none fires."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import cycle
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

REACH = 6
"""How far below their root rules look, that do not say that they look further."""


def rewrite_graph(
    graph: Graph,
    phases: Sequence[Sequence[Rule[Any]]],
    settings: OptimizerSettings,
    report: OptimizerReport,
) -> Graph:
    """Return a graph in which no rule of the last phase matches any more (see `Rule.looks_far`).

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
        order = _Phase(edit, settings, report, limit).exhaust(tuple(rules))
    result = edit.finish(order)
    if len(result.nodes) < len(order):
        # nodes that had become equal merged: who is read once only may be another one now
        result = rewrite_graph(result, phases[-1:], settings, report)
    report.refused |= earlier
    return result


@dataclass
class _Phase:
    """Applies rules to a graph until none fires.

    Attributes:
        edit: the graph.
        settings: which rules may fire.
        report: is told what happened.
        limit: after how many steps it goes on in circles.
        refused: at which nodes rules were refused when they were tried last, and why.
    """

    edit: Editor
    settings: OptimizerSettings
    report: OptimizerReport
    limit: int
    refused: dict[Node, dict[str, str]] = field(default_factory=dict)

    def exhaust(self, rules: tuple[Rule[Any], ...]) -> list[Node]:
        """Apply rules; return the living nodes so that operands come first."""
        tables = [_table(r, self.settings) for r in (rules, _far(rules))]
        for table in cycle(tables):
            order = self.edit.order()
            if not self._fires(table, order):
                break
        self.report.refused.clear()
        for node in order:
            for rule, reason in self.refused.get(node, {}).items():
                self.report.refuse(rule, reason, node.label)
        return order

    def _fires(self, table: _Table, order: Sequence[Node]) -> bool:
        """Try rules at every node, and again near what they change; return whether one fired."""
        edit, report = self.edit, self.report
        before = report.fired.total()
        work = _Worklist(order)
        while (node := work.take()) is not None:
            if not edit.alive(node):
                continue
            report.steps += 1
            if report.steps > self.limit:
                raise InternalError(f"the optimizer does not end; fired: {dict(report.fired)}")
            refused = self.refused.get(node)
            for rule in table.rules(node.op):
                if refused:
                    refused.pop(rule.name, None)
                found = rule.match(edit, node, self.settings)
                if isinstance(found, Refused):
                    self.refused.setdefault(node, {})[rule.name] = found.reason
                elif found is not None and _apply(rule, found, edit, node, report, work):
                    break
        return report.fired.total() > before


class _Worklist:
    """Nodes to look at, each at most once at a time, in order.

    Attributes:
        fresh: those that were never taken; neither were those that read them, which come later.
    """

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._queue = deque(nodes)
        self._waiting = set(nodes)
        self.fresh = set(nodes)

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
        self.fresh.discard(node)
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
def _far(rules: tuple[Rule[Any], ...]) -> tuple[Rule[Any], ...]:
    return tuple([r for r in rules if r.looks_far])


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
    """Queue what a rewrite may have made possible: new nodes, who reads them, their operands."""
    nodes = [node for node in built if edit.alive(node)]  # it may have replaced more than its root
    for v in results:
        node = edit.resolve(v).node
        nodes.append(node)
        for operand in edit.operands(node):
            work.add(operand.node)
    for _ in range(REACH):
        nodes = [node for node in nodes if node not in work.fresh]
        if not nodes:
            break
        for node in nodes:
            work.add(node)
        nodes = list({user: None for n in nodes for v in n.results for user in edit.users(v)})
