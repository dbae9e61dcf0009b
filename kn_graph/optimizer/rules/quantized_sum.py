"""Sums of integers with factors that are quantized: requantizations.

(float(q1) - z1)*s1 + (float(q2) - z2)*s2 + b, divided by s and rounded, is
float(q1)*(s1/s) + float(q2)*(s2/s) + c with c = (b - z1*s1 - z2*s2)/s. Of one int32 sum this is the
requantization behind an integer convolution; of one tensor with the same factor and zero point, the
integers themselves: those of x*c, where the scale was multiplied with c, too.

Factors are divided in float64 and rounded once. The result is the same as before, except where the
exact quotient is nearer to a tie than both roundings: (4 + 2*terms) * 2**-24 times the sum of the
absolute values of all products, over s. There it is one more or less.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from kn_graph.builder.quantize import integer_range
from kn_graph.dtype import DType
from kn_graph.op import Op
from kn_graph.ops.elementwise import Cast
from kn_graph.optimizer.editor import Editor
from kn_graph.optimizer.polynomial import function
from kn_graph.optimizer.quantization import (
    LARGEST,
    SCALE_LIMIT,
    Dequantized,
    Quantized,
    codes_behind,
    parameters,
    quantized,
    usable_scale,
)
from kn_graph.optimizer.rule import Refused, Rule
from kn_graph.optimizer.settings import OptimizerSettings
from kn_graph.value import Node, Value

__all__ = ["FIRST", "RULES", "QuantizedSum"]

Array = np.ndarray[Any, Any]

MAX_STEPS = 16


@dataclass(frozen=True)
class Term:
    """Integers, moved, times a compact factor in float64."""

    source: Dequantized
    factor: Array

    def build(self, edit: Editor) -> Value:
        """Build it in float32."""
        g = edit.graph
        codes = g.cast(self.source.codes(edit), DType.FLOAT32)
        return g.mul(codes, g.constant(self.factor.astype(np.float32)))


@dataclass
class Sum:
    """Terms and a compact constant.

    Attributes:
        terms: at most one for each source.
        rest: the constant, float64.
        steps: how many operations compute it in the graph, without conversions.
    """

    rest: Array
    terms: list[Term] = field(default_factory=list)
    steps: int = 0

    def over(self, scale: Array) -> Sum | None:
        """Return the sum divided by a scale, unless a factor would not be a normal number."""
        wide = scale.astype(np.float64)
        terms = [Term(t.source, t.factor / wide) for t in self.terms]
        rest = self.rest / wide
        usable = all(usable_scale(np.abs(t.factor)) for t in terms)
        if not usable or not (np.abs(rest) < SCALE_LIMIT).all():
            return None
        return Sum(rest, terms, self.steps)

    @property
    def length(self) -> int:
        """How many operations it takes, without conversions."""
        return 2 * len(self.terms) - 1 + bool(self.rest.any())

    def build(self, edit: Editor) -> Value:
        """Build it in float32."""
        first, *others = (t.build(edit) for t in self.terms)
        g = edit.graph
        for other in others:
            first = g.add(first, other)
        return g.add(first, g.constant(self.rest.astype(np.float32))) if self.rest.any() else first


def integer_sum(edit: Editor, top: Value) -> Sum | None:
    """Return a float32 value as a sum of integers with factors; nobody else reads its parts."""
    one = np.ones((1,) * top.rank)
    found = Sum(np.zeros_like(one))
    stack = [(top, one)]
    while stack:
        v, factor = stack.pop()
        constant = parameters(edit, v)
        if constant is not None:
            found.rest = found.rest + factor * constant
            continue
        # conversions are shared: a tensor is converted once for all its readers
        if v is not top and edit.uses(v) != 1 and not isinstance(v.node.op, Cast):
            return None
        leaf = _leaf(edit, v)
        if leaf is not None:
            found.steps += leaf.scaled + bool(leaf.zero.any())
            scaled = factor * leaf.scale
            found.rest = found.rest - scaled * leaf.zero
            found.terms.append(Term(leaf, scaled))
        else:
            parts = _parts(edit, v, factor)
            if parts is None:
                return None
            found.steps += 1
            stack += reversed(parts)
        too_large = any(a.size > LARGEST for a in (found.rest, factor))
        if too_large or found.steps > MAX_STEPS:
            return None
    return found if found.terms else None


def _leaf(edit: Editor, v: Value) -> Dequantized | None:
    """Return integers, dequantized or converted."""
    if not isinstance(v.node.op, Cast):
        return codes_behind(edit, v)
    (x,) = edit.operands(v.node)
    if not x.dtype.is_int or x.dtype.bits > 32:
        return None
    shape = (1,) * v.rank
    return Dequantized(x, np.ones(shape, np.float32), np.zeros(shape, np.int64), scaled=False)


def _parts(edit: Editor, v: Value, factor: Array) -> Sequence[tuple[Value, Array]] | None:
    """Return the operands of a step with their factors."""
    fn = function(v.node.op)
    if fn not in ("add", "sub", "mul", "div"):
        return None
    a, b = edit.operands(v.node)
    if fn in ("add", "sub"):
        return [(a, factor), (b, factor if fn == "add" else -factor)]
    orders = ((a, b), (b, a)) if fn == "mul" else ((a, b),)
    for x, other in orders:
        constant = parameters(edit, other)
        if constant is not None and usable_scale(np.abs(constant)):
            wide = constant.astype(np.float64)
            return [(x, factor * wide if fn == "mul" else factor / wide)]
    return None


@dataclass(frozen=True)
class Rescaled:
    """A quantization of a sum of integers, and the sum over its scale."""

    quantized: Quantized
    sum: Sum

    @property
    def same(self) -> Dequantized | None:
        """The integers that the result is equal to, if it is."""
        outer, (first, *others) = self.quantized, self.sum.terms
        if others or first.source.x.dtype is not outer.dtype:
            return None
        if (outer.low, outer.high) != integer_range(outer.dtype):
            return None
        one = (first.factor.astype(np.float32) == 1).all()
        # the constant is a difference of zero points, up to rounding far below half a step
        return first.source if one and (np.abs(self.sum.rest + outer.zero) < 1e-3).all() else None


class QuantizedSum(Rule[Rescaled]):
    """See the module."""

    name = "quantized_sum"
    roots: ClassVar[tuple[type[Op], ...]] = (Cast,)
    setting = "fuse_quantized"

    def match(
        self, edit: Editor, node: Node, settings: OptimizerSettings
    ) -> Rescaled | Refused | None:
        """Find integers below the division."""
        outer = quantized(edit, node.results[0])
        found = None if outer is None else integer_sum(edit, outer.x)
        if outer is None or found is None:
            return None
        over = found.over(outer.scale) if usable_scale(outer.scale) else None
        if over is None:
            return Refused("a scale is not a positive, normal number")
        return Rescaled(outer, over) if over.length <= found.steps else None

    def rewrite(self, edit: Editor, found: Rescaled) -> Value:
        """Multiply, add, round and shift, or take the integers."""
        if found.same is not None:
            return found.same.codes(edit)
        outer = found.quantized
        rounded = edit.graph.unary("round_even", found.sum.build(edit))
        return outer.finished(edit, rounded, outer.low, outer.high)


FIRST = (QuantizedSum(),)
RULES = FIRST
