"""Operations whose result has as many elements as the data says: NonZero and Unique."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kn_graph.dtype import DType
from kn_graph.op import EvalContext, InferContext, Op
from kn_graph.ops.layout import check_axis
from kn_graph.scalar import widen
from kn_graph.types import Shape, TensorType

__all__ = ["NonZero", "Unique", "nonzero_coordinates"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class NonZero(Op):
    """Where elements are not zero: one column of coordinates each, in row-major order.

    A NaN is not zero, an empty string is. Of a scalar the result has no rows, and one column or
    none.

    Shapes: any -> int64 [rank, count], count a new size bound at run time.
    """

    def infer(self, ctx: InferContext, x: TensorType) -> TensorType:
        """Make a size for the count."""
        numel = x.numel
        count = ctx.data_symbol("nonzero", hi=numel if isinstance(numel, int) else None)
        return TensorType(DType.INT64, (x.rank, count))

    def eval(self, ctx: EvalContext, x: Array) -> Array:
        """Search with NumPy."""
        return nonzero_coordinates(x)


def nonzero_coordinates(x: Array) -> Array:
    """Return the coordinates of what is not zero: int64 [rank, count]."""
    found = np.stack(np.nonzero(np.atleast_1d(widen(x)))).astype(np.int64)
    return found[: x.ndim]


@dataclass(frozen=True)
class Unique(Op):
    """The different elements of a tensor, or the different slices along an axis.

    Slices are ordered by their first different element in row-major order. All NaNs are one value,
    larger than every number; 0.0 and -0.0 are equal, and the first one met stands for both.

    Shapes: x -> y [u], or x's shape with u for the axis; int64 first [u]: where in x each occurs
    first; inverse [n]: for each element (slice) of x its place in y; counts [u]. u is a new size
    bound at run time, n the number of elements (slices).

    Attributes:
        axis: counted from 0; None flattens x first.
        ordered: ascending, else in the order of the first occurrence.
    """

    axis: int | None = None
    ordered: bool = True

    def infer(self, ctx: InferContext, x: TensorType) -> tuple[TensorType, ...]:
        """Make a size for the count."""
        if self.axis is not None:
            check_axis(self.axis, x.rank, "unique axis")
        n = x.numel if self.axis is None else x.shape[self.axis]
        count = ctx.data_symbol("unique", hi=n if isinstance(n, int) else None)
        shape: Shape = (count,)
        if self.axis is not None:
            shape = (*x.shape[: self.axis], count, *x.shape[self.axis + 1 :])
        one = TensorType(DType.INT64, (count,))
        return TensorType(x.dtype, shape), one, TensorType(DType.INT64, (n,)), one

    def eval(self, ctx: EvalContext, x: Array) -> tuple[Array, ...]:
        """Number the elements by rank, then compare rows of numbers."""
        axis = 0 if self.axis is None else self.axis
        slices = x.reshape(-1) if self.axis is None else x
        rows = _ranks(np.moveaxis(slices, axis, 0))
        _, first, inverse, counts = np.unique(
            rows, axis=0, return_index=True, return_inverse=True, return_counts=True
        )
        inverse = inverse.reshape(-1)
        if not self.ordered:
            order = np.argsort(first, kind="stable")
            place = np.empty_like(order)
            place[order] = np.arange(order.size)
            first, inverse, counts = first[order], place[inverse], counts[order]
        y = np.take(slices, first, axis)
        return y, first.astype(np.int64), inverse.astype(np.int64), counts.astype(np.int64)


def _ranks(slices: Array) -> Array:
    """Return one row of integers a slice, which compare as the elements do."""
    _, ranks = np.unique(widen(slices.reshape(-1)), return_inverse=True)
    width = int(np.prod(slices.shape[1:]))
    rows = ranks.reshape(slices.shape[0], width)
    # a column that is equal everywhere, so that slices without elements are equal, too
    return np.concatenate([np.zeros((len(rows), 1), np.int64), rows], 1)
