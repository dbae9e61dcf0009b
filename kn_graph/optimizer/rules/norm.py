"""Normalisations that exporters spell out.

With s = 1 / sqrt(mean(d^2) + epsilon), both means over the same axes:

- norm: d * s, d / sqrt(..), and d * (s * scale), where d is x - mean(x) (layer, instance and group
  norms) or anything else (RMS norm): Norm(x), times the scale;
- shifted_norm: x * (s * scale) + (bias - mean(x) * (s * scale)), as TensorFlow's
  batch_normalization writes it: Norm(x) * scale + bias;
- narrow_norm: a norm between two casts is one of the narrow type, which computes in float32 anyway.

E[x^2] - E[x]^2 cancels and is left alone, and so is what divides by a sum or adds epsilon to the
deviation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from kn_graph.dtype import DType
from kn_graph.op import Op
from kn_graph.ops.elementwise import Binary, Cast
from kn_graph.ops.norm import Norm
from kn_graph.optimizer.editor import Editor
from kn_graph.optimizer.polynomial import FLOATS, function
from kn_graph.optimizer.reduced import Walk, before_broadcast, kept_shape
from kn_graph.optimizer.rule import SHARED, Refused, Rule
from kn_graph.optimizer.settings import OptimizerSettings
from kn_graph.value import Node, Value

__all__ = ["RULES", "NarrowNorm", "Normalize", "ShiftedNorm"]

NARROW = (DType.FLOAT16, DType.BFLOAT16)


@dataclass(frozen=True)
class Found:
    """What is normalised, how, and what it is scaled and shifted by afterwards."""

    x: Value
    axes: tuple[int, ...]
    epsilon: float
    center: bool
    scale: Value | None = None
    bias: Value | None = None


@dataclass(frozen=True)
class Centered:
    """x minus its mean over axes, and the nodes that compute it."""

    x: Value
    axes: tuple[int, ...]
    nodes: tuple[Node, ...]


@dataclass(frozen=True)
class Deviation:
    """The root of a mean square, or its reciprocal.

    Attributes:
        d: what is squared; casts to a wider type are left out.
        axes: where the mean is taken.
        epsilon: added to the mean square.
        nodes: what computes it, without d.
    """

    d: Value
    axes: tuple[int, ...]
    epsilon: float
    nodes: tuple[Node, ...]


# ---- pieces ---------------------------------------------------------------------------------


def mean_at(edit: Editor, v: Value, x: Value) -> tuple[tuple[int, ...], tuple[Node, ...]] | None:
    """Return the axes over which a value is the mean of x, repeated, and its nodes."""
    small, repeats = before_broadcast(edit, v)
    walk = Walk(edit, small, v.dtype)
    axes = walk.mean()
    if axes is None or small.shape != kept_shape(x.shape, axes):
        return None
    if not walk.reaches(x):
        return None
    return axes, (*repeats, *walk.nodes)


def centered_at(edit: Editor, v: Value) -> Centered | None:
    """Return what a value is that has its own mean subtracted."""
    if function(v.node.op) != "sub":
        return None
    x, mean = edit.operands(v.node)
    found = mean_at(edit, mean, x)
    if found is None:
        return None
    axes, nodes = found
    return Centered(x, axes, (v.node, *nodes))


def deviation_at(edit: Editor, v: Value, *, inverse: bool) -> Deviation | None:
    """Return the root mean square that a value repeats, or of which it is the reciprocal."""
    small, repeats = before_broadcast(edit, v)
    walk = Walk(edit, small, v.dtype)
    if not (walk.through_inverse_root() if inverse else walk.through_root()):
        return None
    epsilon = walk.through_constant("add")
    if epsilon is None:
        epsilon = 0.0
    axes = walk.mean()
    if axes is None or not epsilon >= 0 or not _into_square(edit, walk):
        return None
    if small.shape != kept_shape(walk.at.shape, axes):
        return None
    return Deviation(walk.at, axes, epsilon, (*repeats, *walk.nodes))


def _into_square(edit: Editor, walk: Walk) -> bool:
    fn = walk.function()
    if fn == "mul":
        first, second = edit.operands(walk.at.node)
        if first is second:
            walk.down()
        return first is second
    return walk.through("square") or walk.through_constant("pow", first=False) == 2


# ---- the rules ------------------------------------------------------------------------------


class NormRule(Rule[Found]):
    """A rule that ends in a Norm."""

    roots: ClassVar[tuple[type[Op], ...]] = (Binary,)
    setting = "fuse_norm"

    def rewrite(self, edit: Editor, found: Found) -> Value:
        """Build the norm, then the scale and the bias."""
        g = edit.graph
        out = g.norm(found.x, found.axes, found.epsilon, center=found.center)
        if found.scale is not None:
            out = g.mul(out, g.broadcast(found.scale, out.shape))
        return out if found.bias is None else g.add(out, g.broadcast(found.bias, out.shape))


class Normalize(NormRule):
    """A value divided by the root of its mean square."""

    name = "norm"
    functions = frozenset({"mul", "div"})

    def match(
        self, edit: Editor, node: Node, settings: OptimizerSettings
    ) -> Found | Refused | None:
        """Find the deviation, then what the value beside it is."""
        fn = function(node.op)
        if fn not in ("mul", "div") or node.results[0].dtype not in FLOATS:
            return None
        x, y = edit.operands(node)
        for top, by in ((x, y), (y, x)) if fn == "mul" else ((x, y),):
            for part, scale, between in _scaled_inverse(edit, by) if fn == "mul" else _plain(by):
                deviation = deviation_at(edit, part, inverse=fn == "mul")
                if deviation is None:
                    continue
                found = _normalized(edit, node, top, deviation, scale, between)
                if found is not None:
                    return found
        return None


def _plain(v: Value) -> list[tuple[Value, Value | None, tuple[Node, ...]]]:
    return [(v, None, ())]


def _scaled_inverse(edit: Editor, v: Value) -> list[tuple[Value, Value | None, tuple[Node, ...]]]:
    """Return a factor as it is, and split in two: each with the rest and the nodes between."""
    out = _plain(v)
    small, repeats = before_broadcast(edit, v)
    if function(small.node.op) == "mul":
        a, b = edit.operands(small.node)
        between = (*repeats, small.node)
        out += [(a, b, between), (b, a, between)]
    return out


def _normalized(
    edit: Editor,
    root: Node,
    top: Value,
    deviation: Deviation,
    scale: Value | None,
    between: tuple[Node, ...],
) -> Found | Refused | None:
    """Compare what is divided with what was squared."""
    squared = Walk(edit, deviation.d, top.dtype)
    same = squared.reaches(top)
    centered = centered_at(edit, top)
    inside = [root, *between, *deviation.nodes, *squared.nodes]
    if centered is not None and centered.axes != deviation.axes:
        centered = None
    if not same:
        # the deviation may have its own copy of the subtraction, in a wider type
        other = centered_at(edit, deviation.d)
        if centered is None or other is None or other.axes != centered.axes:
            return None
        tail = Walk(edit, other.x, top.dtype)
        if not tail.reaches(centered.x):
            return None
        inside = [root, *between, *deviation.nodes, *other.nodes, *tail.nodes]
    x = top
    if centered is not None:
        x = centered.x
        inside += centered.nodes
    if not _private(edit, root, inside):
        return SHARED
    return Found(x, deviation.axes, deviation.epsilon, centered is not None, scale)


def _private(edit: Editor, root: Node, inside: list[Node]) -> bool:
    """Return whether nobody else reads what is computed on the way; casts of x may be shared."""
    nodes = set(inside)
    values = [n.results[0] for n in nodes if n is not root and not isinstance(n.op, Cast)]
    return edit.only_inside(values, nodes)


class ShiftedNorm(NormRule):
    """A scale and a bias that were computed from the statistics of x."""

    name = "shifted_norm"
    functions = frozenset({"add", "sub"})

    def match(
        self, edit: Editor, node: Node, settings: OptimizerSettings
    ) -> Found | Refused | None:
        """Find x * a + (bias - mean(x) * a)."""
        fn = function(node.op)
        if fn not in ("add", "sub") or node.results[0].dtype not in FLOATS:
            return None
        first, second = edit.operands(node)
        for product, shift in ((first, second), (second, first)):
            if function(product.node.op) != "mul" or (fn == "sub" and product is second):
                continue
            found = self._shifted(edit, node, product, shift, negated=fn == "sub")
            if found is not None:
                return found
        return None

    def _shifted(
        self, edit: Editor, root: Node, product: Value, shift: Value, *, negated: bool
    ) -> Found | Refused | None:
        small, repeats = before_broadcast(edit, shift)
        if function(small.node.op) != "sub":
            return None
        bias, moved = edit.operands(small.node)
        if negated:
            bias, moved = moved, bias
        around, more = before_broadcast(edit, moved)
        if function(around.node.op) != "mul":
            return None
        between = (root, product.node, *repeats, small.node, *more, around.node)
        for x, factor in _both(edit, product):
            for mean, same_factor in _both(edit, around):
                same, last = before_broadcast(edit, same_factor)
                if before_broadcast(edit, factor)[0] is not same:
                    continue
                found = self._at(edit, x, factor, mean, bias, (*between, *last))
                if found is not None:
                    return found
        return None

    def _at(
        self,
        edit: Editor,
        x: Value,
        factor: Value,
        mean: Value,
        bias: Value,
        between: tuple[Node, ...],
    ) -> Found | Refused | None:
        for part, scale, nodes in _scaled_inverse(edit, factor):
            deviation = deviation_at(edit, part, inverse=True)
            if deviation is None:
                continue
            centered = centered_at(edit, deviation.d)
            if centered is None or centered.axes != deviation.axes or centered.x is not x:
                return None
            average = mean_at(edit, mean, x)
            if average is None or average[0] != deviation.axes:
                return None
            inside = [*between, *nodes, *deviation.nodes, *centered.nodes, *average[1]]
            if not _private(edit, between[0], inside):
                return SHARED
            return Found(x, deviation.axes, deviation.epsilon, True, scale, bias)
        return None


def _both(edit: Editor, v: Value) -> list[tuple[Value, Value]]:
    a, b = edit.operands(v.node)
    return [(a, b), (b, a)]


class NarrowNorm(Rule[Node]):
    """A norm of a narrow type between casts to and from a wider one."""

    name = "narrow_norm"
    roots: ClassVar[tuple[type[Op], ...]] = (Cast,)

    def match(self, edit: Editor, node: Node, settings: OptimizerSettings) -> Node | Refused | None:
        """Find the norm and the other cast."""
        (wide,) = edit.operands(node)
        if not isinstance(wide.node.op, Norm) or wide.dtype is not DType.FLOAT32:
            return None
        (cast,) = edit.operands(wide.node)
        if node.results[0].dtype not in NARROW or not isinstance(cast.node.op, Cast):
            return None
        if edit.operands(cast.node)[0].dtype is not node.results[0].dtype:
            return None
        return wide.node if edit.uses(wide) == 1 else SHARED

    def rewrite(self, edit: Editor, found: Node) -> Value:
        """Normalise the narrow value itself."""
        (cast,) = edit.operands(found)
        return edit.graph.push(found.op, *edit.operands(cast.node))


RULES = (Normalize(), ShiftedNorm(), NarrowNorm())
