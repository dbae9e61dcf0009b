"""Random numbers that every device makes alike, in any order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from kn_graph.cast import cast_array
from kn_graph.dtype import DType
from kn_graph.errors import DTypeError
from kn_graph.op import EvalContext, InferContext, Op
from kn_graph.types import Shape, TensorType

__all__ = ["Distribution", "Random"]

Array = np.ndarray[Any, Any]
Distribution = Literal["uniform", "normal"]

SIGNIFICANT_BITS = {DType.FLOAT16: 11, DType.BFLOAT16: 8, DType.FLOAT32: 24, DType.FLOAT64: 53}


@dataclass(frozen=True)
class Random(Op):
    """Independent random numbers, from a counter-based stream of 32-bit words w (`random_bits`).

    uniform: out[i] in [0, 1), the first b bits of w[i] times 2**-b with b the significant bits of
    the type (float64: 27 bits of w[2i], then 26 of w[2i+1]).
    normal: mean 0, deviation 1: sqrt(-2 ln u) cos(2 pi v) with u = (w[2i] + 1/2) / 2**32 and
    v = w[2i+1] / 2**32, rounded once.

    Equal streams give equal numbers, so no two nodes share one. A node in a body that runs again
    goes on in its stream.

    Shapes: no operands -> `shape`.

    Attributes:
        distribution: uniform or normal.
        shape: of the result.
        dtype: a float type of at least 16 bits.
        stream: number of the stream, one a node.
        key: seed of the stream; None takes the seed of the run.
    """

    distribution: Distribution
    shape: Shape
    dtype: DType
    stream: int
    key: int | None = None

    pure = False

    def infer(self, ctx: InferContext) -> TensorType:
        """Return shape and type as given."""
        if self.dtype not in SIGNIFICANT_BITS:
            names = ", ".join(map(str, SIGNIFICANT_BITS))
            raise DTypeError(f"random numbers are one of {names}, not {self.dtype}")
        for size in self.shape:
            ctx.require_ge(size, 0, "a size is not negative")
        return TensorType(self.dtype, self.shape)

    def eval(self, ctx: EvalContext) -> Array:
        """Make words, then numbers."""
        shape = ctx.sizes(self.shape)
        count = int(np.prod(shape, dtype=np.int64))
        bits = SIGNIFICANT_BITS[self.dtype]
        if self.distribution == "normal":
            u, v = self._words(ctx, 2 * count).reshape(count, 2).T.astype(np.float64) * 2.0**-32
            numbers = np.sqrt(-2 * np.log(u + 2.0**-33)) * np.cos(2 * np.pi * v)
        elif bits > 32:
            high, low = self._words(ctx, 2 * count).reshape(count, 2).T
            numbers = ((high >> 5) * 2.0**26 + (low >> 6)) * 2.0**-53
        else:
            numbers = (self._words(ctx, count) >> (32 - bits)) * 2.0**-bits
        return cast_array(numbers.reshape(shape), self.dtype, saturate=False)

    def _words(self, ctx: EvalContext, count: int) -> Array:
        return np.asarray(ctx.random_bits(self.stream, count, self.key), np.uint32)
