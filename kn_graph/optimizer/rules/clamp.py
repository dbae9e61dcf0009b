"""Chains of minima and maxima with constants become at most one of each.

Every such chain is x -> min(max(x, low), high) with low <= high: start from low = -inf and
high = inf; after a minimum with c, both are at most c; after a maximum with c, both are at least c.
Their order matters where the ranges do not meet: min(max(x, 5), 2) is 2, max(min(x, 2), 5) is 5.
A NaN passes through all of them. A bound that the operand never crosses is left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isnan
from typing import ClassVar

from kn_graph.dtype import DType
from kn_graph.op import Op
from kn_graph.ops.elementwise import Binary, Unary
from kn_graph.ops.reduce import identity_of
from kn_graph.optimizer.constants import filled
from kn_graph.optimizer.editor import Editor
from kn_graph.optimizer.pattern import uniform_scalar
from kn_graph.optimizer.ranges import value_range
from kn_graph.optimizer.rule import Refused, Rule
from kn_graph.optimizer.settings import OptimizerSettings
from kn_graph.value import Node, Value

__all__ = ["RULES", "ClampChain", "IdleClamp"]

Number = float | int


@dataclass(frozen=True)
class Step:
    """One minimum or maximum with a constant.

    Attributes:
        fn: min or max.
        bound: the constant, exact.
        x: the other operand.
    """

    fn: str
    bound: Number
    x: Value


@dataclass(frozen=True)
class Clamp:
    """min(max(x, low), high).

    Attributes:
        x: what is clamped.
        low: None where nothing is too small.
        high: None where nothing is too large.
    """

    x: Value
    low: Number | None
    high: Number | None


def clamp_step(edit: Editor, v: Value) -> Step | None:
    """Return a value as a minimum or maximum with a constant, if it is one."""
    op = v.node.op
    if isinstance(op, Unary) and op.fn == "relu":
        return Step("max", 0, edit.operands(v.node)[0])
    if not isinstance(op, Binary) or op.fn not in ("min", "max"):
        return None
    a, b = edit.operands(v.node)
    for x, bound in ((a, b), (b, a)):
        scalar = uniform_scalar(edit, bound)
        if scalar is not None:
            number = int(scalar) if v.dtype.is_int else float(scalar)
            return None if isnan(number) else Step(op.fn, number, x)
    return None


def lowest_of(dtype: DType) -> Number:
    """Return the number below which there is none: a maximum with it changes nothing."""
    return identity_of("max", dtype)


def highest_of(dtype: DType) -> Number:
    """Return the number above which there is none."""
    return identity_of("min", dtype)


class ClampChain(Rule[Clamp]):
    """See the module."""

    name = "clamp_chain"
    roots: ClassVar[tuple[type[Op], ...]] = (Binary, Unary)
    functions = frozenset({"min", "max", "relu"})
    setting = "fuse_clamp"

    def match(
        self, edit: Editor, node: Node, settings: OptimizerSettings
    ) -> Clamp | Refused | None:
        """Follow the chain as far as nobody else reads it."""
        step = clamp_step(edit, node.results[0])
        if step is None:
            return None
        steps = [step]
        while (before := clamp_step(edit, steps[-1].x)) is not None:
            if edit.uses(steps[-1].x) > 1:
                break
            steps.append(before)
        steps.reverse()
        if [s.fn for s in steps] in (["min"], ["max"]) or _is_normal(steps):
            shared = before is not None and len(steps) == 1
            return Refused("what is clamped first is used elsewhere, too") if shared else None
        dtype = node.results[0].dtype
        low, high = lowest_of(dtype), highest_of(dtype)
        for s in steps:
            choose = min if s.fn == "min" else max
            low, high = choose(low, s.bound), choose(high, s.bound)
        # one of two equal bounds is enough where the other one is the end of the type
        keep_low = low > lowest_of(dtype)
        keep_high = high < highest_of(dtype)
        return Clamp(steps[0].x, low if keep_low else None, high if keep_high else None)

    def rewrite(self, edit: Editor, found: Clamp) -> Value:
        """Build a maximum, then a minimum."""
        g, x = edit.graph, found.x
        if found.low is not None and found.low == found.high and x.dtype.is_int:
            return filled(edit, x.shape, found.low, x.dtype)
        if found.low == 0 and found.high is None and x.dtype.kind.value != "uint":
            return g.relu(x)
        for fn, bound in (("max", found.low), ("min", found.high)):
            if bound is not None:
                x = g.push(Binary(fn), x, filled(edit, x.shape, bound, x.dtype))
        return x


def _is_normal(steps: list[Step]) -> bool:
    """Return whether a chain is a maximum followed by a minimum that is not below it."""
    return [s.fn for s in steps] == ["max", "min"] and steps[0].bound <= steps[1].bound


@dataclass(frozen=True)
class Idle:
    """What a clamp leaves as it is."""

    x: Value


class IdleClamp(Rule[Idle]):
    """A bound that is never crossed: relu(sigmoid(x)), max(x, -inf), min(min(x, 1), 2)."""

    name = "idle_clamp"
    roots: ClassVar[tuple[type[Op], ...]] = (Binary, Unary)
    functions = frozenset({"min", "max", "relu"})
    setting = "fuse_clamp"

    def match(self, edit: Editor, node: Node, settings: OptimizerSettings) -> Idle | None:
        """Compare the bound with what is known of the operand."""
        step = clamp_step(edit, node.results[0])
        if step is None:
            return None
        dtype = node.results[0].dtype
        known = value_range(edit, step.x)
        if step.fn == "min":
            idle = step.bound >= min(known.high, highest_of(dtype))
        else:
            idle = step.bound <= max(known.low, lowest_of(dtype))
        return Idle(step.x) if idle else None

    def rewrite(self, edit: Editor, found: Idle) -> Value:
        """Leave it out."""
        return found.x


RULES = (IdleClamp(), ClampChain())
