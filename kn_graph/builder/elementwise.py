"""Building methods for scalar functions, comparisons, selection and conversion."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kn_graph.builder.base import Builder
from kn_graph.dtype import DType, DTypeLike
from kn_graph.ops.elementwise import Binary, BitCast, Cast, Compare, Select, Unary

if TYPE_CHECKING:
    from kn_graph.cast import RoundMode
    from kn_graph.value import Value

__all__ = ["ElementwiseBuilder"]


class ElementwiseBuilder(Builder):
    """See the module. Operands of two-argument functions are broadcast together."""

    def unary(self, fn: str, x: Value, **params: float) -> Value:
        """Apply a row of the scalar table with one argument."""
        return self.push(Unary(fn, tuple(params.items())), x)

    def binary(self, fn: str, x: Value, y: Value, **params: float) -> Value:
        """Apply a row of the scalar table with two arguments."""
        x, y = self.broadcast_together(x, y)
        return self.push(Binary(fn, tuple(params.items())), x, y)

    def compare(self, fn: str, x: Value, y: Value) -> Value:
        """Compare by eq, ne, lt, le, gt or ge."""
        x, y = self.broadcast_together(x, y)
        return self.push(Compare(fn), x, y)

    def select(self, condition: Value, x: Value, y: Value) -> Value:
        """Choose x where the condition holds, else y."""
        condition, x, y = self.broadcast_together(condition, x, y)
        return self.push(Select(), condition, x, y)

    def cast(
        self, x: Value, dtype: DTypeLike, *, saturate: bool = True, round_mode: RoundMode = "up"
    ) -> Value:
        """Convert the element type; see `Cast`."""
        return self.push(Cast(DType.of(dtype), saturate, round_mode), x)

    def bit_cast(self, x: Value, dtype: DTypeLike) -> Value:
        """Reinterpret the bits of each element."""
        return self.push(BitCast(DType.of(dtype)), x)

    def add(self, x: Value, y: Value) -> Value:
        """Add."""
        return self.binary("add", x, y)

    def sub(self, x: Value, y: Value) -> Value:
        """Subtract."""
        return self.binary("sub", x, y)

    def mul(self, x: Value, y: Value) -> Value:
        """Multiply."""
        return self.binary("mul", x, y)

    def div(self, x: Value, y: Value) -> Value:
        """Divide; integers truncate toward zero."""
        return self.binary("div", x, y)

    def minimum(self, x: Value, y: Value) -> Value:
        """Take the smaller; NaN if either is."""
        return self.binary("min", x, y)

    def maximum(self, x: Value, y: Value) -> Value:
        """Take the larger; NaN if either is."""
        return self.binary("max", x, y)

    def relu(self, x: Value) -> Value:
        """Take max(x, 0)."""
        return self.unary("relu", x)

    def sigmoid(self, x: Value) -> Value:
        """Take 1 / (1 + exp(-x))."""
        return self.unary("sigmoid", x)

    def tanh(self, x: Value) -> Value:
        """Take the hyperbolic tangent."""
        return self.unary("tanh", x)

    def gelu(self, x: Value) -> Value:
        """Take x * Phi(x) with the error function."""
        return self.unary("gelu", x)

    def sqrt(self, x: Value) -> Value:
        """Take the square root."""
        return self.unary("sqrt", x)

    def exp(self, x: Value) -> Value:
        """Take the exponential."""
        return self.unary("exp", x)

    def log(self, x: Value) -> Value:
        """Take the natural logarithm."""
        return self.unary("log", x)

    def neg(self, x: Value) -> Value:
        """Negate."""
        return self.unary("neg", x)

    def logical_not(self, x: Value) -> Value:
        """Negate a truth."""
        return self.unary("logical_not", x)
