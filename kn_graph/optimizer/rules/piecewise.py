"""Activations with a kink, written with max, min, where or a clip.

- leaky_relu: max(x, a*x) with 0 < a < 1, min(x, a*x) with a > 1, where(x > 0, x, a*x);
- prelu: the same with a slope for each channel, and relu(x) - a*relu(-x);
- elu: where(x > 0, x, a * (exp(x) - 1));
- thresholded_relu: where(x > a, x, 0), which drops NaN; where(x < 0, 0, x) keeps it and is relu;
- hard_sigmoid: clip(a*x + b, 0, 1), clip(x + 3, 0, 6) / 6;
- guarded_softplus: where(x > 20, x, softplus(x)), as PyTorch writes it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from kn_graph.dtype import DType
from kn_graph.op import Op
from kn_graph.ops.elementwise import Binary, Compare, Select, Unary
from kn_graph.optimizer.clamps import clamp_at
from kn_graph.optimizer.constants import constant_behind, map_constant
from kn_graph.optimizer.editor import Editor
from kn_graph.optimizer.pattern import uniform_number
from kn_graph.optimizer.polynomial import FLOATS, close, function, polynomial, scaled_values
from kn_graph.optimizer.rule import Refused, Rule
from kn_graph.optimizer.rules.activation import SHARED, single_use
from kn_graph.optimizer.settings import OptimizerSettings
from kn_graph.value import Node, Value

__all__ = [
    "RULES",
    "Elu",
    "GuardedSoftplus",
    "HardSigmoid",
    "LeakyRelu",
    "PRelu",
    "PReluSum",
    "ThresholdedRelu",
]

MAX_SLOPE_BYTES = 1 << 20
"""Slopes of more bytes are not looked at."""


@dataclass(frozen=True)
class Applied:
    """A row of the scalar table, its operands and its parameters."""

    row: str
    x: Value
    slope: Value | None = None
    params: tuple[tuple[str, float], ...] = ()


class PiecewiseRule(Rule[Applied]):
    """A rule that ends in one row of the scalar table."""

    setting = "fuse_activation"

    def rewrite(self, edit: Editor, found: Applied) -> Value:
        """Apply the row."""
        g, params = edit.graph, dict(found.params)
        if found.slope is None:
            return g.unary(found.row, found.x, **params)
        return g.binary(found.row, found.x, found.slope, **params)


# ---- where(x > 0, ..) -----------------------------------------------------------------------


@dataclass(frozen=True)
class Kink:
    """A selection by comparing x with a number.

    Attributes:
        x: what is compared.
        at: the number.
        above: the result where x is larger.
        below: the result where x is smaller.
        nan_above: whether a NaN takes what is above, else what is below.
        at_above: whether x equal to the number does.
    """

    x: Value
    at: float
    above: Value
    below: Value
    nan_above: bool
    at_above: bool


_MIRRORED = {"gt": "lt", "lt": "gt", "ge": "le", "le": "ge"}


def kink_at(edit: Editor, node: Node) -> Kink | None:
    """Return the selection that a node is, where it compares with a uniform constant."""
    condition, chosen, other = edit.operands(node)
    compare = condition.node.op
    fn = compare.fn if isinstance(compare, Compare) else ""
    if fn not in _MIRRORED or chosen.dtype not in FLOATS:
        return None
    x, y = edit.operands(condition.node)
    number = uniform_number(edit, y)
    if number is None:
        x, fn, number = y, _MIRRORED[fn], uniform_number(edit, x)
    if number is None:
        return None
    if fn in ("gt", "ge"):
        return Kink(x, number, chosen, other, nan_above=False, at_above=fn == "ge")
    return Kink(x, number, other, chosen, nan_above=True, at_above=fn == "lt")


class LeakyRelu(PiecewiseRule):
    """x above 0, a*x below, with one a."""

    name = "leaky_relu"
    roots: ClassVar[tuple[type[Op], ...]] = (Binary, Select)

    def match(
        self, edit: Editor, node: Node, settings: OptimizerSettings
    ) -> Applied | Refused | None:
        """Compare the branches, or the operands of max or min."""
        branches = _branches(edit, node)
        if branches is None:
            return None
        x, below = branches
        if below is x:
            return None
        found = polynomial(edit, below, (x,))
        if found is None or found.terms.keys() != {(1,)}:
            return None
        slope, fn = found.terms[1,], function(node.op)
        if (fn == "max" and not 0 < slope < 1) or (fn == "min" and not slope > 1):
            return None
        if not np.isfinite(slope):
            return None
        if not single_use(edit, [n.results[0] for n in found.nodes]):
            return SHARED
        return Applied("leaky_relu", x, params=(("alpha", slope),))


def _branches(edit: Editor, node: Node) -> tuple[Value, Value] | None:
    """Return x, and what the result is below 0; above it is x."""
    if isinstance(node.op, Select):
        kink = kink_at(edit, node)
        right = kink is not None and kink.at == 0 and kink.above is kink.x
        return (kink.x, kink.below) if kink is not None and right else None
    if function(node.op) not in ("max", "min") or node.results[0].dtype not in FLOATS:
        return None
    x, y = edit.operands(node)
    for value, scaled in ((x, y), (y, x)):
        if function(scaled.node.op) in ("mul", "div", "affine") and value in edit.operands(
            scaled.node
        ):
            return value, scaled
    return None


class PRelu(PiecewiseRule):
    """x above 0, slope*x below, with a slope that is no single number."""

    name = "prelu"
    roots: ClassVar[tuple[type[Op], ...]] = (Binary, Select)

    def match(
        self, edit: Editor, node: Node, settings: OptimizerSettings
    ) -> Applied | Refused | None:
        """Find the product below 0, and look at its other factor where that matters."""
        branches = _branches(edit, node)
        if branches is None or function(branches[1].node.op) != "mul":
            return None
        x, below = branches
        factors = edit.operands(below.node)
        if x not in factors:
            return None
        slope = factors[0] if factors[1] is x else factors[1]
        if uniform_number(edit, slope) is not None or slope is x:
            return None
        if not _slope_fits(edit, node, slope):
            return Refused("the slope may not lie where the form with max or where(x > 0) is right")
        return Applied("prelu", x, slope) if single_use(edit, [below]) else SHARED


def _slope_fits(edit: Editor, node: Node, slope: Value) -> bool:
    """Return whether slope*x may be left out where x is 0 or above.

    max(x, slope*x) needs 0 < slope <= 1; where(x > 0) multiplies 0 with it, which must not be NaN.
    """
    if isinstance(node.op, Select):
        kink = kink_at(edit, node)
        if kink is not None and kink.at_above:
            return True
    a = constant_behind(edit, slope)
    if a is None or a.nbytes > MAX_SLOPE_BYTES:
        return False
    wide: np.ndarray[Any, Any] = a.astype(np.float64)
    if isinstance(node.op, Select):
        return bool(np.isfinite(wide).all())
    if function(node.op) == "max":
        return bool(((wide > 0) & (wide <= 1)).all())
    return bool(((wide >= 1) & np.isfinite(wide)).all())


class PReluSum(PiecewiseRule):
    """relu(x) - slope*relu(-x), and relu(x) + slope*min(x, 0), as Keras writes PReLU."""

    name = "prelu_sum"
    roots: ClassVar[tuple[type[Op], ...]] = (Binary,)

    def match(
        self, edit: Editor, node: Node, settings: OptimizerSettings
    ) -> Applied | Refused | None:
        """Find the relu, then the product with the negative part."""
        fn = function(node.op)
        if fn not in ("add", "sub") or node.results[0].dtype not in FLOATS:
            return None
        first, second = edit.operands(node)
        for positive, product in ((first, second), (second, first)):
            if function(positive.node.op) != "relu" or function(product.node.op) != "mul":
                continue
            (x,) = edit.operands(positive.node)
            factors = edit.operands(product.node)
            for part, slope in (factors, factors[::-1]):
                between = _negative_part(edit, part, x)
                array = constant_behind(edit, slope)
                if between is None or array is None or (fn == "sub" and positive is not first):
                    continue
                return self._found(edit, fn, slope, x, [positive, product, *between])
        return None

    def _found(
        self, edit: Editor, fn: str, slope: Value, x: Value, between: list[Value]
    ) -> Applied | Refused:
        array = constant_behind(edit, slope)
        assert array is not None
        if array.nbytes > MAX_SLOPE_BYTES or not np.isfinite(array.astype(np.float64)).all():
            return Refused("the slope is too large to look at, or not finite")
        if not single_use(edit, between):
            return SHARED
        # of relu(-x) the sign is the other one than of min(x, 0)
        flipped = (function(between[2].node.op) == "relu") != (fn == "sub")
        return Applied("-prelu" if flipped else "prelu", x, slope)

    def rewrite(self, edit: Editor, found: Applied) -> Value:
        """Fold the sign into the slope."""
        assert found.slope is not None
        slope = (
            map_constant(edit, found.slope, np.negative) if found.row == "-prelu" else found.slope
        )
        number = uniform_number(edit, slope)
        if number is not None:
            return edit.graph.unary("leaky_relu", found.x, alpha=number)
        return edit.graph.binary("prelu", found.x, slope)


def _negative_part(edit: Editor, v: Value, x: Value) -> list[Value] | None:
    """Return the values that make relu(-x) or min(x, 0), the last one first."""
    fn = function(v.node.op)
    if fn == "relu":
        (negated,) = edit.operands(v.node)
        found = polynomial(edit, negated, (x,))
        if found is None or found.terms != {(1,): -1.0}:
            return None
        return [v, *(n.results[0] for n in found.nodes)]
    if fn != "min":
        return None
    first, second = edit.operands(v.node)
    right = (first is x and uniform_number(edit, second) == 0) or (
        second is x and uniform_number(edit, first) == 0
    )
    return [v] if right else None


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
                if _negative_part(edit, operand, kink.x) != [operand]:
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


# ---- clips ----------------------------------------------------------------------------------


class HardSigmoid(PiecewiseRule):
    """clip(a*x + b, 0, 1), and a clip to 0..h times 1/h."""

    name = "hard_sigmoid"
    roots: ClassVar[tuple[type[Op], ...]] = (Binary, Unary)

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


RULES = (
    LeakyRelu(),
    PRelu(),
    PReluSum(),
    Elu(),
    ThresholdedRelu(),
    GuardedSoftplus(),
    HardSigmoid(),
)
"""All, in an order without meaning: no two match one node."""
