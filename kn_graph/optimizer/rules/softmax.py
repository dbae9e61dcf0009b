"""Softmax and its logarithm, where exporters spell them out or reshape around them.

- softmax: exp(x - max(x)) / sum(exp(x - max(x))), with or without the maximum;
- log_softmax: log(softmax(x)), x - log(sum(exp(x))), x - logsumexp(x), with or without a maximum;
- softmax_view: a softmax between two reshapes that leave its axis alone is one without them;
- narrow_softmax: a softmax between two casts is one of the narrow type, which computes in float32
  anyway.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from kn_graph.dim import size_prod
from kn_graph.dtype import DType
from kn_graph.op import Op
from kn_graph.ops.elementwise import Binary, Cast, Select, Unary
from kn_graph.ops.layout import View
from kn_graph.ops.norm import Softmax
from kn_graph.optimizer.axes import axis_groups
from kn_graph.optimizer.editor import Editor
from kn_graph.optimizer.pattern import uniform_number
from kn_graph.optimizer.polynomial import FLOATS, function
from kn_graph.optimizer.reduced import Walk, before_broadcast, kept_shape
from kn_graph.optimizer.rule import SHARED, Refused, Rule
from kn_graph.optimizer.settings import OptimizerSettings
from kn_graph.value import Node, Value

__all__ = [
    "RULES",
    "LogOfSoftmax",
    "LogSoftmax",
    "NarrowSoftmax",
    "SoftmaxQuotient",
    "SoftmaxView",
]

NARROW = (DType.FLOAT16, DType.BFLOAT16)


@dataclass(frozen=True)
class Found:
    """What the softmax is taken of, and over which neighbouring axes."""

    x: Value
    axes: tuple[int, ...]


def softmax_over(edit: Editor, found: Found, *, log: bool) -> Value:
    """Build a softmax; several axes become one first."""
    g, x, axes = edit.graph, found.x, found.axes
    first, shape = axes[0], x.shape
    last = first + len(axes)
    merged = g.view(x, (*shape[:first], size_prod(shape[first:last]), *shape[last:]))
    return g.view(g.push(Softmax(first, log), merged), shape)


def neighbours(axes: tuple[int, ...]) -> bool:
    """Return whether axes follow each other."""
    return bool(axes) and axes == tuple(range(axes[0], axes[0] + len(axes)))


def _maximum(edit: Editor, v: Value, x: Value, axes: tuple[int, ...]) -> tuple[Node, ...] | None:
    """Return the nodes that make a value the maximum of x over axes, repeated.

    ONNX's LogSumExp has 0 in the place of an infinite maximum.
    """
    small, repeats = before_broadcast(edit, v)
    walk = Walk(edit, small, x.dtype)
    walk.skip()
    passed = list(repeats)
    if isinstance(walk.at.node.op, Select):
        condition, zero, peak = edit.operands(walk.at.node)
        if function(condition.node.op) not in ("is_inf", "isinf"):
            return None
        if uniform_number(edit, zero) != 0 or edit.operands(condition.node) != (peak,):
            return None
        passed += [*walk.nodes, walk.at.node, condition.node]
        walk = Walk(edit, peak, x.dtype)
    if walk.reduction("max") != axes or walk.at is not x:
        return None
    return (*passed, *walk.nodes) if small.shape == kept_shape(x.shape, axes) else None


def _shifted(edit: Editor, y: Value, axes: tuple[int, ...]) -> tuple[Value, tuple[Node, ...]]:
    """Return x and the nodes between where y is x - max(x), else y."""
    if function(y.node.op) == "sub":
        x, shift = edit.operands(y.node)
        nodes = _maximum(edit, shift, x, axes)
        if nodes is not None:
            return x, (y.node, *nodes)
    return y, ()


def _decided(
    edit: Editor, root: Node, x: Value, axes: tuple[int, ...], nodes: set[Node]
) -> Found | Refused:
    values = [n.results[0] for n in nodes if n is not root]
    if not edit.only_inside(values, nodes | {root}):
        return SHARED
    if not neighbours(axes):
        return Refused("the axes are no neighbours")
    return Found(x, axes)


class SoftmaxQuotient(Rule[Found]):
    """Exponentials divided by their sum."""

    name = "softmax"
    roots: ClassVar[tuple[type[Op], ...]] = (Binary,)
    functions = frozenset({"div", "mul"})
    setting = "fuse_softmax"

    def match(
        self, edit: Editor, node: Node, settings: OptimizerSettings
    ) -> Found | Refused | None:
        """Find the exponential, its sum, and a maximum that was subtracted."""
        fn = function(node.op)
        if fn not in ("div", "mul") or node.results[0].dtype not in FLOATS:
            return None
        first, second = edit.operands(node)
        for top, by in ((first, second), (second, first)):
            if function(top.node.op) != "exp" or (fn == "div" and top is not first):
                continue
            small, repeats = before_broadcast(edit, by)
            walk = Walk(edit, small, top.dtype)
            if fn == "mul" and not walk.through_inverse():
                continue
            axes = walk.reduction("sum")
            if axes is None or not walk.reaches(top):
                continue
            if small.shape != kept_shape(top.shape, axes):
                continue
            x, shift = _shifted(edit, edit.operands(top.node)[0], axes)
            nodes = {*repeats, *walk.nodes, top.node, *shift}
            return _decided(edit, node, x, axes, nodes)
        return None

    def rewrite(self, edit: Editor, found: Found) -> Value:
        """Build the softmax."""
        return softmax_over(edit, found, log=False)


class LogSoftmax(Rule[Found]):
    """A value minus the logarithm of the sum of its exponentials."""

    name = "log_softmax"
    roots: ClassVar[tuple[type[Op], ...]] = (Binary,)
    functions = frozenset({"sub"})
    setting = "fuse_softmax"

    def match(
        self, edit: Editor, node: Node, settings: OptimizerSettings
    ) -> Found | Refused | None:
        """Find the logarithm, the sum and the exponential, and what was subtracted first."""
        if function(node.op) != "sub" or node.results[0].dtype not in FLOATS:
            return None
        y, total = edit.operands(node)
        small, repeats = before_broadcast(edit, total)
        walk = Walk(edit, small, y.dtype)
        shift: Value | None = None
        if walk.function() == "add":
            first, second = edit.operands(walk.at.node)
            swapped = function(_inner(edit, second).node.op) == "log"
            shift = first if swapped else second
            walk.down(int(swapped))
        if not walk.through("log"):
            return None
        axes = walk.reduction("sum")
        if axes is None or not walk.through("exp"):
            return None
        if small.shape != kept_shape(walk.at.shape, axes):
            return None
        inner, nodes = walk.at, {*repeats, *walk.nodes}
        x, between = _shifted(edit, inner, axes)
        nodes |= {*between}
        top = inner if shift is None else x
        if shift is not None and (not between or not _is_shift(edit, shift, inner)):
            return None
        if not Walk(edit, top, y.dtype).reaches(y):
            return None
        return _decided(edit, node, x if top is y else y, axes, nodes)

    def rewrite(self, edit: Editor, found: Found) -> Value:
        """Build the softmax with a logarithm."""
        return softmax_over(edit, found, log=True)


def _inner(edit: Editor, v: Value) -> Value:
    """Return what is behind views."""
    while isinstance(v.node.op, View):
        (v,) = edit.operands(v.node)
    return v


def _is_shift(edit: Editor, v: Value, shifted: Value) -> bool:
    """Return whether a value is what was subtracted, but for repetition."""
    subtracted = before_broadcast(edit, edit.operands(shifted.node)[1])[0]
    return _inner(edit, before_broadcast(edit, v)[0]) is _inner(edit, subtracted)


@dataclass(frozen=True)
class Inner:
    """A softmax and the node that its new operand comes from."""

    op: Softmax
    x: Value


class SoftmaxRule(Rule[Inner]):
    """A rule that ends in another softmax of another value."""

    def rewrite(self, edit: Editor, found: Inner) -> Value:
        """Apply the new softmax."""
        return edit.graph.push(found.op, found.x)


class LogOfSoftmax(SoftmaxRule):
    """log(softmax(x)): what underflows to 0 has a finite logarithm then."""

    name = "log_of_softmax"
    roots: ClassVar[tuple[type[Op], ...]] = (Unary,)
    functions = frozenset({"log"})
    setting = "fuse_softmax"

    def match(
        self, edit: Editor, node: Node, settings: OptimizerSettings
    ) -> Inner | Refused | None:
        """Find a softmax that nothing else reads."""
        if function(node.op) != "log":
            return None
        (v,) = edit.operands(node)
        op = v.node.op
        if not isinstance(op, Softmax) or op.log:
            return None
        if edit.uses(v) > 1:
            return SHARED
        return Inner(Softmax(op.axis, log=True), edit.operands(v.node)[0])


class SoftmaxView(SoftmaxRule):
    """Reshape, softmax, reshape back."""

    name = "softmax_view"
    roots: ClassVar[tuple[type[Op], ...]] = (View,)
    setting = "fuse_softmax"

    def match(
        self, edit: Editor, node: Node, settings: OptimizerSettings
    ) -> Inner | Refused | None:
        """Find the axis before the first reshape."""
        (v,) = edit.operands(node)
        op = v.node.op
        if not isinstance(op, Softmax):
            return None
        (viewed,) = edit.operands(v.node)
        if not isinstance(viewed.node.op, View):
            return None
        (x,) = edit.operands(viewed.node)
        if x.shape != node.results[0].shape:
            return None
        groups = axis_groups(x.shape, viewed.shape) or []
        axes = [left for left, right in groups if right == (op.axis,)]
        if len(axes) != 1 or len(axes[0]) != 1:
            return Refused("the reshape merges or splits the axis of the softmax")
        if edit.uses(v) > 1:
            return SHARED
        return Inner(Softmax(axes[0][0], op.log), x)


class NarrowSoftmax(SoftmaxRule):
    """A softmax of a narrow type between casts to and from float32."""

    name = "narrow_softmax"
    roots: ClassVar[tuple[type[Op], ...]] = (Cast,)

    def match(
        self, edit: Editor, node: Node, settings: OptimizerSettings
    ) -> Inner | Refused | None:
        """Find the softmax and the other cast."""
        (v,) = edit.operands(node)
        op, dtype = v.node.op, node.results[0].dtype
        if not isinstance(op, Softmax) or dtype not in NARROW or v.dtype is not DType.FLOAT32:
            return None
        (wide,) = edit.operands(v.node)
        if not isinstance(wide.node.op, Cast):
            return None
        (x,) = edit.operands(wide.node)
        if x.dtype is not dtype:
            return None
        return SHARED if edit.uses(v) > 1 else Inner(op, x)


RULES = (
    SoftmaxQuotient(),
    LogSoftmax(),
    LogOfSoftmax(),
    SoftmaxView(),
    NarrowSoftmax(),
)
