"""Reductions: many elements become one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import ml_dtypes
import numpy as np

from kn_graph.cast import cast_array
from kn_graph.condition import Condition
from kn_graph.dim import Size, size_max, size_min, size_prod, size_sum
from kn_graph.dtype import DType
from kn_graph.errors import DTypeError, ExecutionError, ShapeError
from kn_graph.known import Exact
from kn_graph.op import Content, EvalContext, InferContext, Op
from kn_graph.ops.layout import check_axis
from kn_graph.scalar import widen
from kn_graph.types import Shape, TensorType, format_shape

if TYPE_CHECKING:
    from kn_graph.value import Value

__all__ = ["ArgReduce", "Det", "Reduce", "ReduceFn", "ReduceTo", "identity_of"]

Array = np.ndarray[Any, Any]
ReduceFn = Literal["sum", "mean", "prod", "max", "min", "any", "all"]

NUMBER_FNS = frozenset({"sum", "mean", "prod", "max", "min"})
BOOL_FNS = frozenset({"any", "all", "max", "min"})

_UFUNCS: dict[str, np.ufunc] = {
    "sum": np.add,
    "mean": np.add,
    "prod": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
    "any": np.logical_or,
    "all": np.logical_and,
}
_IDENTITIES = {"sum": 0, "mean": 0, "prod": 1, "any": False, "all": True}
_CONTENT: dict[str, Callable[[list[Size]], Size]] = {
    "sum": size_sum,
    "prod": size_prod,
    "max": lambda sizes: size_max(*sizes),
    "min": lambda sizes: size_min(*sizes),
}


def identity_of(fn: str, dtype: DType) -> float | int:
    """Return what `fn` of elements of a type starts from: combining it with any changes nothing."""
    if fn in _IDENTITIES:
        return _IDENTITIES[fn]
    lowest = fn == "max"
    if dtype is DType.BOOL:
        return not lowest
    if dtype.is_int:
        info = ml_dtypes.iinfo(dtype.numpy)  # type: ignore[no-untyped-call]
        return int(info.min if lowest else info.max)
    infinity = -np.inf if lowest else np.inf
    if np.isinf(cast_array(np.array(infinity), dtype, saturate=False).astype(np.float32)):
        return infinity
    limits = ml_dtypes.finfo(dtype.numpy)  # type: ignore[no-untyped-call]
    return float(limits.min if lowest else limits.max)


def _check_dtype(fn: str, dtype: DType) -> None:
    allowed = BOOL_FNS if dtype is DType.BOOL else NUMBER_FNS
    number = dtype.is_float or dtype.is_int or dtype is DType.BOOL
    if fn not in allowed or not number:
        raise DTypeError(f"{fn} of {dtype}: expected one of {', '.join(sorted(allowed))}")


def _reduced(fn: str, x: Array, axes: tuple[int, ...], *, keep: bool) -> Array:
    """Reduce in the wide type of a narrow one, and round once."""
    dtype, wide = DType.from_numpy(x.dtype), widen(x)
    # with a type given, NumPy does not widen sums of integers
    result_type = np.bool_ if fn in ("any", "all") else wide.dtype
    with np.errstate(all="ignore"):
        out = _UFUNCS[fn].reduce(
            wide, axis=axes, keepdims=keep, dtype=result_type, initial=identity_of(fn, dtype)
        )
        if fn == "mean":
            out = _divided(out, int(np.prod([x.shape[a] for a in axes], dtype=np.int64)))
        return cast_array(np.asarray(out, result_type), dtype, saturate=False)


def _divided(total: Any, count: int) -> Any:
    if total.dtype.kind not in "iu":
        return total / total.dtype.type(count)
    if not count:
        return np.zeros_like(total)  # integers have no NaN
    whole = total if total.dtype == np.uint64 else np.asarray(total, np.int64)
    floor = whole // count
    return floor + ((whole < 0) & (whole % count != 0))  # towards zero, and without floats


@dataclass(frozen=True)
class Reduce(Op):
    """Combine all elements along some axes: out[i] = fn over j of x[i, j].

    A NaN among them is the result of sum, mean, prod, max and min. Over nothing, a sum is 0, a
    product 1, a mean NaN, a maximum the lowest value of the type (-inf where it has one) and a
    minimum the highest. Narrow floats accumulate in float32 and are rounded once; integers wrap,
    and their mean truncates (of nothing it is 0).

    Shapes: [..] -> the axes removed.

    Attributes:
        fn: sum, mean, prod, max or min of numbers; any, all, max or min of booleans.
        axes: counted from 0, ascending.
    """

    fn: ReduceFn
    axes: tuple[int, ...]

    def infer(self, ctx: InferContext, x: TensorType) -> TensorType:
        """Drop the axes."""
        _check_dtype(self.fn, x.dtype)
        for axis in self.axes:
            check_axis(axis, x.rank, "reduced axis")
        if list(self.axes) != sorted(set(self.axes)):
            raise ShapeError(f"reduced axes {self.axes} are not ascending")
        return TensorType(x.dtype, tuple(s for a, s in enumerate(x.shape) if a not in self.axes))

    def eval(self, ctx: EvalContext, x: Array) -> Array:
        """Reduce with NumPy."""
        return _reduced(self.fn, x, self.axes, keep=False)

    def content(self, *operands: Content) -> Content | None:
        """Combine sizes."""
        fold, (x,) = _CONTENT.get(self.fn), operands
        count = int(np.prod([x.shape[a] for a in self.axes]))
        if fold is None or (count == 0 and self.fn not in _IDENTITIES):
            return None
        if any(isinstance(e, (bool, Condition, Exact)) for e in x.ravel().tolist()):
            return None
        kept = [a for a in range(x.ndim) if a not in self.axes]
        out = np.empty([x.shape[a] for a in kept], object)
        rows = x.transpose([*kept, *self.axes]).reshape(out.size, count)
        out.reshape(-1)[:] = [fold(row) for row in rows.tolist()]
        return out

    def forward(self, operands: tuple[Value, ...]) -> Value | None:
        """Return the operand when no axis is reduced."""
        return operands[0] if not self.axes else None

    @property
    def title(self) -> str:
        """Return the function's name."""
        return f"reduce_{self.fn}"


