"""Building methods that index and reduce."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kn_graph.builder.base import Builder, normalize_axes, normalize_axis
from kn_graph.ops.gather import Gather, GatherElements, GatherND
from kn_graph.ops.reduce import ArgReduce, Reduce, ReduceFn

if TYPE_CHECKING:
    from kn_graph.value import Value

__all__ = ["IndexBuilder"]


class IndexBuilder(Builder):
    """See the module."""

    def reduce(
        self, fn: ReduceFn, x: Value, axes: Sequence[int] | None = None, *, keep: bool = False
    ) -> Value:
        """Combine all elements along axes, all of them by default; `keep` leaves them as size 1."""
        over = tuple(sorted(normalize_axes(range(x.rank) if axes is None else axes, x.rank)))
        reduced = self.push(Reduce(fn, over), x)
        return self.unsqueeze(reduced, over) if keep else reduced

    def arg_reduce(
        self, x: Value, axis: int, *, largest: bool = True, last: bool = False, keep: bool = False
    ) -> Value:
        """Find the index of the largest or smallest element along an axis."""
        at = normalize_axis(axis, x.rank)
        found = self.push(ArgReduce(at, largest, last), x)
        return self.unsqueeze(found, [at]) if keep else found

    def gather(self, x: Value, indices: Value, axis: int = 0) -> Value:
        """Choose slices of an axis by index."""
        return self.push(Gather(normalize_axis(axis, x.rank)), x, indices)

    def gather_elements(self, x: Value, indices: Value, axis: int = 0) -> Value:
        """Choose one element of an axis for each index."""
        return self.push(GatherElements(normalize_axis(axis, x.rank)), x, indices)

    def gather_nd(self, x: Value, indices: Value, batch_axes: int = 0) -> Value:
        """Choose slices by index vectors."""
        return self.push(GatherND(batch_axes), x, indices)
