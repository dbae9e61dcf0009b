"""Writing elements at indices that are data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from kn_graph.cast import cast_array
from kn_graph.dtype import DType
from kn_graph.errors import DTypeError, ShapeError
from kn_graph.op import Content, EvalContext, InferContext, Op
from kn_graph.ops.gather import (
    check_elements,
    element_index,
    known_indices,
    tuple_depth,
    tuple_index,
)
from kn_graph.scalar import widen
from kn_graph.types import TensorType, format_shape

__all__ = ["ScatterElements", "ScatterFn", "ScatterND"]

Array = np.ndarray[Any, Any]
ScatterFn = Literal["none", "add", "mul", "max", "min"]

_UFUNCS: dict[str, np.ufunc] = {
    "add": np.add,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
}


def _check_dtypes(fn: str, x: TensorType, updates: TensorType) -> None:
    if x.dtype is not updates.dtype:
        raise DTypeError(f"updates are {updates.dtype}, the tensor is {x.dtype}")
    if fn != "none" and not (x.dtype.is_float or x.dtype.is_int):
        raise DTypeError(f"scatter with reduction {fn} needs numbers, got {x.dtype}")


def _scattered(fn: str, x: Array, index: tuple[Array, ...], updates: Array) -> Array:
    """Return a copy with updates written in row-major order, or combined with what is there."""
    if fn == "none":
        out = x.copy()
        out[index] = updates
        return out
    out = np.array(widen(x))
    with np.errstate(all="ignore"):
        _UFUNCS[fn].at(out, index, widen(updates))
        return cast_array(out, DType.from_numpy(x.dtype), saturate=False)


@dataclass(frozen=True)
class ScatterElements(Op):
    """Write one element for each index: out[i, indices[i, j, k], k] = updates[i, j, k] for axis 1.

    The rest is as in x. Where indices repeat, reduction `none` leaves the update that is last in
    row-major order; the others combine all updates with the element of x. Narrow floats are
    combined in float32 and rounded once; integers wrap; `max` and `min` propagate NaN. Negative
    indices count from the end. At run time an index that does not exist is an error.

    Shapes: x, integer indices and updates of equal rank; indices and updates have one shape, not
    larger than x except along the axis -> x's shape.
    """

    axis: int
    reduction: ScatterFn = "none"

    def infer(
        self, ctx: InferContext, x: TensorType, indices: TensorType, updates: TensorType
    ) -> TensorType:
        """Return x's type."""
        _check_dtypes(self.reduction, x, updates)
        check_elements(ctx, self.axis, x, indices, "scatter")
        if indices.rank != updates.rank:
            raise ShapeError(f"{indices} indices for {updates} updates: the ranks differ")
        for axis, (a, b) in enumerate(zip(indices.shape, updates.shape, strict=True)):
            ctx.require_eq(a, b, f"scatter has as many updates as indices at axis {axis}")
        return x

    def eval(self, ctx: EvalContext, x: Array, indices: Array, updates: Array) -> Array:
        """Assign or combine with NumPy."""
        index = element_index(indices, x.shape[self.axis], self.axis)
        return _scattered(self.reduction, x, index, updates)

    def content(self, *operands: Content) -> Content | None:
        """Write what is known, where the indices are numbers."""
        x, indices, updates = operands[0], known_indices(operands[1]), operands[2]
        if indices is None or self.reduction != "none":
            return None
        return _scattered("none", x, element_index(indices, x.shape[self.axis], self.axis), updates)


@dataclass(frozen=True)
class ScatterND(Op):
    """Write slices by index tuples: out[indices[i, 0], indices[i, 1], ..] = updates[i, ..].

    The rest is as in x. Repeated indices, negative ones, those that do not exist, narrow floats,
    integers and NaN are treated as in `ScatterElements`.

    Shapes: x [n_1..n_k, s..], integer indices [i.., k], updates [i.., s..] -> x's shape.
    """

    reduction: ScatterFn = "none"

    def infer(
        self, ctx: InferContext, x: TensorType, indices: TensorType, updates: TensorType
    ) -> TensorType:
        """Return x's type."""
        _check_dtypes(self.reduction, x, updates)
        depth = tuple_depth(x, indices, 0)
        expected = (*indices.shape[:-1], *x.shape[depth:])
        if len(expected) != updates.rank:
            raise ShapeError(f"updates are {updates}, expected {format_shape(expected)}")
        for axis, (a, b) in enumerate(zip(expected, updates.shape, strict=True)):
            ctx.require_eq(a, b, f"updates {updates} fit {format_shape(expected)} at axis {axis}")
        return x

    def eval(self, ctx: EvalContext, x: Array, indices: Array, updates: Array) -> Array:
        """Assign or combine with NumPy."""
        return _scattered(self.reduction, x, tuple_index(indices, x.shape, 0), updates)

    def content(self, *operands: Content) -> Content | None:
        """Write what is known, where the indices are numbers."""
        x, indices, updates = operands[0], known_indices(operands[1]), operands[2]
        if indices is None or self.reduction != "none":
            return None
        return _scattered("none", x, tuple_index(indices, x.shape, 0), updates)
