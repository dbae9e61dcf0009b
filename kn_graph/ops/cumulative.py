"""Running sums and products."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from kn_graph.cast import cast_array
from kn_graph.dtype import DType
from kn_graph.errors import DTypeError
from kn_graph.op import EvalContext, InferContext, Op
from kn_graph.ops.layout import check_axis
from kn_graph.ops.reduce import identity_of
from kn_graph.scalar import widen
from kn_graph.types import TensorType

__all__ = ["Cumulative", "CumulativeFn"]

Array = np.ndarray[Any, Any]
CumulativeFn = Literal["sum", "prod"]

_UFUNCS: dict[str, np.ufunc] = {"sum": np.add, "prod": np.multiply}


@dataclass(frozen=True)
class Cumulative(Op):
    """Sums or products of the first elements of an axis: out[i] = fn over j <= i of x[j].

    Narrow floats accumulate in float32 and are rounded once an element; integers wrap. A NaN
    spreads to all later results. An empty axis stays empty.

    Shapes: unchanged.

    Attributes:
        fn: sum or prod.
        axis: counted from 0.
        exclusive: take j < i; the first result is then 0 or 1.
        reverse: run from the end: j >= i (or j > i).
    """

    fn: CumulativeFn
    axis: int
    exclusive: bool = False
    reverse: bool = False

    def infer(self, ctx: InferContext, x: TensorType) -> TensorType:
        """Return the operand's type."""
        if not (x.dtype.is_float or x.dtype.is_int):
            raise DTypeError(f"cumulative {self.fn} needs numbers, got {x.dtype}")
        check_axis(self.axis, x.rank, "cumulative axis")
        return x

    def eval(self, ctx: EvalContext, x: Array) -> Array:
        """Accumulate with NumPy."""
        wide = widen(np.flip(x, self.axis) if self.reverse else x)
        if self.exclusive:
            wide = self._shifted(wide)
        with np.errstate(all="ignore"):
            out = _UFUNCS[self.fn].accumulate(wide, axis=self.axis, dtype=wide.dtype)
            out = cast_array(out, DType.from_numpy(x.dtype), saturate=False)
        return np.flip(out, self.axis) if self.reverse else out

    def _shifted(self, x: Array) -> Array:
        """Put the identity in front and drop the last element."""
        before = (slice(None),) * self.axis
        first = np.full_like(
            x[(*before, slice(1))], identity_of(self.fn, DType.from_numpy(x.dtype))
        )
        return np.concatenate([first, x[(*before, slice(-1))]], self.axis)

    @property
    def title(self) -> str:
        """Return the function with its kind."""
        return f"cumulative_{self.fn}"
