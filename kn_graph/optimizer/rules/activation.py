"""Single scalar functions that exporters spell out.

- relu: max(x, 0) = relu(x), the one form that clips start from;
- sigmoid: y / (1 + exp(-x)) = y * sigmoid(x);
- softplus: log(1 + exp(x)) = softplus(x);
- softsign: x / (1 + |x|) = softsign(x);
- narrow_pow: a power with an exponent of another type, computed in that of x.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from kn_graph.op import Op
from kn_graph.ops.elementwise import Binary, Cast, Unary
from kn_graph.optimizer.editor import Editor
from kn_graph.optimizer.pattern import uniform_number
from kn_graph.optimizer.polynomial import FLOATS, function, polynomial, scaled_values
from kn_graph.optimizer.rule import SHARED, Refused, Rule
from kn_graph.optimizer.settings import OptimizerSettings
from kn_graph.value import Node, Value

__all__ = ["RULES", "NarrowPow", "Relu", "Sigmoid", "Softplus", "Softsign"]

ONE_PLUS = {(0,): 1.0, (1,): 1.0}


@dataclass(frozen=True)
class Applied:
    """A row of the scalar table and its operand; the result is multiplied with `factor`."""

    row: str
    x: Value
    scale: float = 1.0
    factor: Value | None = None


class RowRule(Rule[Applied]):
    """A rule that ends in one row of the scalar table."""

    setting = "fuse_activation"

    def rewrite(self, edit: Editor, found: Applied) -> Value:
        """Apply the row."""
        g, x = edit.graph, found.x
        if found.scale == -1:
            x = g.neg(x)
        elif found.scale != 1:
            x = g.mul(x, g.scalar(found.scale, x.dtype))
        out = g.unary(found.row, x)
        return out if found.factor is None else g.mul(found.factor, out)


def single_use(edit: Editor, values: list[Value]) -> bool:
    """Return whether each value is read once, and is no output."""
    return all(edit.uses(v) == 1 and not edit.is_output(v) for v in values)


class Relu(RowRule):
    """max(x, 0)."""

    name = "relu"
    roots: ClassVar[tuple[type[Op], ...]] = (Binary,)
    functions = frozenset({"max"})

    def match(
        self, edit: Editor, node: Node, settings: OptimizerSettings
    ) -> Applied | Refused | None:
        """Look for a maximum with a constant +0."""
        if function(node.op) != "max" or node.results[0].dtype not in FLOATS:
            return None
        x, y = edit.operands(node)
        for constant, other in ((y, x), (x, y)):
            number = uniform_number(edit, constant)
            if number == 0 and not np.signbit(number):
                return Applied("relu", other)
        return None


def one_plus(edit: Editor, v: Value, fn: str) -> tuple[Value, list[Value]] | None:
    """Return the operand of fn in 1 + fn(x), and the values between."""
    for inner in scaled_values(edit, v):
        if function(inner.node.op) != fn:
            continue
        found = polynomial(edit, v, (inner,))
        if found is None or found.terms != ONE_PLUS:
            return None
        between = [inner, *(n.results[0] for n in found.nodes)]
        return edit.operands(inner.node)[0], between
    return None


class Sigmoid(RowRule):
    """y / (1 + exp(-x))."""

    name = "sigmoid"
    roots: ClassVar[tuple[type[Op], ...]] = (Binary, Unary)
    functions = frozenset({"div", "reciprocal"})

    def match(
        self, edit: Editor, node: Node, settings: OptimizerSettings
    ) -> Applied | Refused | None:
        """Find the exponential in the divisor, then take the sign off its operand."""
        fn, operands = function(node.op), edit.operands(node)
        if fn not in ("div", "reciprocal") or node.results[0].dtype not in FLOATS:
            return None
        below = one_plus(edit, operands[-1], "exp")
        if below is None:
            return None
        exponent, between = below
        if not single_use(edit, between):
            return SHARED
        x, scale = _negated(edit, exponent)
        constant_one = fn == "reciprocal" or uniform_number(edit, operands[0]) == 1
        return Applied("sigmoid", x, scale, None if constant_one else operands[0])


def _negated(edit: Editor, v: Value) -> tuple[Value, float]:
    """Return x and a factor so that -v is their product."""
    _, *below = scaled_values(edit, v)
    if below:
        found = polynomial(edit, v, (below[0],))
        if found is not None and found.terms.keys() == {(1,)}:
            return below[0], -found.terms[1,]
    return v, -1.0


class Softplus(RowRule):
    """log(1 + exp(x))."""

    name = "softplus"
    roots: ClassVar[tuple[type[Op], ...]] = (Unary,)
    functions = frozenset({"log"})

    def match(
        self, edit: Editor, node: Node, settings: OptimizerSettings
    ) -> Applied | Refused | None:
        """Find the exponential below the logarithm."""
        if function(node.op) != "log" or node.results[0].dtype not in FLOATS:
            return None
        below = one_plus(edit, edit.operands(node)[0], "exp")
        if below is None:
            return None
        x, between = below
        return Applied("softplus", x) if single_use(edit, between) else SHARED


class Softsign(RowRule):
    """x / (1 + |x|)."""

    name = "softsign"
    roots: ClassVar[tuple[type[Op], ...]] = (Binary,)
    functions = frozenset({"div"})

    def match(
        self, edit: Editor, node: Node, settings: OptimizerSettings
    ) -> Applied | Refused | None:
        """Find the absolute value in the divisor."""
        if function(node.op) != "div" or node.results[0].dtype not in FLOATS:
            return None
        x, divisor = edit.operands(node)
        below = one_plus(edit, divisor, "abs")
        if below is None or below[0] is not x:
            return None
        return Applied("softsign", x) if single_use(edit, below[1]) else SHARED


@dataclass(frozen=True)
class Power:
    """A power of x with a constant exponent."""

    x: Value
    exponent: float


class NarrowPow(Rule[Power]):
    """cast(pow(cast(x), 2)) back to the type of x: ONNX's Pow with an exponent of another type."""

    name = "narrow_pow"
    roots: ClassVar[tuple[type[Op], ...]] = (Cast,)
    setting = "fuse_activation"

    def match(
        self, edit: Editor, node: Node, settings: OptimizerSettings
    ) -> Power | Refused | None:
        """Find the power, or the product that a square has become, between two casts."""
        (power,) = edit.operands(node)
        dtype, fn = node.results[0].dtype, function(power.node.op)
        if fn not in ("pow", "mul") or dtype not in FLOATS or power.dtype.bits < dtype.bits:
            return None
        wide, other = edit.operands(power.node)
        number = 2.0 if fn == "mul" and wide is other else None
        if fn == "pow":
            number = uniform_number(edit, other)
        if number not in (2, 3) or not isinstance(wide.node.op, Cast):
            return None
        (x,) = edit.operands(wide.node)
        if x.dtype is not dtype or not power.dtype.is_float:
            return None
        return Power(x, number) if single_use(edit, [power]) else SHARED

    def rewrite(self, edit: Editor, found: Power) -> Value:
        """Raise x itself."""
        g = edit.graph
        return g.binary("pow", found.x, g.scalar(found.exponent, found.x.dtype))


RULES = (Relu(), Sigmoid(), Softplus(), Softsign(), NarrowPow())
