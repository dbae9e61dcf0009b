"""Reading elements at indices that are data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kn_graph.dim import Size
from kn_graph.errors import DTypeError, ExecutionError, ShapeError
from kn_graph.op import Content, EvalContext, InferContext, Op
from kn_graph.ops.layout import check_axis
from kn_graph.types import TensorType, format_shape

__all__ = [
    "Gather",
    "GatherElements",
    "GatherND",
    "check_elements",
    "check_index_type",
    "checked_indices",
    "element_index",
    "known_indices",
    "tuple_depth",
    "tuple_index",
]

Array = np.ndarray[Any, Any]


def check_index_type(indices: TensorType) -> None:
    """Raise DTypeError where indices are no integers."""
    if not indices.dtype.is_int:
        raise DTypeError(f"indices are integers, got {indices.dtype}")


def checked_indices(indices: Array, n: int, axis: int) -> Array:
    """Return indices into an axis of size n as int64; negative ones count from the end.

    Raises:
        ExecutionError: one does not exist; names the index and the size.
    """
    indices = indices.astype(np.int64, copy=False)
    outside = (indices < -n) | (indices >= n)
    if outside.any():
        raise ExecutionError(
            f"index {int(indices[outside][0])} is out of range for axis {axis} of size {n}"
        )
    return indices


def known_indices(content: Content) -> Array | None:
    """Return what is known of indices as an array, where all are numbers."""
    if all(isinstance(e, int) for e in content.ravel().tolist()):
        return content.astype(np.int64)
    return None


@dataclass(frozen=True)
class Gather(Op):
    """Take elements of an axis by index: out[a, i, b] = x[a, indices[i], b].

    Negative indices count from the end. At run time an index that does not exist is an error.

    Shapes: x [a.., n, b..], integer indices [i..] of any rank -> [a.., i.., b..].
    """

    axis: int

    def infer(self, ctx: InferContext, x: TensorType, indices: TensorType) -> TensorType:
        """Put the shape of the indices in place of the axis."""
        check_index_type(indices)
        check_axis(self.axis, x.rank, "gather axis")
        shape = (*x.shape[: self.axis], *indices.shape, *x.shape[self.axis + 1 :])
        return TensorType(x.dtype, shape)

    def eval(self, ctx: EvalContext, x: Array, indices: Array) -> Array:
        """Take with NumPy."""
        at = checked_indices(indices, x.shape[self.axis], self.axis)
        # rank 0 is taken as a bare object, which a string alone does not tell the type of
        return np.asarray(np.take(x, at, self.axis), x.dtype)

    def content(self, *operands: Content) -> Content | None:
        """Take what is known, where the indices are numbers."""
        x, indices = operands[0], known_indices(operands[1])
        if indices is None:
            return None
        at = checked_indices(indices, x.shape[self.axis], self.axis)
        return np.asarray(np.take(x, at, self.axis), object)


@dataclass(frozen=True)
class GatherElements(Op):
    """Take one element for each index: out[i, j, k] = x[i, indices[i, j, k], k] for axis 1.

    Negative indices count from the end. At run time an index that does not exist is an error.

    Shapes: x and integer indices of equal rank, indices not larger except along the axis
    -> the shape of the indices.
    """

    axis: int

    def infer(self, ctx: InferContext, x: TensorType, indices: TensorType) -> TensorType:
        """Return x's element type in the shape of the indices."""
        check_elements(ctx, self.axis, x, indices, "gather")
        return TensorType(x.dtype, indices.shape)

    def eval(self, ctx: EvalContext, x: Array, indices: Array) -> Array:
        """Index with NumPy."""
        return x[element_index(indices, x.shape[self.axis], self.axis)]

    def content(self, *operands: Content) -> Content | None:
        """Take what is known, where the indices are numbers."""
        x, indices = operands[0], known_indices(operands[1])
        if indices is None:
            return None
        return x[element_index(indices, x.shape[self.axis], self.axis)]


