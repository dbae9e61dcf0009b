"""Broadcasts move behind what can be computed on fewer elements, and behind other views.

f(broadcast(x), broadcast(y)) = broadcast(f(x, y)) for axes along which no operand varies;
view, permute, slice and flip of a broadcast are a broadcast of theirs. So what is known of small
constants spreads, and masks are computed once instead of for each head.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from kn_graph.dim import Size
from kn_graph.op import Op
from kn_graph.ops.elementwise import Binary, Cast, Compare, Select, Unary
from kn_graph.ops.layout import Broadcast, Flip, Permute, Slice, View
from kn_graph.optimizer.axes import axis_groups
from kn_graph.optimizer.editor import Editor
from kn_graph.optimizer.rule import Rule
from kn_graph.optimizer.settings import OptimizerSettings
from kn_graph.types import Shape
from kn_graph.value import Node, Value

__all__ = ["RULES", "BroadcastOfBroadcast", "LayoutOfBroadcast", "NarrowElementwise"]


@dataclass(frozen=True)
class Narrow:
    """An elementwise operation and the shape that is enough for it."""

    node: Node
    operands: tuple[Value, ...]
    shape: Shape


class NarrowElementwise(Rule[Narrow]):
    """See the module."""

    name = "narrow_elementwise"
    roots: ClassVar[tuple[type[Op], ...]] = (Unary, Binary, Compare, Select, Cast)

    def match(self, edit: Editor, node: Node, settings: OptimizerSettings) -> Narrow | None:
        """Find axes along which all operands only repeat."""
        operands = edit.operands(node)
        if not all(isinstance(v.node.op, Broadcast) for v in operands):
            return None
        sources = tuple(edit.operands(v.node)[0] for v in operands)
        wide = node.results[0].shape
        shape = tuple(
            1 if all(s.shape[axis] == 1 for s in sources) else n for axis, n in enumerate(wide)
        )
        return Narrow(node, sources, shape) if shape != wide else None

    def rewrite(self, edit: Editor, found: Narrow) -> Value:
        """Compute on the small shape, then repeat."""
        g = edit.graph
        operands = [g.push(Broadcast(found.shape), v) for v in found.operands]
        small = g.push(found.node.op, *operands)
        return g.push(Broadcast(found.node.results[0].shape), small)


@dataclass(frozen=True)
class Repeated:
    """What is repeated, and the shape in the end."""

    x: Value
    shape: Shape


class BroadcastOfBroadcast(Rule[Repeated]):
    """broadcast(broadcast(x, a), b) = broadcast(x, b)."""

    name = "broadcast_of_broadcast"
    roots: ClassVar[tuple[type[Op], ...]] = (Broadcast,)

    def match(self, edit: Editor, node: Node, settings: OptimizerSettings) -> Repeated | None:
        """Look at the operand."""
        (v,) = edit.operands(node)
        if not isinstance(v.node.op, Broadcast):
            return None
        return Repeated(edit.operands(v.node)[0], node.results[0].shape)

    def rewrite(self, edit: Editor, found: Repeated) -> Value:
        """Repeat once."""
        return edit.graph.push(Broadcast(found.shape), found.x)


@dataclass(frozen=True)
class Inside:
    """A layout operation that moves inside a broadcast.

    Attributes:
        x: what is repeated.
        op: to apply to it; None where nothing is left to do.
        shape: of the result.
    """

    x: Value
    op: Op | None
    shape: Shape


class LayoutOfBroadcast(Rule[Inside]):
    """See the module."""

    name = "layout_of_broadcast"
    roots: ClassVar[tuple[type[Op], ...]] = (View, Permute, Slice, Flip)

    def match(self, edit: Editor, node: Node, settings: OptimizerSettings) -> Inside | None:
        """Find a broadcast whose repeated axes the operation keeps apart from the others."""
        (v,) = edit.operands(node)
        if not isinstance(v.node.op, Broadcast):
            return None
        (x,) = edit.operands(v.node)
        ops = _INSIDE[type(node.op)](node.op, x.shape, v.shape)
        return None if ops is None else Inside(x, ops[0], node.results[0].shape)

    def rewrite(self, edit: Editor, found: Inside) -> Value:
        """Apply the operation first."""
        x = found.x if found.op is None else edit.graph.push(found.op, found.x)
        return edit.graph.push(Broadcast(found.shape), x)


_Inside = tuple[Op | None] | None


def _view_inside(op: Op, small: Shape, wide: Shape) -> _Inside:
    """Reshape groups of axes that are repeated as a whole, or not at all."""
    assert isinstance(op, View)
    if all(n == 1 for n in small):
        return (View((1,) * len(op.shape)),)
    groups = axis_groups(wide, op.shape)
    if groups is None:
        return None
    shape: list[Size] = [1] * len(op.shape)
    for before, after in groups:
        if all(small[a] == wide[a] for a in before):
            for b in after:
                shape[b] = op.shape[b]
        elif any(small[a] != 1 for a in before):
            return None
    return (View(tuple(shape)),)


def _permute_inside(op: Op, small: Shape, wide: Shape) -> _Inside:
    return (op,)


def _slice_inside(op: Op, small: Shape, wide: Shape) -> _Inside:
    assert isinstance(op, Slice)
    if small[op.axis] == wide[op.axis]:
        return (op,)
    return (None,) if small[op.axis] == 1 else None


def _flip_inside(op: Op, small: Shape, wide: Shape) -> _Inside:
    assert isinstance(op, Flip)
    if small[op.axis] == wide[op.axis]:
        return (op,)
    return (None,) if small[op.axis] == 1 else None


_INSIDE: dict[type[Op], Callable[[Op, Shape, Shape], _Inside]] = {
    View: _view_inside,
    Permute: _permute_inside,
    Slice: _slice_inside,
    Flip: _flip_inside,
}

RULES = (BroadcastOfBroadcast(), LayoutOfBroadcast(), NarrowElementwise())
