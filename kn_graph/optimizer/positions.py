"""Integer tensors that count: position arithmetic, as exporters write masks and embeddings with it.

A tensor is affine if its element at (i, j, ..) is offset + i*stride_0 + j*stride_1 + .., where
offset and strides are sizes. Such are ranges, sizes, evenly spaced constants, and sums, differences
and views of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from kn_graph.condition import Condition
from kn_graph.dim import Size
from kn_graph.dim_facts import provably_ge
from kn_graph.dtype import DType
from kn_graph.ops.elementwise import Binary, Cast, Unary
from kn_graph.ops.index import Iota
from kn_graph.ops.layout import Broadcast, Flip, Permute, Slice, View
from kn_graph.optimizer.axes import long_axes
from kn_graph.optimizer.editor import Editor
from kn_graph.types import Shape, TensorType
from kn_graph.value import Value

__all__ = ["Affine", "affine"]

INDEX_TYPES = frozenset({DType.INT64, DType.INT32})
DEPTH = 12


@dataclass(frozen=True)
class Affine:
    """See the module.

    Attributes:
        offset: the first element.
        strides: one an axis; 0 where nothing changes.
    """

    offset: Size
    strides: tuple[Size, ...]

    def varying(self) -> list[int]:
        """Return the axes along which elements differ."""
        return [a for a, s in enumerate(self.strides) if s != 0]

    def combined(self, other: Affine, sign: int) -> Affine:
        """Return the sum (sign 1) or the difference (sign -1)."""
        strides = zip(self.strides, other.strides, strict=True)
        return Affine(self.offset + other.offset * sign, tuple(a + b * sign for a, b in strides))

    def scaled(self, factor: Size) -> Affine:
        """Return the product with a number."""
        return Affine(self.offset * factor, tuple(s * factor for s in self.strides))

    def lowest(self, shape: Shape) -> Size | None:
        """Return a lower bound of the elements, if signs are known; sizes are at least 1."""
        low = self.offset
        for stride, n in zip(self.strides, shape, strict=True):
            if provably_ge(stride, 0):
                continue
            if not provably_ge(0, stride):
                return None
            low = low + stride * (n - 1)
        return low


def affine(edit: Editor, v: Value, depth: int = DEPTH) -> Affine | None:
    """Return how the elements of an integer tensor follow from their position, if they do."""
    v = edit.resolve(v)
    t = v.type
    if not depth or not isinstance(t, TensorType) or t.dtype not in INDEX_TYPES:
        return None
    content = v.content
    if content is not None and content.size == 1:
        element = content.reshape(-1)[0]
        usable = not isinstance(element, (bool, Condition))
        return Affine(element, (0,) * t.rank) if usable else None
    rule = _RULES.get(type(v.node.op))
    if rule is None:
        return _of_constant(v)
    return rule(edit, v, depth - 1)


def _of_constant(v: Value) -> Affine | None:
    a = v.constant
    if a is None or a.size > 65536:
        return None
    long = long_axes(a.shape)
    if len(long) != 1 or a.shape[long[0]] < 2:
        return None
    flat = a.reshape(-1).astype(np.int64)
    step = int(flat[1] - flat[0])
    if not (np.diff(flat) == step).all():
        return None
    return Affine(int(flat[0]), tuple(step if axis == long[0] else 0 for axis in range(a.ndim)))


def _iota(edit: Editor, v: Value, depth: int) -> Affine | None:
    return Affine(0, (1,))


def _inner(edit: Editor, v: Value, depth: int) -> Affine | None:
    return affine(edit, edit.operands(v.node)[0], depth)


def _view(edit: Editor, v: Value, depth: int) -> Affine | None:
    (x,) = edit.operands(v.node)
    old, new = long_axes(x.shape), long_axes(v.shape)
    if [x.shape[a] for a in old] != [v.shape[a] for a in new]:
        return None
    inner = affine(edit, x, depth)
    if inner is None:
        return None
    strides: list[Size] = [0] * v.rank
    for a, b in zip(old, new, strict=True):
        strides[b] = inner.strides[a]
    return Affine(inner.offset, tuple(strides))


def _broadcast(edit: Editor, v: Value, depth: int) -> Affine | None:
    (x,) = edit.operands(v.node)
    inner = affine(edit, x, depth)
    if inner is None:
        return None
    strides: list[Size] = []
    for small, wide, stride in zip(x.shape, v.shape, inner.strides, strict=True):
        if small != wide and small != 1:
            return None
        strides.append(stride if small == wide else 0)
    return Affine(inner.offset, tuple(strides))


def _permute(edit: Editor, v: Value, depth: int) -> Affine | None:
    op: Any = v.node.op
    inner = _inner(edit, v, depth)
    return inner and Affine(inner.offset, tuple(inner.strides[a] for a in op.axes))


def _slice(edit: Editor, v: Value, depth: int) -> Affine | None:
    op: Any = v.node.op
    inner = _inner(edit, v, depth)
    if inner is None:
        return None
    strides = list(inner.strides)
    start = inner.offset + strides[op.axis] * op.start
    strides[op.axis] = strides[op.axis] * op.step
    return Affine(start, tuple(strides))


def _flip(edit: Editor, v: Value, depth: int) -> Affine | None:
    op: Any = v.node.op
    inner = _inner(edit, v, depth)
    if inner is None:
        return None
    strides = list(inner.strides)
    last = inner.offset + strides[op.axis] * (v.shape[op.axis] - 1)
    strides[op.axis] = -strides[op.axis]
    return Affine(last, tuple(strides))


def _unary(edit: Editor, v: Value, depth: int) -> Affine | None:
    op: Any = v.node.op
    inner = _inner(edit, v, depth) if op.fn == "neg" else None
    return inner and inner.scaled(-1)


def _binary(edit: Editor, v: Value, depth: int) -> Affine | None:
    op: Any = v.node.op
    if op.fn not in ("add", "sub", "mul"):
        return None
    x, y = edit.operands(v.node)
    a = affine(edit, x, depth)
    b = affine(edit, y, depth) if a is not None else None
    if a is None or b is None:
        return None
    if op.fn != "mul":
        return a.combined(b, 1 if op.fn == "add" else -1)
    if b.varying() and a.varying():
        return None
    return b.scaled(a.offset) if b.varying() else a.scaled(b.offset)


_RULES: dict[type, Callable[[Editor, Value, int], Affine | None]] = {
    Iota: _iota,
    View: _view,
    Broadcast: _broadcast,
    Permute: _permute,
    Slice: _slice,
    Flip: _flip,
    Cast: _inner,
    Unary: _unary,
    Binary: _binary,
}