def check_elements(
    ctx: InferContext, axis: int, x: TensorType, indices: TensorType, what: str
) -> None:
    """Check indices that have the rank of the tensor they point into."""
    check_index_type(indices)
    check_axis(axis, x.rank, f"{what} axis")
    shapes = f"{format_shape(indices.shape)} into {format_shape(x.shape)}"
    if x.rank != indices.rank:
        raise ShapeError(f"{what} with indices {shapes}: the ranks differ")
    for a, (n, count) in enumerate(zip(x.shape, indices.shape, strict=True)):
        if a != axis:
            ctx.require_ge(n, count, f"{what} with indices {shapes} at axis {a}")


def element_index(indices: Array, n: int, axis: int) -> tuple[Array, ...]:
    """Return the NumPy index that replaces coordinate `axis` of each place by `indices`."""
    grid: list[Array] = list(np.ogrid[tuple(slice(s) for s in indices.shape)])
    grid[axis] = checked_indices(indices, n, axis)
    return tuple(grid)


@dataclass(frozen=True)
class GatherND(Op):
    """Take slices by index tuples: out[b, i, ..] = x[b, indices[b, i, 0], indices[b, i, 1], ..].

    Negative indices count from the end. At run time an index that does not exist is an error.

    Shapes: x [b.., n_1..n_k, s..], integer indices [b.., i.., k] -> [b.., i.., s..].

    Attributes:
        batch_axes: number of leading axes that both share.
    """

    batch_axes: int = 0

    def infer(self, ctx: InferContext, x: TensorType, indices: TensorType) -> TensorType:
        """Replace the axes that a tuple points into by those of the tuples."""
        depth = tuple_depth(x, indices, self.batch_axes)
        for axis in range(self.batch_axes):
            ctx.require_eq(x.shape[axis], indices.shape[axis], f"batch axis {axis} of gather")
        shape = (*indices.shape[:-1], *x.shape[self.batch_axes + depth :])
        return TensorType(x.dtype, shape)

    def eval(self, ctx: EvalContext, x: Array, indices: Array) -> Array:
        """Index with NumPy."""
        return np.asarray(x[tuple_index(indices, x.shape, self.batch_axes)], x.dtype)

    def content(self, *operands: Content) -> Content | None:
        """Take what is known, where the indices are numbers."""
        x, indices = operands[0], known_indices(operands[1])
        if indices is None:
            return None
        return np.asarray(x[tuple_index(indices, x.shape, self.batch_axes)], object)


def tuple_depth(x: TensorType, indices: TensorType, batch_axes: int) -> int:
    """Check index tuples, which lie along the last axis, and return their length."""
    check_index_type(indices)
    what = f"index tuples {format_shape(indices.shape)} into {format_shape(x.shape)}"
    if x.rank < 1 or indices.rank < 1:
        raise ShapeError(f"{what}: both must have an axis")
    if not 0 <= batch_axes < min(x.rank, indices.rank):
        raise ShapeError(f"{what}: there are no {batch_axes} batch axes")
    depth: Size = indices.shape[-1]
    if not isinstance(depth, int):
        raise ShapeError(f"{what}: how long they are is only known at run time")
    if not 1 <= depth <= x.rank - batch_axes:
        raise ShapeError(f"{what}: a tuple has 1 to {x.rank - batch_axes} indices, not {depth}")
    return depth


def tuple_index(indices: Array, shape: tuple[int, ...], batch_axes: int) -> tuple[Array, ...]:
    """Return the NumPy index of index tuples into a tensor of the given shape."""
    tuples = indices.shape[:-1]
    grid: list[Array] = list(np.ogrid[tuple(slice(s) for s in tuples)])
    axes = range(batch_axes, batch_axes + indices.shape[-1])
    parts = [checked_indices(indices[..., i], shape[a], a) for i, a in enumerate(axes)]
    return (*grid[:batch_axes], *parts)
