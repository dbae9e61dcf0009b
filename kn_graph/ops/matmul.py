"""Matrix multiplication."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kn_graph.cast import cast_array
from kn_graph.dtype import DType
from kn_graph.errors import DTypeError, ShapeError
from kn_graph.op import EvalContext, InferContext, Op
from kn_graph.types import TensorType, format_shape

__all__ = ["MatMul", "accumulator", "product_type"]

Array = np.ndarray[Any, Any]


def product_type(x: DType, y: DType, out_dtype: DType | None, what: str) -> DType:
    """Return the element type of a sum of products.

    Without `out_dtype` both operands have one type, which the result has too. With it, floats of
    one type may give a wider float, and integers, also of two types, a wider integer.

    Raises:
        DTypeError: the types do not go together.
    """
    for dtype in (x, y):
        if not (dtype.is_float or dtype.is_int):
            raise DTypeError(f"{what} multiplies numbers, got {dtype}")
    if out_dtype is None:
        if x is not y:
            raise DTypeError(f"{what} of {x} and {y}: expected equal types")
        return x
    integers = x.is_int and y.is_int and out_dtype.is_int
    floats = x is y and x.is_float and out_dtype.is_float
    if not (integers or floats):
        raise DTypeError(f"{what} of {x} and {y} cannot give {out_dtype}")
    if out_dtype.bits < max(x.bits, y.bits):
        raise DTypeError(f"{what} of {x} and {y} cannot give {out_dtype}: it is narrower")
    return out_dtype


def accumulator(result: DType) -> np.dtype[Any]:
    """Return the NumPy type that products are summed in: at least float32, exact for integers."""
    if result.is_float:
        return np.dtype(np.float64 if result is DType.FLOAT64 else np.float32)
    if result.bits < 8:  # these wrap when they are converted at the end
        return np.dtype(np.int32)
    return result.numpy


@dataclass(frozen=True)
class MatMul(Op):
    """Product of matrices: out[.., i, j] = sum over k of x[.., i, k] * y[.., k, j].

    Narrow floats accumulate in float32 and are rounded once; integers are exact and wrap.
    A sum over nothing (k = 0) is 0. NaN spreads along its row or column.

    Shapes: x [.., m, k], y [.., k, n] with equal leading axes -> [.., m, n].

    Attributes:
        out_dtype: element type of the result, where it is wider than that of the operands.
    """

    out_dtype: DType | None = None

    def infer(self, ctx: InferContext, x: TensorType, y: TensorType) -> TensorType:
        """Check types, leading axes and the inner size."""
        dtype = product_type(x.dtype, y.dtype, self.out_dtype, "matmul")
        shapes = f"{format_shape(x.shape)} and {format_shape(y.shape)}"
        if x.rank < 2 or x.rank != y.rank:
            raise ShapeError(f"matmul of {shapes}: expected equal ranks of at least 2")
        for axis, (a, b) in enumerate(zip(x.shape[:-2], y.shape[:-2], strict=True)):
            ctx.require_eq(a, b, f"matmul of {shapes} at axis {axis}")
        ctx.require_eq(x.shape[-1], y.shape[-2], f"inner size of the matmul of {shapes}")
        return TensorType(dtype, (*x.shape[:-1], y.shape[-1]))

    def eval(self, ctx: EvalContext, x: Array, y: Array) -> Array:
        """Multiply in the accumulator's type."""
        result = self.out_dtype or DType.from_numpy(x.dtype)
        wide = accumulator(result)
        with np.errstate(all="ignore"):
            out = np.matmul(x.astype(wide, copy=False), y.astype(wide, copy=False))
            return cast_array(np.asarray(out), result, saturate=False)
