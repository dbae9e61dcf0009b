"""Reading elements by index."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kn_graph.errors import DTypeError, ExecutionError, ShapeError
from kn_graph.op import Content, EvalContext, InferContext, Op
from kn_graph.ops.layout import check_axis
from kn_graph.types import TensorType

__all__ = ["Gather", "GatherElements", "GatherND", "wrapped_indices"]

Array = np.ndarray[Any, Any]


def check_index_type(indices: TensorType) -> None:
    """Raise DTypeError where indices are no integers."""
    if not indices.dtype.is_int:
        raise DTypeError(f"indices must be integers, got {indices.dtype}")


def wrapped_indices(indices: Array, size: Any, what: str) -> Array:
    """Return indices counted from 0; negative ones count from the end.

    Args:
        indices: integers of any shape.
        size: of the axis, or sizes that broadcast with the indices.
        what: names the axis in the error.

    Raises:
        ExecutionError: one is outside [-size, size).
    """
    wide = indices.astype(np.int64)
    wrong = (wide < -np.asarray(size)) | (wide >= np.asarray(size))
    if wrong.any():
        at = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise ExecutionError(f"index {int(wide[at])} is outside {what} of size {size}")
    return np.asarray(np.where(wide < 0, wide + size, wide))


@dataclass(frozen=True)
class Gather(Op):
    """Slices of an axis, chosen by index: out[a, i, b] = x[a, indices[i], b].

    Negative indices count from the end; others out of range are an error when it runs.

    Shapes: x [A.., n, B..], integer indices [I..] -> [A.., I.., B..].
    """

    axis: int

    def infer(self, ctx: InferContext, x: TensorType, indices: TensorType) -> TensorType:
        """Put the shape of the indices in place of the axis."""
        check_axis(self.axis, x.rank, "gather axis")
        check_index_type(indices)
        shape = (*x.shape[: self.axis], *indices.shape, *x.shape[self.axis + 1 :])
        return TensorType(x.dtype, shape)

    def eval(self, ctx: EvalContext, x: Array, indices: Array) -> Array:
        """Take along the axis."""
        size = x.shape[self.axis]
        return np.take(x, wrapped_indices(indices, size, f"axis {self.axis}"), axis=self.axis)

    def content(self, *operands: Content) -> Content | None:
        """Choose among sizes."""
        x, indices = operands
        numbers = indices.ravel().tolist()
        n = x.shape[self.axis]
        if not all(type(i) is int and -n <= i < n for i in numbers):
            return None
        return np.take(x, np.array(numbers, np.int64).reshape(indices.shape), axis=self.axis)


@dataclass(frozen=True)
class GatherElements(Op):
    """One element of an axis for each index: out[i, j, k] = x[i, indices[i, j, k], k] for axis 1.

    Shapes: x [a, n, c], integer indices [i, j, k] with i <= a, k <= c -> [i, j, k].
    """

    axis: int

    def infer(self, ctx: InferContext, x: TensorType, indices: TensorType) -> TensorType:
        """Return the shape of the indices."""
        check_axis(self.axis, x.rank, "gather axis")
        check_index_type(indices)
        if x.rank != indices.rank:
            raise ShapeError(f"indices of rank {indices.rank} for a tensor of rank {x.rank}")
        for axis, (n, i) in enumerate(zip(x.shape, indices.shape, strict=True)):
            if axis != self.axis:
                ctx.require_ge(n, i, f"indices reach no further than axis {axis}")
        return TensorType(x.dtype, indices.shape)

    def eval(self, ctx: EvalContext, x: Array, indices: Array) -> Array:
        """Take along the axis."""
        cut = x[
            tuple(slice(None) if a == self.axis else slice(s) for a, s in enumerate(indices.shape))
        ]
        wrapped = wrapped_indices(indices, x.shape[self.axis], f"axis {self.axis}")
        return np.take_along_axis(cut, wrapped, self.axis)


@dataclass(frozen=True)
class GatherND(Op):
    """Slices chosen by index vectors: out[b, i] = x[b, indices[b, i, 0], indices[b, i, 1], ...].

    Shapes: x [B.., n_1 .. n_k, S..], integer indices [B.., I.., k] -> [B.., I.., S..].

    Attributes:
        batch_axes: number of leading axes B that both share.
    """

    batch_axes: int = 0

    def infer(self, ctx: InferContext, x: TensorType, indices: TensorType) -> TensorType:
        """Read the length of the index vectors off the last axis."""
        check_index_type(indices)
        if indices.rank <= self.batch_axes or not isinstance(indices.shape[-1], int):
            raise ShapeError(f"indices {indices} do not end in index vectors of a known length")
        for axis in range(self.batch_axes):
            ctx.require_eq(x.shape[axis], indices.shape[axis], f"gather batch axis {axis}")
        k = indices.shape[-1]
        if self.batch_axes + k > x.rank:
            raise ShapeError(f"index vectors of length {k} for a tensor of rank {x.rank}")
        return TensorType(x.dtype, indices.shape[:-1] + x.shape[self.batch_axes + k :])

    def eval(self, ctx: EvalContext, x: Array, indices: Array) -> Array:
        """Index with arrays."""
        b, k = self.batch_axes, indices.shape[-1]
        sizes = np.array(x.shape[b : b + k], np.int64)
        wrapped = wrapped_indices(indices, sizes, f"axes {b} to {b + k - 1}")
        lead = np.ogrid[tuple(slice(n) for n in indices.shape[:-1])][:b] if b else []
        return x[(*lead, *(wrapped[..., i] for i in range(k)))] if b + k else x