@dataclass(frozen=True)
class ReduceTo(Op):
    """Combine elements along the axes that `shape` makes 1: the opposite of Broadcast.

    Serves reductions whose axes are only known at run time: then sizes of `shape` are data symbols.
    Numbers, NaN and reductions over nothing as in `Reduce`.

    Shapes: any -> `shape` of the same rank; each size stays, or becomes 1.

    Attributes:
        fn: how elements are combined.
        shape: the result's shape.
    """

    fn: ReduceFn
    shape: Shape

    def infer(self, ctx: InferContext, x: TensorType) -> TensorType:
        """Check each axis where both sizes are numbers; the rest shows at run time."""
        _check_dtype(self.fn, x.dtype)
        what = f"cannot reduce {format_shape(x.shape)} to {format_shape(self.shape)}"
        if x.rank != len(self.shape):
            raise ShapeError(f"{what}: the ranks differ")
        for axis, (n, m) in enumerate(zip(x.shape, self.shape, strict=True)):
            if isinstance(n, int) and isinstance(m, int) and m not in (1, n):
                raise ShapeError(f"{what}: axis {axis} has size {n}, it stays or becomes 1")
        return TensorType(x.dtype, self.shape)

    def eval(self, ctx: EvalContext, x: Array) -> Array:
        """Reduce the axes whose size changes."""
        shape = ctx.sizes(self.shape)
        axes = tuple(a for a, (n, m) in enumerate(zip(x.shape, shape, strict=True)) if n != m)
        if any(shape[a] != 1 for a in axes):
            raise ExecutionError(f"cannot reduce {list(x.shape)} to {list(shape)}")
        return _reduced(self.fn, x, axes, keep=True) if axes else x

    def forward(self, operands: tuple[Value, ...]) -> Value | None:
        """Return the operand when it has the shape already."""
        return operands[0] if operands[0].shape == self.shape else None

    @property
    def title(self) -> str:
        """Return the function's name."""
        return f"reduce_{self.fn}_to"


@dataclass(frozen=True)
class ArgReduce(Op):
    """The index of the largest or smallest element along an axis; a NaN counts as the extreme.

    Shapes: [.., n, ..] with n >= 1 -> int64, the axis removed.

    Attributes:
        axis: counted from 0.
        largest: the largest, else the smallest.
        last: of equal extremes (and of several NaNs) the last, else the first.
    """

    axis: int
    largest: bool
    last: bool = False

    def infer(self, ctx: InferContext, x: TensorType) -> TensorType:
        """Remove the axis."""
        if not (x.dtype.is_float or x.dtype.is_int):
            raise DTypeError(f"{x.dtype} has no extremes")
        check_axis(self.axis, x.rank, "reduced axis")
        ctx.require_ge(x.shape[self.axis], 1, f"an extreme along axis {self.axis} needs an element")
        return TensorType(DType.INT64, (*x.shape[: self.axis], *x.shape[self.axis + 1 :]))

    def eval(self, ctx: EvalContext, x: Array) -> Array:
        """Search with NumPy, which finds a NaN first."""
        wide, n = widen(x), x.shape[self.axis]
        if n == 0:
            raise ExecutionError(f"axis {self.axis} of {list(x.shape)} has no element to choose")
        find = np.argmax if self.largest else np.argmin
        if not self.last:
            return np.asarray(find(wide, axis=self.axis))
        reverse = np.asarray(find(np.flip(wide, self.axis), axis=self.axis))
        return np.asarray(n - 1 - reverse)


@dataclass(frozen=True)
class Det(Op):
    """Determinant of each matrix, by elimination with pivots.

    Narrow floats are computed in float32. The determinant of a matrix without rows is 1; a NaN or
    infinity in a matrix makes its determinant NaN or infinite.

    Shapes: float [.., n, n] -> [..].
    """

    def infer(self, ctx: InferContext, x: TensorType) -> TensorType:
        """Drop the last two axes."""
        if not x.dtype.is_float:
            raise DTypeError(f"the determinant is of floats, got {x.dtype}")
        if x.rank < 2:
            raise ShapeError(f"the determinant is of matrices, got {x}")
        ctx.require_eq(x.shape[-2], x.shape[-1], f"matrices {format_shape(x.shape)} are square")
        return TensorType(x.dtype, x.shape[:-2])

    def eval(self, ctx: EvalContext, x: Array) -> Array:
        """Call LAPACK."""
        dtype = DType.from_numpy(x.dtype)
        with np.errstate(all="ignore"):
            return cast_array(np.asarray(np.linalg.det(widen(x))), dtype, saturate=False)
