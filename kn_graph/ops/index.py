"""Positions as numbers, which index arithmetic starts from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kn_graph.dim import Size
from kn_graph.dtype import DType
from kn_graph.errors import DTypeError
from kn_graph.op import Content, EvalContext, InferContext, Op
from kn_graph.types import TensorType

__all__ = ["Iota"]


@dataclass(frozen=True)
class Iota(Op):
    """The integers from 0 on: out[i] = i.

    Shapes: no operands -> integer [length].

    Attributes:
        length: how many; may be 0.
        dtype: an integer type; numbers that it cannot hold wrap.
    """

    length: Size
    dtype: DType = DType.INT64

    def infer(self, ctx: InferContext) -> TensorType:
        """Return an axis of the length."""
        if not self.dtype.is_int:
            raise DTypeError(f"positions are integers, not {self.dtype}")
        ctx.require_ge(self.length, 0, "a length is not negative")
        return TensorType(self.dtype, (self.length,))

    def eval(self, ctx: EvalContext) -> np.ndarray[Any, Any]:
        """Count."""
        return np.arange(ctx.size(self.length)).astype(self.dtype.numpy)

    def content(self, *operands: Content) -> Content | None:
        """Count, where the length is a number."""
        return np.arange(self.length).astype(object) if isinstance(self.length, int) else None
