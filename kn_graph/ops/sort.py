"""Sorting and selecting by rank."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kn_graph.dim import Size
from kn_graph.dtype import DType
from kn_graph.errors import DTypeError, ExecutionError
from kn_graph.op import EvalContext, InferContext, Op
from kn_graph.ops.layout import check_axis
from kn_graph.scalar import widen
from kn_graph.types import TensorType, format_shape

__all__ = ["TopK"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class TopK(Op):
    """The k largest or smallest elements along an axis, in order, and where they were.

    With k the size of the axis this sorts. Of equal elements the one of the lower index comes
    first; 0.0 and -0.0 are equal. A NaN counts as larger than every number, so NaNs come first
    among the largest and last among the smallest.

    Shapes: [.., n, ..] with k <= n -> values [.., k, ..], int64 indices [.., k, ..].

    Attributes:
        axis: counted from 0.
        k: how many.
        largest: the largest in descending order, else the smallest in ascending order.
    """

    axis: int
    k: Size
    largest: bool = True

    def infer(self, ctx: InferContext, x: TensorType) -> tuple[TensorType, TensorType]:
        """Replace the size of the axis by k."""
        if not (x.dtype.is_float or x.dtype.is_int):
            raise DTypeError(f"{x.dtype} has no order to sort by")
        check_axis(self.axis, x.rank, "sorted axis")
        what = f"axis {self.axis} of {format_shape(x.shape)} has {self.k} elements to take"
        ctx.require_ge(x.shape[self.axis], self.k, what)
        ctx.require_ge(self.k, 0, "a number of elements is not negative")
        shape = (*x.shape[: self.axis], self.k, *x.shape[self.axis + 1 :])
        return TensorType(x.dtype, shape), TensorType(DType.INT64, shape)

    def eval(self, ctx: EvalContext, x: Array) -> tuple[Array, Array]:
        """Sort stably and take the front."""
        k, n = ctx.size(self.k), x.shape[self.axis]
        if not 0 <= k <= n:
            raise ExecutionError(f"cannot take {k} of {n} elements along axis {self.axis}")
        keys = widen(x)
        if self.largest:
            # a stable ascending sort from the back keeps lower indices in front when reversed
            order = n - 1 - np.argsort(np.flip(keys, self.axis), self.axis, kind="stable")
            order = np.flip(order, self.axis)
        else:
            order = np.argsort(keys, self.axis, kind="stable")
        first = order[(*(slice(None),) * self.axis, slice(k))].astype(np.int64)
        return np.take_along_axis(x, first, self.axis), first
