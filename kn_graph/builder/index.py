"""Building methods that reduce, gather, scatter, sort, search and draw."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from kn_graph.builder.base import Builder, normalize_axes, normalize_axis
from kn_graph.dim import size_prod
from kn_graph.dtype import DType, DTypeLike
from kn_graph.errors import ShapeError
from kn_graph.ops.cumulative import Cumulative, CumulativeFn
from kn_graph.ops.gather import Gather, GatherElements, GatherND
from kn_graph.ops.index import Iota
from kn_graph.ops.layout import Broadcast, View
from kn_graph.ops.nms import NonMaxSuppression
from kn_graph.ops.nonzero import NonZero, Unique, nonzero_coordinates
from kn_graph.ops.random import Distribution, Random
from kn_graph.ops.reduce import ArgReduce, Det, Reduce, ReduceFn, ReduceTo
from kn_graph.ops.scatter import ScatterElements, ScatterFn, ScatterND
from kn_graph.ops.sort import TopK

if TYPE_CHECKING:
    from kn_graph.dim import Size
    from kn_graph.value import Value

__all__ = ["IndexBuilder"]

FEW_ELEMS = 64
"""Constants of at most this many elements are searched while the graph is built."""

STREAMS_A_GRAPH = 1 << 20
"""Random nodes are numbered by position; this is the stride between a graph and those around."""


class IndexBuilder(Builder):
    """See the module. Axes may be negative: they then count from the end."""

    # ---- reductions -------------------------------------------------------------------------

    def reduce(
        self, fn: ReduceFn, x: Value, axes: Sequence[int] | None = None, *, keep: bool = False
    ) -> Value:
        """Combine all elements along axes, all of them by default; `keep` leaves them as size 1."""
        over = tuple(sorted(normalize_axes(range(x.rank) if axes is None else axes, x.rank)))
        reduced = self.push(Reduce(fn, over), x)
        return self.unsqueeze(reduced, over) if keep else reduced

    def reduce_to(self, fn: ReduceFn, x: Value, shape: Sequence[Size]) -> Value:
        """Combine elements along the axes that `shape` makes 1: the opposite of `broadcast`."""
        return self.push(ReduceTo(fn, tuple(shape)), x)

    def arg_reduce(
        self, x: Value, axis: int, *, largest: bool = True, last: bool = False, keep: bool = False
    ) -> Value:
        """Find the index of the largest or smallest element along an axis."""
        at = normalize_axis(axis, x.rank)
        found = self.push(ArgReduce(at, largest, last), x)
        return self.unsqueeze(found, [at]) if keep else found

    def cumulative(
        self,
        fn: CumulativeFn,
        x: Value,
        axis: int,
        *,
        exclusive: bool = False,
        reverse: bool = False,
    ) -> Value:
        """Take running sums or products along an axis; see `Cumulative`."""
        return self.push(Cumulative(fn, normalize_axis(axis, x.rank), exclusive, reverse), x)

    def det(self, x: Value) -> Value:
        """Take the determinant of each matrix of the last two axes."""
        return self.push(Det(), x)

    # ---- reading and writing by index -------------------------------------------------------

    def gather(self, x: Value, indices: Value, axis: int = 0) -> Value:
        """Choose slices of an axis by indices of any shape (NumPy take).

        Raises:
            ShapeError: an index that is known does not exist.
        """
        axis = normalize_axis(axis, x.rank)
        self._check_known_indices(x, indices, axis)
        return self.push(Gather(axis), x, indices)

    def gather_elements(self, x: Value, indices: Value, axis: int = 0) -> Value:
        """Choose one element of an axis for each index (NumPy take_along_axis)."""
        axis = normalize_axis(axis, x.rank)
        self._check_known_indices(x, indices, axis)
        return self.push(GatherElements(axis), x, indices)

    def gather_nd(self, x: Value, indices: Value, batch_axes: int = 0) -> Value:
        """Choose slices by index tuples, which lie along the last axis of `indices`."""
        return self.push(GatherND(batch_axes), x, indices)

    def scatter_elements(
        self, x: Value, indices: Value, updates: Value, axis: int, reduction: ScatterFn = "none"
    ) -> Value:
        """Write or combine one element of an axis for each index."""
        axis = normalize_axis(axis, x.rank)
        self._check_known_indices(x, indices, axis)
        return self.push(ScatterElements(axis, reduction), x, indices, updates)

    def scatter_nd(
        self, x: Value, indices: Value, updates: Value, reduction: ScatterFn = "none"
    ) -> Value:
        """Write or combine slices by index tuples, which lie along the last axis of `indices`."""
        return self.push(ScatterND(reduction), x, indices, updates)

    def _check_known_indices(self, x: Value, indices: Value, axis: int) -> None:
        """Refuse indices that are known (few of them: weights are not read) and do not exist."""
        content, n = indices.content, x.shape[axis]
        if content is None:
            return
        numbers = [i for i in content.ravel().tolist() if isinstance(i, int)]
        for i in {min(numbers), max(numbers)} if numbers else ():
            why = f"index {i} exists in axis {axis} of {x.name}, which has size {n}"
            self.require_ge(n, i + 1 if i >= 0 else -i, why)

    def iota(self, length: Size, dtype: DTypeLike = DType.INT64) -> Value:
        """Return the integers from 0 up to `length`, exclusive."""
        return self.push(Iota(length, DType.of(dtype)))

    # ---- sorting and searching --------------------------------------------------------------

    def top_k(
        self, x: Value, k: Size, axis: int = -1, *, largest: bool = True
    ) -> tuple[Value, Value]:
        """Return the k largest or smallest elements along an axis in order, and their indices."""
        values, indices = self.push_all(TopK(normalize_axis(axis, x.rank), k, largest), x)
        return values, indices

    def nonzero(self, x: Value) -> Value:
        """Return where elements are not zero: int64 [rank, count].

        The count is a size where it follows from x, as it does for one number broadcast.
        """
        array = x.constant
        if array is not None and array.size <= FEW_ELEMS:
            return self.constant(nonzero_coordinates(array))
        source = x
        while isinstance(source.node.op, (Broadcast, View)):
            (source,) = source.node.operands
        array = source.constant
        if array is None or array.size != 1:
            return self.push(NonZero(), x)
        if not nonzero_coordinates(array.reshape(1)).size:
            return self.constant(np.zeros((x.rank, 0), np.int64))
        return self.concat([self._coordinates(x.shape, axis) for axis in range(x.rank)], 0)

    def _coordinates(self, shape: Sequence[Size], axis: int) -> Value:
        """Return one coordinate of every place of a tensor: int64 [1, elements]."""
        line = [n if a == axis else 1 for a, n in enumerate(shape)]
        grid = self.broadcast(self.view(self.iota(shape[axis]), line), shape)
        return self.view(grid, (1, size_prod(shape)))

    def compress(self, x: Value, condition: Value, axis: int) -> Value:
        """Take the slices of an axis where a condition of rank 1 holds; it may be shorter."""
        if condition.rank != 1 or condition.dtype is not DType.BOOL:
            raise ShapeError(f"a condition is bool of rank 1, got {condition.type}")
        where = self.nonzero(condition)
        return self.gather(x, self.view(where, where.shape[1:]), axis)

    def unique(self, x: Value, axis: int | None = None, *, ordered: bool = True) -> list[Value]:
        """Return the different elements (slices), first indices, inverse indices and counts."""
        at = None if axis is None else normalize_axis(axis, x.rank)
        return list(self.push_all(Unique(at, ordered), x))

    def non_max_suppression(
        self,
        boxes: Value,
        scores: Value,
        max_boxes: Value,
        iou: Value,
        score: Value | None = None,
        *,
        centered: bool = False,
    ) -> Value:
        """Choose boxes that do not overlap; see `NonMaxSuppression`."""
        optional = () if score is None else (score,)
        return self.push(NonMaxSuppression(centered), boxes, scores, max_boxes, iou, *optional)

    # ---- random numbers ---------------------------------------------------------------------

    def random(
        self,
        distribution: Distribution,
        shape: Sequence[Size],
        dtype: DTypeLike = DType.FLOAT32,
        *,
        key: int | None = None,
    ) -> Value:
        """Draw numbers, uniform in [0, 1) or normal; `key` fixes the seed, else the run does."""
        op = Random(distribution, tuple(shape), DType.of(dtype), self._new_stream(), key)
        return self.push(op)

    def _new_stream(self) -> int:
        """A number that no other node of this graph, its bodies or the graphs around uses."""
        stream, scale = 0, 1
        graph: Builder | None = self
        while graph is not None:
            stream += scale * len(graph.nodes)
            graph, scale = graph.parent, scale * STREAMS_A_GRAPH
        return stream
