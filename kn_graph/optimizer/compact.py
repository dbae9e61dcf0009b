"""Constants without their repetition: an array with size 1 along each axis that only repeats.

A value `v` with the compact array `a` is `broadcast(a, v.shape)`, for symbolic shapes too.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kn_graph.ops.layout import Broadcast, Flip, Permute, View
from kn_graph.optimizer.axes import axis_groups, inverse
from kn_graph.optimizer.constants import known_shape
from kn_graph.optimizer.editor import Editor
from kn_graph.types import Shape
from kn_graph.value import Node, Value

__all__ = ["compact_constant", "through_layout"]

Array = np.ndarray[Any, Any]

CHAIN = 8
"""Longer chains of layout operations over a constant are not looked through."""


def compact_constant(edit: Editor, v: Value) -> Array | None:
    """Return the compact array of a constant behind layout operations, as a view of it.

    None where the value is no constant, or where repetition does not keep to axes.
    """
    known = edit.compact.get(v)
    if known is not None:
        return known
    top = v
    layouts: list[Node] = []
    while isinstance(v.node.op, (View, Broadcast, Permute, Flip)):
        if len(layouts) == CHAIN:
            return None
        layouts.append(v.node)
        (v,) = edit.operands(v.node)
    a = v.constant
    before = v.shape if a is not None else ()
    for node in reversed(layouts):
        if a is None:
            return None
        if not isinstance(node.op, Broadcast):
            a = through_layout(node, a, before)
        before = node.results[0].shape
    if a is not None:
        edit.compact[top] = a
    return a


def through_layout(node: Node, a: Array, before: Shape, *, back: bool = False) -> Array | None:
    """Return the compact array of a view, permutation or flip of a value, given that of the value.

    Args:
        node: the layout operation.
        a: a compact array.
        before: the shape of the operand.
        back: the other way round, from the result to the operand.
    """
    op = node.op
    if isinstance(op, View):
        return _reshaped(a, op.shape, before) if back else _reshaped(a, before, op.shape)
    if isinstance(op, Permute):
        return a.transpose(inverse(op.axes) if back else op.axes)
    return np.flip(a, op.axis) if isinstance(op, Flip) else None


def _reshaped(a: Array, before: Shape, after: Shape) -> Array | None:
    if a.size == 1:
        return a.reshape((1,) * len(after))
    numbers = known_shape(after)
    if a.shape == before and numbers is not None:
        return a.reshape(numbers)
    groups = axis_groups(before, after)
    if groups is None:
        return None
    shape = [1] * len(after)
    for old, new in groups:
        if all(a.shape[axis] == before[axis] for axis in old):
            for axis in new:
                size = after[axis]
                if not isinstance(size, int):
                    return None
                shape[axis] = size
        elif any(a.shape[axis] != 1 for axis in old):
            return None
    return a.reshape(shape)
