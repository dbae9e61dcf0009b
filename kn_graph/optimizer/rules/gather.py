"""Gathers at constant indices that are evenly spaced are slices; equal ones, a broadcast.

Indices of a shape other than one axis are flattened first. Reading at slices of constant indices
is a slice of what they read, so that position tables of symbolic length are computed beforehand.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from kn_graph.dim import Size, size_prod
from kn_graph.dim_facts import provably_ge
from kn_graph.op import Op
from kn_graph.ops.gather import Gather, GatherND
from kn_graph.ops.layout import Broadcast, Flip, Slice, View
from kn_graph.optimizer.constants import FREE_BYTES, known_array, known_shape
from kn_graph.optimizer.editor import Editor
from kn_graph.optimizer.rule import Rule
from kn_graph.optimizer.settings import OptimizerSettings
from kn_graph.types import Shape
from kn_graph.value import Node, Value

__all__ = ["RULES", "GatherOfSlice", "GatherSpaced", "GatherTuples"]

Array = np.ndarray[Any, Any]

MAX_INDICES = 1 << 20
"""More constant indices are not looked at."""


@dataclass(frozen=True)
class Spaced:
    """Indices start, start + step, ...

    Attributes:
        start: the first one, from 0 on.
        step: 0 where all are equal.
        count: how many there are.
    """

    start: Size
    step: int
    count: Size


def spaced(indices: Array, n: Size) -> Spaced | None:
    """Return how indices into an axis of size n are spaced, if they exist and evenly are."""
    if indices.size == 0 or indices.size > MAX_INDICES:
        return None
    flat = indices.reshape(-1).astype(np.int64)
    step = int(flat[1] - flat[0]) if flat.size > 1 else 1
    first, last = int(flat[0]), int(flat[-1])
    if flat.size > 1 and not (np.diff(flat) == step).all():
        return None
    if (first < 0) != (last < 0):
        return None
    if not all(provably_ge(n, i + 1 if i >= 0 else -i) for i in (first, last)):
        return None
    return Spaced(first if first >= 0 else n + first, step, flat.size)


@dataclass(frozen=True)
class Cut:
    """Operations that read evenly spaced elements of an axis."""

    x: Value
    ops: tuple[Op, ...]


def _reading(shape: Shape, axis: int, at: Spaced, result: Shape) -> tuple[Op, ...]:
    """Return operations that read spaced elements of an axis, in the shape of the result."""
    ops: tuple[Op, ...]
    if at.step > 0:
        ops = (Slice(axis, at.start, at.count, at.step),)
    elif at.step < 0:
        assert isinstance(at.count, int)
        ops = (Slice(axis, at.start + (at.count - 1) * at.step, at.count, -at.step), Flip(axis))
    else:
        before, after = shape[:axis], shape[axis + 1 :]
        ops = (Slice(axis, at.start, 1), Broadcast((*before, at.count, *after)))
    return (*ops, View(result))


class CutRule(Rule[Cut]):
    """A rule that reads by slices."""

    def rewrite(self, edit: Editor, found: Cut) -> Value:
        """Apply the operations."""
        x = found.x
        for op in found.ops:
            x = edit.graph.push(op, x)
        return x


class GatherSpaced(CutRule):
    """See the module."""

    name = "gather_spaced"
    roots: ClassVar[tuple[type[Op], ...]] = (Gather,)

    def match(self, edit: Editor, node: Node, settings: OptimizerSettings) -> Cut | None:
        """Find constant indices."""
        op = node.op
        assert isinstance(op, Gather)
        x, indices = edit.operands(node)
        array = known_array(edit, indices)
        at = None if array is None else spaced(array, x.shape[op.axis])
        if at is None:
            return None
        return Cut(x, _reading(x.shape, op.axis, at, node.results[0].shape))


class GatherTuples(CutRule):
    """Constant index tuples that read neighbours in the flattened tensor."""

    name = "gather_tuples"
    roots: ClassVar[tuple[type[Op], ...]] = (GatherND,)

    def match(self, edit: Editor, node: Node, settings: OptimizerSettings) -> Cut | None:
        """Flatten the tuples to positions."""
        op = node.op
        assert isinstance(op, GatherND)
        x, indices = edit.operands(node)
        array = known_array(edit, indices)
        if array is None or op.batch_axes or array.size > MAX_INDICES:
            return None
        depth = array.shape[-1]
        sizes = known_shape(x.shape[:depth])
        if sizes is None or 0 in sizes or array.size == 0:
            return None
        tuples = array.reshape(-1, depth).astype(np.int64)
        bounds = np.array(sizes)
        if ((tuples < -bounds) | (tuples >= bounds)).any():
            return None
        positions = np.ravel_multi_index(tuple((tuples % bounds).T), sizes)
        total = size_prod(sizes)
        at = spaced(positions, total)
        if at is None:
            return None
        flat = (total, *x.shape[depth:])
        return Cut(x, (View(flat), *_reading(flat, 0, at, node.results[0].shape)))


@dataclass(frozen=True)
class CutAfter:
    """A gather of constants, and the slice of what it gives."""

    op: Gather
    x: Value
    indices: Value
    cut: Slice


class GatherOfSlice(Rule[CutAfter]):
    """x[indices[a:b]] = x[indices][a:b] for constants x and indices."""

    name = "gather_of_slice"
    roots: ClassVar[tuple[type[Op], ...]] = (Gather,)
    setting = "fold"

    def match(self, edit: Editor, node: Node, settings: OptimizerSettings) -> CutAfter | None:
        """Find a slice of constant indices whose length is a symbol."""
        op = node.op
        assert isinstance(op, Gather)
        x, v = edit.operands(node)
        cut, table = v.node.op, x.constant
        if table is None or not isinstance(cut, Slice) or known_shape(v.shape) is not None:
            return None
        (indices,) = edit.operands(v.node)
        array, n = indices.constant, table.shape[op.axis]
        if array is None or array.size == 0 or not -n <= array.min() <= array.max() < n:
            return None
        # what is read will be computed beforehand, if it is not a slice or a broadcast
        read = table.nbytes // n * array.size
        if spaced(array, n) is None and read > max(table.nbytes + array.nbytes, FREE_BYTES):
            return None
        return CutAfter(op, x, indices, replace(cut, axis=op.axis + cut.axis))

    def rewrite(self, edit: Editor, found: CutAfter) -> Value:
        """Read everything, then cut."""
        return edit.graph.push(found.cut, edit.graph.push(found.op, found.x, found.indices))


RULES = (GatherSpaced(), GatherTuples(), GatherOfSlice())
