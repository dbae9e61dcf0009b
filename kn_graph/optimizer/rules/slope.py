"""Activations with another slope below 0, written with max, min, where or two relus.

- leaky_relu: max(x, a*x) with 0 < a < 1, min(x, a*x) with a > 1, where(x > 0, x, a*x);
- prelu: the same with a slope for each channel;
- prelu_sum: relu(x) - a*relu(-x), relu(x) + a*min(x, 0).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from kn_graph.op import Op
from kn_graph.ops.elementwise import Binary, Select
from kn_graph.optimizer.constants import constant_behind, map_constant
from kn_graph.optimizer.editor import Editor
from kn_graph.optimizer.kinks import kink_at, negative_part
from kn_graph.optimizer.pattern import uniform_number
from kn_graph.optimizer.polynomial import FLOATS, function, polynomial
from kn_graph.optimizer.rule import SHARED, Refused, Rule
from kn_graph.optimizer.rules.activation import single_use
from kn_graph.optimizer.settings import OptimizerSettings
from kn_graph.value import Node, Value

__all__ = ["RULES", "LeakyRelu", "PRelu", "PReluSum"]

MAX_SLOPE_BYTES = 1 << 20
"""Slopes of more bytes are not looked at."""


@dataclass(frozen=True)
class Applied:
    """A row of the scalar table, its operands and its parameters."""

    row: str
    x: Value
    slope: Value | None = None
    params: tuple[tuple[str, float], ...] = ()


class SlopeRule(Rule[Applied]):
    """A rule that ends in one row of the scalar table."""

    setting = "fuse_activation"

    def rewrite(self, edit: Editor, found: Applied) -> Value:
        """Apply the row."""
        g, params = edit.graph, dict(found.params)
        if found.slope is None:
            return g.unary(found.row, found.x, **params)
        return g.binary(found.row, found.x, found.slope, **params)


class LeakyRelu(SlopeRule):
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


class PRelu(SlopeRule):
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


class PReluSum(SlopeRule):
    """relu(x) - slope*relu(-x), and relu(x) + slope*min(x, 0), as Keras writes PReLU."""

    name = "prelu_sum"
    roots: ClassVar[tuple[type[Op], ...]] = (Binary,)
    functions = frozenset({"add", "sub"})

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
                between = negative_part(edit, part, x)
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


RULES = (LeakyRelu(), PRelu(), PReluSum())
