"""A norm over axes that a view has merged is one over these axes themselves.

norm(view(x)) = view(norm(view'(x))), where view' only splits axes of x: a group norm, written as
[N, C, H, W] -> [N, G, C/G*H*W], normalises [N, G, C/G, H, W] over the last three. Axes can be split
whatever order they are stored in, while merging needs them side by side: channels that are stored
last would have to be moved.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from kn_graph.dim import Size, exact_div
from kn_graph.op import Op
from kn_graph.ops.layout import View
from kn_graph.ops.norm import Norm
from kn_graph.optimizer.axes import axis_groups
from kn_graph.optimizer.editor import Editor
from kn_graph.optimizer.rule import Rule
from kn_graph.optimizer.settings import OptimizerSettings
from kn_graph.types import Shape
from kn_graph.value import Node, Value

__all__ = ["RULES", "NormOfView"]


@dataclass(frozen=True)
class Found:
    """A norm, what it is of, over which sizes and axes, and the shape of the result."""

    node: Node
    x: Value
    sizes: Shape
    op: Norm
    shape: Shape


class NormOfView(Rule[Found]):
    """norm(view(x)) = view(norm(view'(x)))."""

    name = "norm_of_view"
    roots: ClassVar[tuple[type[Op], ...]] = (Norm,)
    setting = "fuse_norm"

    def match(self, edit: Editor, node: Node, settings: OptimizerSettings) -> Found | None:
        """Look for normalised axes that are made of several."""
        op = node.op
        assert isinstance(op, Norm)
        (v,) = edit.operands(node)
        if not isinstance(v.node.op, View):
            return None
        (x,) = edit.operands(v.node)
        parts = _parts(x.shape, v.shape)
        if parts is None or all(len(parts[a]) == 1 for a in op.axes):
            return None
        sizes: list[Size] = []
        axes: list[int] = []
        for axis, row in enumerate(parts):
            if axis in op.axes:
                axes += range(len(sizes), len(sizes) + len(row))
            sizes += row
        return Found(node, x, tuple(sizes), replace(op, axes=tuple(axes)), v.shape)

    def rewrite(self, edit: Editor, found: Found) -> Value:
        """Split, normalise, merge."""
        g = edit.graph
        out = g.push(found.op, g.push(View(found.sizes), found.x))
        known = out.node.origins  # profiles and errors name the norm, not the view behind it
        out.node.origins += tuple(n for n in found.node.origins if n not in known)
        return g.push(View(found.shape), out)


def _parts(before: Shape, after: Shape) -> list[list[Size]] | None:
    """Return the sizes that each axis of a reshape is made of, which are parts of axes before."""
    found: list[list[Size]] = [[size] for size in after]
    for old, new in axis_groups(before, after) or ():
        split = _split([before[a] for a in old], [after[b] for b in new])
        if split is None:
            return None
        for axis, row in zip(new, split, strict=True):
            found[axis] = row
    return found


def _split(before: list[Size], after: list[Size]) -> list[list[Size]] | None:
    """Cut two rows of sizes with one product at the places of both; None where they do not fit."""
    found: list[list[Size]] = []
    rest = list(reversed(before))
    for size in after:
        row: list[Size] = []
        left: Size = size
        while left != 1:
            part = rest.pop() if rest else None
            if part is None:
                return None
            inside, outside = exact_div(left, part), exact_div(part, left)
            if inside is not None:
                row.append(part)
                left = inside
            elif outside is not None:
                row.append(left)
                rest.append(outside)
                left = 1
            else:
                return None
        found.append(row)
    return found if not rest else None


RULES = (NormOfView(),)
