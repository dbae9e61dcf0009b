"""Chains of views, permutations, slices and flips become one of each, or cancel.

view(view(x)) = view(x); permute p of permute q = permute q[p[i]], and a view where only axes of
size 1 move; slice of slice is a slice; flip of flip along one axis is nothing. Selecting one of
several stacked matrices (a slice of length 1 whose axis is dropped) moves through permutations and
views down to the axis that they were stacked in.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from kn_graph.dim import Size, size_prod
from kn_graph.op import Op
from kn_graph.ops.layout import Flip, Permute, Slice, View
from kn_graph.optimizer.axes import axis_groups, long_axes, same_order
from kn_graph.optimizer.editor import Editor
from kn_graph.optimizer.rule import Rule
from kn_graph.optimizer.settings import OptimizerSettings
from kn_graph.types import Shape
from kn_graph.value import Node, Value

__all__ = [
    "RULES",
    "FlipOfFlip",
    "PermuteOfPermute",
    "PermuteOfUnits",
    "SelectOfPermute",
    "SliceOfSlice",
    "SqueezeOfPermute",
    "ViewOfSliceOfView",
    "ViewOfView",
]


@dataclass(frozen=True)
class Chain:
    """Operations to apply to a value, in this order."""

    x: Value
    ops: tuple[Op, ...]


class ChainRule(Rule[Chain]):
    """A rule that finds a shorter chain."""

    def rewrite(self, edit: Editor, found: Chain) -> Value:
        """Apply the operations."""
        x = found.x
        for op in found.ops:
            x = edit.graph.push(op, x)
        return x


class ViewOfView(ChainRule):
    """view(view(x, a), b) = view(x, b)."""

    name = "view_of_view"
    roots: ClassVar[tuple[type[Op], ...]] = (View,)

    def match(self, edit: Editor, node: Node, settings: OptimizerSettings) -> Chain | None:
        """Look at the operand."""
        (v,) = edit.operands(node)
        if not isinstance(v.node.op, View):
            return None
        return Chain(edit.operands(v.node)[0], (node.op,))


class PermuteOfPermute(ChainRule):
    """permute(permute(x, q), p) = permute(x, q[p])."""

    name = "permute_of_permute"
    roots: ClassVar[tuple[type[Op], ...]] = (Permute,)

    def match(self, edit: Editor, node: Node, settings: OptimizerSettings) -> Chain | None:
        """Look at the operand."""
        (v,) = edit.operands(node)
        inner, outer = v.node.op, node.op
        if not isinstance(inner, Permute):
            return None
        assert isinstance(outer, Permute)
        axes = tuple(inner.axes[a] for a in outer.axes)
        return Chain(edit.operands(v.node)[0], (Permute(axes),))


class PermuteOfUnits(ChainRule):
    """A permutation that keeps all axes in order but those of size 1 is a view."""

    name = "permute_of_units"
    roots: ClassVar[tuple[type[Op], ...]] = (Permute,)

    def match(self, edit: Editor, node: Node, settings: OptimizerSettings) -> Chain | None:
        """Compare the order of the axes that matter."""
        assert isinstance(node.op, Permute)
        (v,) = edit.operands(node)
        if not same_order(v.shape, node.op.axes):
            return None
        return Chain(v, (View(node.results[0].shape),))


class FlipOfFlip(ChainRule):
    """Twice along one axis is nothing; along several, ascending ones go first."""

    name = "flip_of_flip"
    roots: ClassVar[tuple[type[Op], ...]] = (Flip,)

    def match(self, edit: Editor, node: Node, settings: OptimizerSettings) -> Chain | None:
        """Look at the operand."""
        (v,) = edit.operands(node)
        inner, outer = v.node.op, node.op
        if not isinstance(inner, Flip):
            return None
        assert isinstance(outer, Flip)
        (x,) = edit.operands(v.node)
        if inner.axis == outer.axis:
            return Chain(x, ())
        swaps = inner.axis > outer.axis and edit.uses(v) == 1
        return Chain(x, (outer, inner)) if swaps else None


class SliceOfSlice(ChainRule):
    """slice(slice(x)) is a slice along one axis; along several, ascending ones go first."""

    name = "slice_of_slice"
    roots: ClassVar[tuple[type[Op], ...]] = (Slice,)

    def match(self, edit: Editor, node: Node, settings: OptimizerSettings) -> Chain | None:
        """Look at the operand."""
        (v,) = edit.operands(node)
        inner, outer = v.node.op, node.op
        if not isinstance(inner, Slice):
            return None
        assert isinstance(outer, Slice)
        (x,) = edit.operands(v.node)
        if inner.axis == outer.axis:
            start = inner.start + outer.start * inner.step
            op = Slice(inner.axis, start, outer.length, inner.step * outer.step)
            return Chain(x, (op,))
        swaps = inner.axis > outer.axis and edit.uses(v) == 1
        return Chain(x, (outer, inner)) if swaps else None


class SliceStep(ChainRule):
    """The step of a slice of one element does not matter."""

    name = "slice_step"
    roots: ClassVar[tuple[type[Op], ...]] = (Slice,)

    def match(self, edit: Editor, node: Node, settings: OptimizerSettings) -> Chain | None:
        """Find a step that is not 1."""
        op = node.op
        assert isinstance(op, Slice)
        if op.step == 1 or op.length != 1:
            return None
        return Chain(edit.operands(node)[0], (replace(op, step=1),))


# ---- one of several stacked tensors ---------------------------------------------------------


def _drops(before: Shape, after: Shape) -> bool:
    """Return whether a view only drops axes of size 1, at least one."""
    if len(after) >= len(before):
        return False
    left, right = long_axes(before), long_axes(after)
    return [before[a] for a in left] == [after[b] for b in right]


class SqueezeOfPermute(ChainRule):
    """A view that drops axes of size 1 goes before a permutation."""

    name = "squeeze_of_permute"
    roots: ClassVar[tuple[type[Op], ...]] = (View,)

    def match(self, edit: Editor, node: Node, settings: OptimizerSettings) -> Chain | None:
        """Find a permutation under the view."""
        (v,) = edit.operands(node)
        permute, shape = v.node.op, node.results[0].shape
        if not isinstance(permute, Permute) or not _drops(v.shape, shape):
            return None
        (x,) = edit.operands(v.node)
        # axes of size 1 that stay keep their place; the others take the rest in the order of x
        places, old = long_axes(shape), long_axes(x.shape)
        sizes: list[Size] = [1] * len(shape)
        axes = list(range(len(shape)))
        for place, axis in zip(places, old, strict=True):
            sizes[place] = x.shape[axis]
        for place, axis in zip(places, (a for a in permute.axes if a in old), strict=True):
            axes[place] = places[old.index(axis)]
        return Chain(x, (View(tuple(sizes)), Permute(tuple(axes))))


class SelectOfPermute(ChainRule):
    """view(slice(permute(x))) = view(permute(slice(x))) where the axis of the slice is dropped."""

    name = "select_of_permute"
    roots: ClassVar[tuple[type[Op], ...]] = (View,)

    def match(self, edit: Editor, node: Node, settings: OptimizerSettings) -> Chain | None:
        """Find a slice of one element, and a permutation under it."""
        (v,) = edit.operands(node)
        cut = v.node.op
        if not isinstance(cut, Slice) or cut.length != 1:
            return None
        (w,) = edit.operands(v.node)
        permute = w.node.op
        if not isinstance(permute, Permute) or not _drops(v.shape, node.results[0].shape):
            return None
        (x,) = edit.operands(w.node)
        return Chain(x, (replace(cut, axis=permute.axes[cut.axis]), permute, node.op))


class ViewOfSliceOfView(ChainRule):
    """view(slice(view(x))) = view(slice(x)), where the axis of the slice is part of one of x."""

    name = "view_of_slice_of_view"
    roots: ClassVar[tuple[type[Op], ...]] = (View,)

    def match(self, edit: Editor, node: Node, settings: OptimizerSettings) -> Chain | None:
        """Find the slice and the view under it."""
        (v,) = edit.operands(node)
        cut = v.node.op
        if not isinstance(cut, Slice):
            return None
        (w,) = edit.operands(v.node)
        if not isinstance(w.node.op, View):
            return None
        (x,) = edit.operands(w.node)
        inside = _slice_inside(cut, x.shape, w.shape)
        return None if inside is None else Chain(x, (inside, node.op))


def _slice_inside(cut: Slice, before: Shape, after: Shape) -> Slice | None:
    """Return the slice of `before` that is a slice of its view as `after`."""
    for old, new in axis_groups(before, after) or ():
        if cut.axis not in new:
            continue
        if new == (cut.axis,) and len(old) == 1:
            return replace(cut, axis=old[0])
        if new[0] != cut.axis or len(old) != 1 or cut.step != 1:
            return None
        rows = size_prod(after[a] for a in new[1:])
        return Slice(old[0], cut.start * rows, cut.length * rows)
    return None


RULES = (
    ViewOfView(),
    PermuteOfPermute(),
    PermuteOfUnits(),
    FlipOfFlip(),
    SliceOfSlice(),
    SliceStep(),
    SelectOfPermute(),
    ViewOfSliceOfView(),
    SqueezeOfPermute(),
)
