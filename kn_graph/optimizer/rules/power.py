"""Powers, quotients and roots in their cheapest form.

x ** 2 = x * x, x ** -1 = 1 / x, x ** 0.5 = sqrt(x) for x >= 0, x / c = x * (1 / c) where 1 / c is
exact, which it is for powers of two, or where it is allowed to round.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import ml_dtypes
import numpy as np

from kn_graph.dtype import DType, Kind
from kn_graph.op import Op
from kn_graph.ops.elementwise import Binary, Unary
from kn_graph.optimizer.constants import constant_behind, map_constant
from kn_graph.optimizer.editor import Editor
from kn_graph.optimizer.pattern import uniform_scalar
from kn_graph.optimizer.ranges import value_range
from kn_graph.optimizer.rule import Refused, Rule
from kn_graph.optimizer.settings import OptimizerSettings
from kn_graph.value import Node, Value

__all__ = ["RULES", "DivideByConstant", "DivideByPowerOfTwo", "PowerForm", "Reciprocal", "Rsqrt"]

Array = np.ndarray[Any, Any]

MAX_BYTES = 64 << 10
"""Larger constants are not looked at."""


@dataclass(frozen=True)
class Power:
    """A base, and functions of one argument to apply to it; `square` stands for x * x."""

    x: Value
    fns: tuple[str, ...]


POWERS: dict[float, tuple[str, ...]] = {
    2.0: ("square",),
    -1.0: ("reciprocal",),
    0.5: ("sqrt",),
    -0.5: ("sqrt", "reciprocal"),
}


class PowerForm(Rule[Power]):
    """See the module. A power 0.5 of -infinity is infinity, its root is NaN."""

    name = "power_form"
    roots: ClassVar[tuple[type[Op], ...]] = (Binary, Unary)
    functions = frozenset({"square", "pow"})

    def match(
        self, edit: Editor, node: Node, settings: OptimizerSettings
    ) -> Power | Refused | None:
        """Find a constant exponent."""
        op: Any = node.op
        if op.fn == "square":
            return Power(edit.operands(node)[0], ("square",))
        if op.fn != "pow":
            return None
        x, y = edit.operands(node)
        exponent = uniform_scalar(edit, y)
        fns = None if exponent is None else POWERS.get(float(exponent))
        if fns is None or (fns != ("square",) and not x.dtype.is_float):
            return None
        if "sqrt" in fns and value_range(edit, x).low < 0:
            return Refused("the base of a power 0.5 may be -infinity")
        return Power(x, fns)

    def rewrite(self, edit: Editor, found: Power) -> Value:
        """Apply the functions."""
        x = found.x
        for fn in found.fns:
            square = fn == "square"
            x = edit.graph.push(Binary("mul"), x, x) if square else edit.graph.unary(fn, x)
        return x


@dataclass(frozen=True)
class Quotient:
    """A dividend, and the constant divisor."""

    x: Value
    divisor: Value


class QuotientRule(Rule[Quotient]):
    """A rule that multiplies with the inverse."""

    roots: ClassVar[tuple[type[Op], ...]] = (Binary,)
    functions = frozenset({"div"})

    def rewrite(self, edit: Editor, found: Quotient) -> Value:
        """Invert the constant, in float64, and multiply."""
        factor = map_constant(edit, found.divisor, _inverse)
        return edit.graph.push(Binary("mul"), found.x, factor)


def _inverse(a: Array) -> Array:
    with np.errstate(all="ignore"):
        return np.asarray(1 / a.astype(np.float64)).astype(a.dtype)


def _divisor(edit: Editor, node: Node) -> tuple[Value, Value, Array] | None:
    """Return dividend, divisor and the constant behind it, for floats."""
    op: Any = node.op
    if op.fn != "div" or node.results[0].dtype not in FLOATS:
        return None
    x, y = edit.operands(node)
    a = constant_behind(edit, y)
    return None if a is None or a.size == 0 or a.nbytes > MAX_BYTES else (x, y, a)


FLOATS = frozenset({DType.FLOAT16, DType.BFLOAT16, DType.FLOAT32, DType.FLOAT64})


def _has_inverse(a: Array) -> bool:
    """Return whether inverses are neither too large nor denormal nor NaN."""
    limits = ml_dtypes.finfo(a.dtype)  # type: ignore[no-untyped-call]
    size = np.abs(_inverse(a).astype(np.float64))
    return bool(((size >= float(limits.smallest_normal)) & (size <= float(limits.max))).all())


def _powers_of_two(a: Array) -> bool:
    return bool((np.abs(np.frexp(a.astype(np.float64))[0]) == 0.5).all())


class DivideByPowerOfTwo(QuotientRule):
    """x / 8 = x * 0.125, which rounds alike."""

    name = "divide_by_power_of_two"

    def match(
        self, edit: Editor, node: Node, settings: OptimizerSettings
    ) -> Quotient | Refused | None:
        """Find constants that are powers of two with an exact inverse."""
        found = _divisor(edit, node)
        if found is None or not _powers_of_two(found[2]):
            return None
        if not _has_inverse(found[2]):
            return Refused("the inverse is too large or denormal")
        return Quotient(found[0], found[1])


class DivideByConstant(QuotientRule):
    """x / c = x * (1 / c), with one more rounding."""

    name = "divide_by_constant"
    setting = "div_to_mul"

    def match(
        self, edit: Editor, node: Node, settings: OptimizerSettings
    ) -> Quotient | Refused | None:
        """Find constants with an inverse."""
        found = _divisor(edit, node)
        if found is None:
            return None
        if not _has_inverse(found[2]):
            return Refused("the inverse is too large or denormal")
        return Quotient(found[0], found[1])


@dataclass(frozen=True)
class Inverted:
    """What is inverted."""

    x: Value


class Reciprocal(Rule[Inverted]):
    """1 / x, which rounds alike."""

    name = "reciprocal"
    roots: ClassVar[tuple[type[Op], ...]] = (Binary,)
    functions = frozenset({"div"})

    def match(self, edit: Editor, node: Node, settings: OptimizerSettings) -> Inverted | None:
        """Find a dividend of 1."""
        op: Any = node.op
        if op.fn != "div" or node.results[0].dtype.kind is not Kind.FLOAT:
            return None
        one, x = edit.operands(node)
        scalar = uniform_scalar(edit, one)
        return Inverted(x) if scalar is not None and float(scalar) == 1 else None

    def rewrite(self, edit: Editor, found: Inverted) -> Value:
        """Invert."""
        return edit.graph.unary("reciprocal", found.x)


class Rsqrt(Rule[Inverted]):
    """1 / sqrt(x) in one step."""

    name = "rsqrt"
    roots: ClassVar[tuple[type[Op], ...]] = (Unary,)
    functions = frozenset({"reciprocal"})
    setting = "fuse_rsqrt"

    def match(self, edit: Editor, node: Node, settings: OptimizerSettings) -> Inverted | None:
        """Find the root under the inverse."""
        op: Any = node.op
        (x,) = edit.operands(node)
        inner: Any = x.node.op
        if op.fn != "reciprocal" or not isinstance(inner, Unary) or inner.fn != "sqrt":
            return None
        return Inverted(edit.operands(x.node)[0])

    def rewrite(self, edit: Editor, found: Inverted) -> Value:
        """Apply the row of the scalar table."""
        return edit.graph.unary("rsqrt", found.x)


RULES = (PowerForm(), Reciprocal(), DivideByPowerOfTwo(), DivideByConstant(), Rsqrt())
