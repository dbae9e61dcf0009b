"""Reductions over axes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any, Literal

import ml_dtypes
import numpy as np

from kn_graph.condition import Condition
from kn_graph.dim import size_max, size_min
from kn_graph.dtype import DType, Kind
from kn_graph.errors import DTypeError
from kn_graph.op import Content, EvalContext, InferContext, Op
from kn_graph.ops.layout import check_axis
from kn_graph.scalar import widen
from kn_graph.types import TensorType

if TYPE_CHECKING:
    from kn_graph.value import Value

__all__ = ["ArgReduce", "Reduce", "ReduceFn"]

Array = np.ndarray[Any, Any]
ReduceFn = Literal["sum", "mean", "prod", "max", "min", "any", "all"]


@dataclass(frozen=True)
class Reduce(Op):
    """Combine all elements along some axes.

    A NaN among them is the result of sum, mean, prod, max and min. Over nothing, a sum is 0, a
    product 1, a mean NaN, a maximum -inf and a minimum inf, or the limits of an integer type.
    float16 and bfloat16 accumulate in float32; integers wrap; the mean of integers truncates.

    Shapes: [..] -> the axes removed.

    Attributes:
        fn: sum, mean, prod, max or min of numbers; any, all, max or min of booleans.
        axes: counted from 0, ascending.
    """

    fn: ReduceFn
    axes: tuple[int, ...]

    def infer(self, ctx: InferContext, x: TensorType) -> TensorType:
        """Remove the axes."""
        for axis in self.axes:
            check_axis(axis, x.rank, "reduced axis")
        allowed = _BOOL_FNS if x.dtype is DType.BOOL else _NUMBER_FNS
        if self.fn not in allowed or x.dtype is DType.STRING:
            raise DTypeError(
                f"{self.fn} of {x.dtype}: expected one of {', '.join(sorted(allowed))}"
            )
        return TensorType(x.dtype, tuple(s for a, s in enumerate(x.shape) if a not in self.axes))

    def eval(self, ctx: EvalContext, x: Array) -> Array:
        """Reduce with NumPy."""
        with np.errstate(all="ignore"):
            return np.asarray(_REDUCE[self.fn](x, self.axes))

    def content(self, *operands: Content) -> Content | None:
        """Combine sizes."""
        fold = _CONTENT.get(self.fn)
        (x,) = operands
        if fold is None or any(isinstance(e, (bool, Condition)) for e in x.ravel().tolist()):
            return None
        kept = [a for a in range(x.ndim) if a not in self.axes]
        rows = x.transpose(*kept, *self.axes).reshape(*(x.shape[a] for a in kept), -1)
        out = np.empty(rows.shape[:-1], object)
        for index in np.ndindex(out.shape):
            elements = rows[index].tolist()
            if not elements and self.fn not in ("sum", "prod"):
                return None
            out[index] = fold(elements)
        return out

    def forward(self, operands: tuple[Value, ...]) -> Value | None:
        """Return the operand when no axis is reduced."""
        return None if self.axes else operands[0]

    @property
    def title(self) -> str:
        """Return the function with its kind."""
        return f"reduce_{self.fn}"


_NUMBER_FNS = frozenset({"sum", "mean", "prod", "max", "min"})
_BOOL_FNS = frozenset({"any", "all", "max", "min"})
_CONTENT: dict[str, Callable[[list[Any]], Any]] = {
    "sum": lambda sizes: reduce(lambda a, b: a + b, sizes, 0),
    "prod": lambda sizes: reduce(lambda a, b: a * b, sizes, 1),
    "max": lambda sizes: size_max(*sizes),
    "min": lambda sizes: size_min(*sizes),
}


def _accumulated(f: Callable[..., Any]) -> Callable[[Array, tuple[int, ...]], Any]:
    """Reduce in the wide type of a narrow one, and round once."""

    def compute(x: Array, axes: tuple[int, ...]) -> Any:
        wide = widen(x)
        return np.asarray(f(wide, axis=axes, dtype=wide.dtype)).astype(x.dtype)

    return compute


def _mean(x: Array, axes: tuple[int, ...]) -> Any:
    count = int(np.prod([x.shape[a] for a in axes], dtype=np.int64))
    wide = widen(x)
    total = np.sum(wide, axis=axes, dtype=wide.dtype)
    if DType.from_numpy(x.dtype).is_int:
        return (
            np.asarray(np.trunc(total / count)).astype(x.dtype) if count else np.zeros_like(total)
        )
    return np.asarray(np.true_divide(total, count)).astype(x.dtype)


def _extreme(f: Any, lowest: bool) -> Callable[[Array, tuple[int, ...]], Any]:
    def compute(x: Array, axes: tuple[int, ...]) -> Any:
        wide = widen(x)
        return np.asarray(f(wide, axis=axes, initial=_limit(wide.dtype, lowest))).astype(x.dtype)

    return compute


def _limit(dtype: np.dtype[Any], lowest: bool) -> Any:
    """The identity of a maximum (the lowest value) or a minimum."""
    kind = DType.from_numpy(dtype).kind
    if kind is Kind.BOOL:
        return not lowest
    if kind is Kind.FLOAT:
        return -np.inf if lowest else np.inf
    info = ml_dtypes.iinfo(dtype)
    return dtype.type(info.min if lowest else info.max)


_REDUCE: dict[str, Callable[[Array, tuple[int, ...]], Any]] = {
    "sum": _accumulated(np.sum),
    "prod": _accumulated(np.prod),
    "mean": _mean,
    "max": _extreme(np.max, lowest=True),
    "min": _extreme(np.min, lowest=False),
    "any": lambda x, axes: np.any(x, axis=axes),
    "all": lambda x, axes: np.all(x, axis=axes),
}


@dataclass(frozen=True)
class ArgReduce(Op):
    """The index of the largest or smallest element along an axis; of the first NaN if there is one.

    Shapes: [.., n, ..] with n >= 1 -> int64, the axis removed.

    Attributes:
        axis: counted from 0.
        largest: the largest, else the smallest.
        last: of equal extremes the last, else the first.
    """

    axis: int
    largest: bool
    last: bool = False

    def infer(self, ctx: InferContext, x: TensorType) -> TensorType:
        """Remove the axis."""
        check_axis(self.axis, x.rank, "reduced axis")
        ctx.require_ge(x.shape[self.axis], 1, "an extreme needs an element")
        return TensorType(DType.INT64, (*x.shape[: self.axis], *x.shape[self.axis + 1 :]))

    def eval(self, ctx: EvalContext, x: Array) -> Array:
        """Search with NumPy, which finds a NaN first."""
        wide = widen(x)
        find = np.argmax if self.largest else np.argmin
        if not self.last:
            return np.asarray(find(wide, axis=self.axis))
        reverse = np.asarray(find(np.flip(wide, self.axis), axis=self.axis))
        return x.shape[self.axis] - 1 - reverse
