"""Arithmetic and logic that changes nothing, or that a simpler function does.

x + 0, x * 1, x / 1, x ** 1 and so on, on either side, are x; what is decided by one operand, such
as `x and false` or a product of integers with 0, is that operand; negations cancel or turn sums
into differences. A product of floats with 0 stays: NaN * 0 is NaN. The sign of a zero may change:
x + 0 is 0 for x = -0, and is taken to be x.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from kn_graph.dtype import DType, Kind
from kn_graph.op import Op
from kn_graph.ops.elementwise import Binary, Compare, Unary
from kn_graph.optimizer.constants import filled
from kn_graph.optimizer.editor import Editor
from kn_graph.optimizer.pattern import uniform_scalar
from kn_graph.optimizer.ranges import value_range
from kn_graph.optimizer.rule import Rule
from kn_graph.optimizer.settings import OptimizerSettings
from kn_graph.value import Node, Value

__all__ = [
    "RULES",
    "CompareTruth",
    "DecidedOperand",
    "IdleUnary",
    "Negation",
    "NeutralOperand",
    "OppositeComparison",
    "SameOperands",
]


@dataclass(frozen=True)
class Kept:
    """The value that stays."""

    x: Value


class KeepRule(Rule[Kept]):
    """A rule after which one of the values it looked at is enough."""

    def rewrite(self, edit: Editor, found: Kept) -> Value:
        """Keep the value."""
        return found.x


@dataclass(frozen=True)
class Applied:
    """A function to apply instead.

    Attributes:
        op: the function.
        operands: what to apply it to.
    """

    op: Op
    operands: tuple[Value, ...]


class ApplyRule(Rule[Applied]):
    """A rule after which one other function is enough."""

    def rewrite(self, edit: Editor, found: Applied) -> Value:
        """Apply the function."""
        return edit.graph.push(found.op, *found.operands)


# ---- constants ------------------------------------------------------------------------------

NEUTRAL: dict[str, tuple[int | None, int | None]] = {
    "add": (0, 0),
    "sub": (None, 0),
    "mul": (1, 1),
    "div": (None, 1),
    "pow": (None, 1),
    "logical_and": (1, 1),
    "logical_or": (0, 0),
    "logical_xor": (0, 0),
    "bit_and": (-1, -1),
    "bit_or": (0, 0),
    "bit_xor": (0, 0),
    "shift_left": (None, 0),
    "shift_right": (None, 0),
}
"""What changes nothing at the left and at the right; -1 is all bits."""

DECIDING: dict[str, int] = {"logical_and": 0, "logical_or": 1, "bit_and": 0, "bit_or": -1, "mul": 0}
"""What decides the result whatever the other operand is; of products, only for integers."""


def _is(scalar: np.generic | None, number: int | None, dtype: DType) -> bool:
    if scalar is None or number is None or dtype.kind is Kind.COMPLEX:
        return False
    if number == -1:
        return dtype.is_int and int(scalar) in (-1, (1 << dtype.bits) - 1)
    return bool(float(scalar) == number)


class NeutralOperand(KeepRule):
    """x + 0 = x and the like."""

    name = "neutral_operand"
    roots: ClassVar[tuple[type[Op], ...]] = (Binary,)

    def match(self, edit: Editor, node: Node, settings: OptimizerSettings) -> Kept | None:
        """Look for the neutral element on either side."""
        neutral = NEUTRAL.get(_fn(node))
        if neutral is None:
            return None
        operands = edit.operands(node)
        for number, v, other in zip(neutral, operands, operands[::-1], strict=True):
            if number is not None and _is(uniform_scalar(edit, v), number, v.dtype):
                return Kept(other)
        return None


class DecidedOperand(KeepRule):
    """x and false = false and the like."""

    name = "decided_operand"
    roots: ClassVar[tuple[type[Op], ...]] = (Binary,)

    def match(self, edit: Editor, node: Node, settings: OptimizerSettings) -> Kept | None:
        """Look for the deciding element on either side."""
        number = DECIDING.get(_fn(node))
        if number is None or node.results[0].dtype.is_float:
            return None
        for v in edit.operands(node):
            if _is(uniform_scalar(edit, v), number, v.dtype):
                return Kept(v)
        return None


# ---- one value twice ------------------------------------------------------------------------

IDEMPOTENT = frozenset({"min", "max", "logical_and", "logical_or", "bit_and", "bit_or"})
CANCELLING = frozenset({"sub", "bit_xor", "logical_xor"})


@dataclass(frozen=True)
class Same:
    """An operand that is both, and whether they cancel."""

    x: Value
    cancel: bool


class SameOperands(Rule[Same]):
    """min(x, x) = x; x - x = 0 for integers: infinity - infinity is NaN."""

    name = "same_operands"
    roots: ClassVar[tuple[type[Op], ...]] = (Binary,)

    def match(self, edit: Editor, node: Node, settings: OptimizerSettings) -> Same | None:
        """Compare the operands."""
        x, y = edit.operands(node)
        if x is not y:
            return None
        fn, dtype = _fn(node), x.dtype
        if fn in CANCELLING and (dtype.is_int or dtype is DType.BOOL):
            return Same(x, True)
        return Same(x, False) if fn in IDEMPOTENT else None

    def rewrite(self, edit: Editor, found: Same) -> Value:
        """Keep the operand, or zeros."""
        return filled(edit, found.x.shape, 0, found.x.dtype) if found.cancel else found.x


# ---- one function twice ---------------------------------------------------------------------

INVOLUTIONS = frozenset({"neg", "logical_not", "bit_not"})
INTEGRAL = frozenset({"floor", "ceil", "trunc", "round_even", "sign"})
ROUNDINGS = frozenset({"floor", "ceil", "trunc", "round_even"})


class IdleUnary(KeepRule):
    """neg(neg(x)) = x, floor(round(x)) = round(x), abs(x) = x where x is never negative."""

    name = "idle_unary"
    roots: ClassVar[tuple[type[Op], ...]] = (Unary,)

    def match(self, edit: Editor, node: Node, settings: OptimizerSettings) -> Kept | None:
        """Look at the function before."""
        fn, (x,) = _fn(node), edit.operands(node)
        before = _unary(x)
        if fn in INVOLUTIONS and before == fn:
            return Kept(edit.operands(x.node)[0])
        if fn in ROUNDINGS and before in INTEGRAL:
            return Kept(x)
        if fn == "abs" and x.dtype.is_float and value_range(edit, x).low >= 0:
            return Kept(x)
        return None


class Negation(ApplyRule):
    """x + -y = x - y, x - -y = x + y, 0 - x = -x, -(x - y) = y - x, |-x| = |x|."""

    name = "negation"
    roots: ClassVar[tuple[type[Op], ...]] = (Binary, Unary)

    def match(self, edit: Editor, node: Node, settings: OptimizerSettings) -> Applied | None:
        """Look for a negation at the operands, or one that an operand can take over."""
        if isinstance(node.op, Unary):
            return self._outside(edit, node)
        fn = _fn(node)
        if fn not in ("add", "sub"):
            return None
        x, y = edit.operands(node)
        if _unary(y) == "neg":
            return Applied(Binary("sub" if fn == "add" else "add"), (x, _inner(edit, y)))
        if fn == "add" and _unary(x) == "neg":
            return Applied(Binary("sub"), (y, _inner(edit, x)))
        signed = x.dtype.is_float or x.dtype.kind is Kind.INT
        if fn == "sub" and signed and _is(uniform_scalar(edit, x), 0, x.dtype):
            return Applied(Unary("neg"), (y,))
        return None

    def _outside(self, edit: Editor, node: Node) -> Applied | None:
        fn, (x,) = _fn(node), edit.operands(node)
        if fn == "abs" and _unary(x) in ("neg", "abs"):
            return Applied(Unary("abs"), (_inner(edit, x),))
        if fn == "neg" and isinstance(x.node.op, Binary) and x.node.op.fn == "sub":
            if edit.uses(x) > 1:
                return None
            a, b = edit.operands(x.node)
            return Applied(Binary("sub"), (b, a))
        return None


OPPOSITE = {"eq": "ne", "ne": "eq", "lt": "ge", "ge": "lt", "gt": "le", "le": "gt"}


class OppositeComparison(ApplyRule):
    """not(a = b) is a differs from b, and so on: of floats only these, since NaN is unordered."""

    name = "opposite_comparison"
    roots: ClassVar[tuple[type[Op], ...]] = (Unary,)
    functions = frozenset({"logical_not"})

    def match(self, edit: Editor, node: Node, settings: OptimizerSettings) -> Applied | None:
        """Find a negated comparison."""
        (x,) = edit.operands(node)
        if _fn(node) != "logical_not" or not isinstance(x.node.op, Compare) or edit.uses(x) > 1:
            return None
        fn, operands = x.node.op.fn, edit.operands(x.node)
        if fn not in ("eq", "ne") and not operands[0].dtype.is_int:
            return None
        return Applied(Compare(OPPOSITE[fn]), operands)


@dataclass(frozen=True)
class Compared:
    """A truth, and whether it or its negation is meant."""

    x: Value
    same: bool


class CompareTruth(Rule[Compared]):
    """(b = true) is b, (b = false) is not b."""

    name = "compare_with_truth"
    roots: ClassVar[tuple[type[Op], ...]] = (Compare,)

    def match(self, edit: Editor, node: Node, settings: OptimizerSettings) -> Compared | None:
        """Find a boolean constant."""
        fn = _fn(node)
        operands = edit.operands(node)
        if fn not in ("eq", "ne") or operands[0].dtype is not DType.BOOL:
            return None
        for v, other in zip(operands, operands[::-1], strict=True):
            scalar = uniform_scalar(edit, v)
            if scalar is not None:
                return Compared(other, bool(scalar) == (fn == "eq"))
        return None

    def rewrite(self, edit: Editor, found: Compared) -> Value:
        """Keep the value or negate it."""
        return found.x if found.same else edit.graph.logical_not(found.x)


def _fn(node: Node) -> str:
    op: Any = node.op
    fn: str = op.fn
    return fn


def _unary(v: Value) -> str | None:
    op = v.node.op
    return op.fn if isinstance(op, Unary) else None


def _inner(edit: Editor, v: Value) -> Value:
    return edit.operands(v.node)[0]


RULES = (
    NeutralOperand(),
    DecidedOperand(),
    SameOperands(),
    IdleUnary(),
    Negation(),
    OppositeComparison(),
    CompareTruth(),
)
