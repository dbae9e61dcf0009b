"""Control flow that is decided: an If on a constant is its branch, a Loop of no iterations nothing.

Refused where the size of a result was only to be known at run time: others refer to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from kn_graph.graph import Graph
from kn_graph.liveness import live_nodes
from kn_graph.op import Op
from kn_graph.ops.control import If, Loop
from kn_graph.ops.source import Input
from kn_graph.optimizer.constants import known_shape
from kn_graph.optimizer.editor import Editor
from kn_graph.optimizer.pattern import uniform_scalar
from kn_graph.optimizer.rule import Refused, Rule
from kn_graph.optimizer.settings import OptimizerSettings
from kn_graph.transform import GraphCopier
from kn_graph.types import TensorType, ValueType
from kn_graph.value import Node, Value

__all__ = ["RULES", "InlineIf", "SkipLoop"]


def _replaceable(old: ValueType, new: ValueType) -> bool:
    if isinstance(old, TensorType) and isinstance(new, TensorType):
        return old.dtype is new.dtype and old.rank == new.rank
    return old == new


def _refusal(edit: Editor, node: Node, types: Sequence[ValueType]) -> Refused | None:
    """Say why values of these types may not take the place of a node's results."""
    if node in edit.graph.size_sources.values():
        return Refused("a size is only known when it has run")
    if not all(_replaceable(v.type, t) for v, t in zip(node.results, types, strict=True)):
        return Refused("the types of the branches differ")
    return None


@dataclass(frozen=True)
class Branch:
    """The body that runs, and what its inputs are."""

    body: Graph
    captured: tuple[Value, ...]


class InlineIf(Rule[Branch]):
    """See the module."""

    name = "inline_if"
    roots: ClassVar[tuple[type[Op], ...]] = (If,)
    setting = "fold"

    def match(
        self, edit: Editor, node: Node, settings: OptimizerSettings
    ) -> Branch | Refused | None:
        """Find a constant condition."""
        condition, *captured = edit.operands(node)
        truth = uniform_scalar(edit, condition)
        if truth is None:
            return None
        assert isinstance(node.op, If)
        body = node.op.then_body if truth else node.op.else_body
        types = [v.type for v in body.outputs.values()]
        return _refusal(edit, node, types) or Branch(body, tuple(captured))

    def rewrite(self, edit: Editor, found: Branch) -> tuple[Value, ...]:
        """Copy the branch into the graph around it, with what it requires of sizes."""
        copier = GraphCopier(edit.graph)
        for v, given in zip(found.body.inputs, found.captured, strict=True):
            copier.values[v] = given
            if isinstance(v.type, TensorType) and isinstance(given.type, TensorType):
                for declared, actual in zip(v.shape, given.shape, strict=True):
                    symbol = None if isinstance(declared, int) else declared.as_symbol
                    if symbol is not None and declared != actual:
                        copier.symbols.setdefault(symbol, actual)
        for node in live_nodes(found.body, found.body.outputs.values()):
            if not isinstance(node.op, Input):
                copier.copy(node)
        copier.constrain(found.body.constraints)
        edit.graph.guards += [g for g in found.body.guards if g not in edit.graph.guards]
        return tuple(copier.values[v] for v in found.body.outputs.values())


@dataclass(frozen=True)
class Skipped:
    """The initial values of what a loop carries, and the types of its rows."""

    initial: tuple[Value, ...]
    rows: tuple[TensorType, ...]


class SkipLoop(Rule[Skipped]):
    """See the module."""

    name = "skip_loop"
    roots: ClassVar[tuple[type[Op], ...]] = (Loop,)
    setting = "fold"

    def match(
        self, edit: Editor, node: Node, settings: OptimizerSettings
    ) -> Skipped | Refused | None:
        """Find a trip count of 0, or a condition that is false from the start."""
        op = node.op
        assert isinstance(op, Loop)
        operands = edit.operands(node)
        limits = op.has_trip + op.has_condition
        trip = uniform_scalar(edit, operands[0]) if op.has_trip else None
        condition = uniform_scalar(edit, operands[limits - 1]) if op.has_condition else None
        ends = op.count == 0 or (trip is not None and int(trip) <= 0)
        if not ends and (condition is None or condition):
            return None
        initial = operands[limits:][: op.carried]
        rows = []
        for v in node.results[op.carried :]:
            if not isinstance(v.type, TensorType) or known_shape(v.type.shape[1:]) is None:
                return Refused("the size of a row is not known")
            rows.append(TensorType(v.type.dtype, (0, *v.type.shape[1:])))
        types = [*(v.type for v in initial), *rows]
        return _refusal(edit, node, types) or Skipped(initial, tuple(rows))

    def rewrite(self, edit: Editor, found: Skipped) -> tuple[Value, ...]:
        """Give the initial values, and no rows."""
        empty = [np.zeros(known_shape(t.shape) or (), t.dtype.numpy) for t in found.rows]
        return (*found.initial, *map(edit.graph.constant, empty))


RULES = (InlineIf(), SkipLoop())
