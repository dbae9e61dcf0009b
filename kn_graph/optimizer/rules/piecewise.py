"""Activations with a kink, written with where or a clip.

- elu: where(x > 0, x, a * (exp(x) - 1));
- thresholded_relu: where(x > a, x, 0), which drops NaN; where(x < 0, 0, x) keeps it and is relu;
- guarded_softplus: where(x > 20, x, softplus(x)), as PyTorch writes it;
- hard_sigmoid: clip(a*x + b, 0, 1), clip(x + 3, 0, 6) / 6.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from kn_graph.dtype import DType
from kn_graph.op import Op
from kn_graph.ops.elementwise import Binary, Select, Unary
from kn_graph.optimizer.clamps import clamp_at
from kn_graph.optimizer.editor import Editor
from kn_graph.optimizer.kinks import kink_at, negative_part
from kn_graph.optimizer.pattern import uniform_number
from kn_graph.optimizer.polynomial import FLOATS, close, function, polynomial, scaled_values
from kn_graph.optimizer.rule import SHARED, Refused, Rule
from kn_graph.optimizer.rules.activation import single_use
from kn_graph.optimizer.settings import OptimizerSettings
from kn_graph.value import Node, Value

__all__ = ["RULES", "Elu", "GuardedSoftplus", "HardSigmoid", "ThresholdedRelu"]


@dataclass(frozen=True)
class Applied:
    """A row of the scalar table, its operand and its parameters."""

    row: str
    x: Value
    params: tuple[tuple[str, float], ...] = ()


class PiecewiseRule(Rule[Applied]):
    """A rule that ends in one row of the scalar table."""

    setting = "fuse_activation"

    def rewrite(self, edit: Editor, found: Applied) -> Value:
        """Apply the row."""
        return edit.graph.unary(found.row, found.x, **dict(found.params))


class Elu(PiecewiseRule):
    """x above 0, a * (exp(x) - 1) below."""

    name = "elu"
    roots: ClassVar[tuple[type[Op], ...]] = (Select,)

    def match(
        self, edit: Editor, node: Node, settings: OptimizerSettings
    ) -> Applied | Refused | None:
        """Find the exponential of x, or of its negative part, in the lower branch."""
        kink = kink_at(edit, node)
        if kink is None or kink.at != 0 or kink.above is not kink.x:
            return None
        for v in scaled_values(edit, kink.below):
            fn = function(v.node.op)
            if fn not in ("exp", "expm1"):
                continue
            found = polynomial(edit, kink.below, (v,))
            if found is None or not _is_elu(fn, dict(found.terms), v.dtype):
                return None
            between = [v, *(n.results[0] for n in found.nodes)]
            (operand,) = edit.operands(v.node)
            if operand is not kink.x:
                if negative_part(edit, operand, kink.x) != [operand]:
                    return None
                between.append(operand)
            if not single_use(edit, between):
                return SHARED
            return Applied("elu", kink.x, params=(("alpha", found.terms[1,]),))
        return None


def _is_elu(fn: str, terms: dict[tuple[int, ...], float], dtype: DType) -> bool:
    """Return whether a polynomial in exp(x) or exp(x) - 1 is a multiple of the latter."""
    if fn == "expm1":
        return terms.keys() == {(1,)}
    return terms.keys() == {(0,), (1,)} and close(-terms[0,], terms[1,], dtype)


class ThresholdedRelu(PiecewiseRule):
    """x above a number, 0 below."""

    name = "thresholded_relu"
    roots: ClassVar[tuple[type[Op], ...]] = (Select,)

    def match(
        self, edit: Editor, node: Node, settings: OptimizerSettings
    ) -> Applied | Refused | None:
        """Let the place of NaN and of the number itself decide which row it is."""
        kink = kink_at(edit, node)
        if kink is None or kink.above is not kink.x or uniform_number(edit, kink.below) != 0:
            return None
        if kink.at == 0 and kink.nan_above:
            return Applied("relu", kink.x)
        if kink.nan_above or (kink.at_above and kink.at != 0) or not np.isfinite(kink.at):
            return None
        if any(function(u.op) == "min" for u in edit.users(node.results[0])):
            return Refused("it is half of a clip that drops NaN, in a conversion to integers")
        return Applied("thresholded_relu", kink.x, params=(("alpha", kink.at),))


class GuardedSoftplus(PiecewiseRule):
    """x above a threshold of 20 or more, softplus(x) below: they are equal there, rounded."""

    name = "guarded_softplus"
    roots: ClassVar[tuple[type[Op], ...]] = (Select,)

    def match(
        self, edit: Editor, node: Node, settings: OptimizerSettings
    ) -> Applied | Refused | None:
        """Find the same x in all three places."""
        kink = kink_at(edit, node)
        if kink is None or function(kink.below.node.op) != "softplus":
            return None
        x = kink.x
        if kink.above is not x or edit.operands(kink.below.node) != (x,):
            return None
        if kink.at < 20 or x.dtype is DType.FLOAT64:
            return Refused("softplus(x) and x still differ at the threshold")
        return Applied("softplus", x)


class HardSigmoid(PiecewiseRule):
    """clip(a*x + b, 0, 1), and a clip to 0..h times 1/h."""

    name = "hard_sigmoid"
    roots: ClassVar[tuple[type[Op], ...]] = (Binary, Unary)
    functions = frozenset({"min", "max", "relu", "mul", "div", "affine"})

    def match(
        self, edit: Editor, node: Node, settings: OptimizerSettings
    ) -> Applied | Refused | None:
        """Find the clip, then the line below it."""
        fn, root = function(node.op), node.results[0]
        if fn not in ("min", "max", "relu", "mul", "div", "affine") or root.dtype not in FLOATS:
            return None
        clipped = root
        if fn in ("mul", "div", "affine"):
            _, *below = scaled_values(edit, root)
            if not below or function(below[0].node.op) not in ("min", "max", "relu"):
                return None
            clipped = below[0]
        clamp = clamp_at(edit, clipped)
        outer = None if clamp is None else polynomial(edit, root, (clipped,))
        if clamp is None or outer is None or clamp.low != 0 or outer.terms.keys() != {(1,)}:
            return None
        scale = outer.terms[1,]
        if not close(scale * clamp.high, 1.0, root.dtype):
            return None
        inside = {*outer.nodes, *clamp.nodes}
        return self._line(edit, node, clamp.x, scale, inside)

    def _line(
        self, edit: Editor, root: Node, top: Value, scale: float, inside: set[Node]
    ) -> Applied | Refused | None:
        """Follow a*x + b down as far as nobody else reads it."""
        x, slope, offset, nodes = top, 1.0, 0.0, set(inside)
        for v in scaled_values(edit, top):
            line = polynomial(edit, top, (v,))
            if line is None or not line.terms.keys() <= {(0,), (1,)}:
                break
            around = inside | set(line.nodes)
            if not edit.only_inside((n.results[0] for n in line.nodes), around):
                break
            x, nodes = v, around
            slope, offset = line.terms.get((1,), 0.0), line.terms.get((0,), 0.0)
        slope, offset = slope * scale, offset * scale
        if (slope, offset) == (1.0, 0.0) or not np.isfinite([slope, offset]).all():
            return None
        if not edit.only_inside((n.results[0] for n in nodes if n is not root), nodes | {root}):
            return SHARED
        return Applied("hard_sigmoid", x, params=(("alpha", slope), ("beta", offset)))


RULES = (Elu(), ThresholdedRelu(), GuardedSoftplus(), HardSigmoid())
