"""Choices that are decided, or that are the truth itself.

select(c, x, x) = x; of a constant condition only one choice is left; select(not c, x, y) =
select(c, y, x); select(c, true, false) = c.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from kn_graph.dtype import DType
from kn_graph.op import Op
from kn_graph.ops.elementwise import Select, Unary
from kn_graph.optimizer.editor import Editor
from kn_graph.optimizer.pattern import uniform_scalar
from kn_graph.optimizer.rule import Rule
from kn_graph.optimizer.settings import OptimizerSettings
from kn_graph.value import Node, Value

__all__ = ["RULES", "DecidedSelect", "SelectOfNot", "SelectOfTruths"]


@dataclass(frozen=True)
class Chosen:
    """The choice that is left."""

    x: Value


class DecidedSelect(Rule[Chosen]):
    """One choice where the condition is constant, or both are the same."""

    name = "decided_select"
    roots: ClassVar[tuple[type[Op], ...]] = (Select,)

    def match(self, edit: Editor, node: Node, settings: OptimizerSettings) -> Chosen | None:
        """Look at the condition, then compare the choices."""
        condition, x, y = edit.operands(node)
        if x is y:
            return Chosen(x)
        truth = uniform_scalar(edit, condition)
        return None if truth is None else Chosen(x if truth else y)

    def rewrite(self, edit: Editor, found: Chosen) -> Value:
        """Keep the choice."""
        return found.x


@dataclass(frozen=True)
class Turned:
    """A condition, and what is chosen where it holds and where not."""

    condition: Value
    x: Value
    y: Value


class SelectOfNot(Rule[Turned]):
    """select(not c, x, y) = select(c, y, x)."""

    name = "select_of_not"
    roots: ClassVar[tuple[type[Op], ...]] = (Select,)

    def match(self, edit: Editor, node: Node, settings: OptimizerSettings) -> Turned | None:
        """Find a negated condition."""
        condition, x, y = edit.operands(node)
        op = condition.node.op
        if not isinstance(op, Unary) or op.fn != "logical_not":
            return None
        return Turned(edit.operands(condition.node)[0], y, x)

    def rewrite(self, edit: Editor, found: Turned) -> Value:
        """Swap the choices."""
        return edit.graph.push(Select(), found.condition, found.x, found.y)


@dataclass(frozen=True)
class Truth:
    """A condition, and whether it is negated."""

    condition: Value
    same: bool


class SelectOfTruths(Rule[Truth]):
    """select(c, true, false) = c, select(c, false, true) = not c."""

    name = "select_of_truths"
    roots: ClassVar[tuple[type[Op], ...]] = (Select,)

    def match(self, edit: Editor, node: Node, settings: OptimizerSettings) -> Truth | None:
        """Find two boolean constants."""
        condition, x, y = edit.operands(node)
        if x.dtype is not DType.BOOL:
            return None
        then, otherwise = uniform_scalar(edit, x), uniform_scalar(edit, y)
        if then is None or otherwise is None or bool(then) == bool(otherwise):
            return None
        return Truth(condition, bool(then))

    def rewrite(self, edit: Editor, found: Truth) -> Value:
        """Keep the condition or negate it."""
        return found.condition if found.same else edit.graph.logical_not(found.condition)


RULES = (DecidedSelect(), SelectOfNot(), SelectOfTruths())
