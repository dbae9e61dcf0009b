"""Building methods of the quantize family: all are composed of exact elementwise steps.

There is no quantize operation in the IR. Rounding to integers is a division, a rounding to even, an
addition, a clamp and a cast, each exact in float32; planners fuse such chains. Integer products
accumulate in int32, zero points are subtracted from the weights or from the accumulated sum.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from kn_graph.builder.base import Builder
from kn_graph.dtype import DType, DTypeLike, Kind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kn_graph.dim import Size
    from kn_graph.value import Value

__all__ = ["QuantizeBuilder", "integer_range", "is_zero"]

LOOKED_AT_ELEMS = 4096
"""Larger constants are not read while a graph is built: they may be mapped from a file."""


def integer_range(dtype: DType) -> tuple[int, int]:
    """Return the least and the greatest number of an integer type."""
    if dtype.kind is Kind.UINT:
        return 0, (1 << dtype.bits) - 1
    return -(1 << (dtype.bits - 1)), (1 << (dtype.bits - 1)) - 1


def is_zero(x: Value | None) -> bool:
    """Return whether a zero point is missing or known to be 0."""
    if x is None:
        return True
    array = x.constant
    return (
        array is not None and array.size <= LOOKED_AT_ELEMS and not array.astype(np.float32).any()
    )


class QuantizeBuilder(Builder):
    """See the module. Scales and zero points are broadcast to what they belong to."""

    def quantize(
        self,
        x: Value,
        scale: Value,
        zero_point: Value | None = None,
        *,
        dtype: DTypeLike = DType.UINT8,
        saturate: bool = True,
        precision: DTypeLike = DType.FLOAT32,
    ) -> Value:
        """Round x / scale to `dtype` and add the zero point (ONNX QuantizeLinear).

        Integers: halves round to even, the sum is cut to the range of the type, and a NaN becomes
        its least number. Floats: the sum is rounded as `cast` does.

        Args:
            x: floats or int32.
            scale: floats of any type.
            zero_point: of type `dtype`.
            dtype: an integer of at most 16 bits, or a float of at most 8.
            saturate: see `Cast`.
            precision: the type that the division is rounded to.
        """
        quotient = self.binary("div", self.cast(x, precision), self.cast(scale, precision))
        return self._rounded(quotient, zero_point, DType.of(dtype), saturate)

    def requantize(
        self, x: Value, scale: Value, zero_point: Value | None, *, dtype: DTypeLike
    ) -> Value:
        """Round x * scale to an integer type and add the zero point; x is an int32 sum."""
        product = self.binary("mul", self.cast(x, DType.FLOAT32), scale)
        return self._rounded(product, zero_point, DType.of(dtype), saturate=True)

    def _rounded(self, x: Value, zero_point: Value | None, dtype: DType, saturate: bool) -> Value:
        # halves of integers and the sum with a zero point need more than half precision
        x = self.cast(x, DType.FLOAT64 if x.dtype is DType.FLOAT64 else DType.FLOAT32)
        if dtype.is_int:
            x = self.unary("round_even", x)
        if not is_zero(zero_point):
            assert zero_point is not None
            x = self.binary("add", x, self.cast(zero_point, x.dtype))
        return self.clamp_cast(x, dtype) if dtype.is_int else self.cast(x, dtype, saturate=saturate)

    def clamp_cast(self, x: Value, dtype: DTypeLike) -> Value:
        """Cut floats to the range of an integer type and convert; a NaN becomes the least number.

        Exact for types of at most 16 bits.
        """
        low, high = (self.scalar(bound, x.dtype) for bound in integer_range(DType.of(dtype)))
        x = self.select(self.compare("gt", x, low), x, low)
        return self.cast(self.binary("min", x, high), dtype)

    def dequantize(
        self,
        x: Value,
        scale: Value,
        zero_point: Value | None = None,
        *,
        dtype: DTypeLike = DType.FLOAT32,
    ) -> Value:
        """Return (x - zero_point) * scale in `dtype` (ONNX DequantizeLinear).

        The difference is exact (32-bit integers wrap), the product computed in float32 and rounded
        once.
        """
        if x.dtype.is_int and x.dtype.bits >= 32:
            if not is_zero(zero_point):
                assert zero_point is not None
                x = self.binary("sub", x, zero_point)
            zero_point = None
        x = self.cast(x, DType.FLOAT32)
        if not is_zero(zero_point):
            assert zero_point is not None
            x = self.binary("sub", x, self.cast(zero_point, DType.FLOAT32))
        return self.cast(self.binary("mul", x, self.cast(scale, DType.FLOAT32)), dtype)

    def dynamic_quantize(self, x: Value) -> tuple[Value, Value, Value]:
        """Quantize float32 to uint8 by its own range, widened to contain 0.

        Returns:
            The uint8 tensor, its scale [] and its zero point [] (ONNX DynamicQuantizeLinear). The
            scale of a tensor that is 0 or empty is 1.
        """
        axes = tuple(range(x.rank))
        zero = self.scalar(0, x.dtype)
        low = self.binary("min", self.reduce("min", x, axes), zero)
        high = self.binary("max", self.reduce("max", x, axes), zero)
        span = self.binary("sub", high, low)
        step = self.binary("div", span, self.scalar(255, x.dtype))
        scale = self.select(self.compare("eq", span, zero), self.scalar(1, x.dtype), step)
        # what is rounded lies in the range already, as far as it is a number
        shift = self.unary("round_even", self.binary("div", self.unary("neg", low), scale))
        zero_point = self.clamp_cast(shift, DType.UINT8)
        return self.quantize(x, scale, zero_point), scale, zero_point

    def matmul_integer(
        self,
        x: Value,
        y: Value,
        x_zero_point: Value | None = None,
        y_zero_point: Value | None = None,
    ) -> Value:
        """Multiply 8-bit matrices, less their zero points, to int32; sums wrap.

        Args:
            x: [.., m, k].
            y: [.., k, n].
            x_zero_point: broadcast to x, equal along k.
            y_zero_point: broadcast to y, equal along k.
        """
        y = self.centered(y, y_zero_point)
        product = self.matmul(x, y, out_dtype=DType.INT32)
        if is_zero(x_zero_point):
            return product
        assert x_zero_point is not None
        columns = self.reduce("sum", self.cast(y, DType.INT32), (y.rank - 2,), keep=True)
        shift = self.binary("mul", self.cast(x_zero_point, DType.INT32), columns)
        return self.binary("sub", product, shift)

    def conv_integer(
        self,
        x: Value,
        w: Value,
        x_zero_point: Value | None = None,
        w_zero_point: Value | None = None,
        *,
        strides: Sequence[int] | None = None,
        dilations: Sequence[int] | None = None,
        pads: Sequence[tuple[Size, Size]] | None = None,
        groups: int = 1,
    ) -> Value:
        """Convolve 8-bit tensors, less their zero points, to int32; sums wrap.

        What is padded counts as zero: as the zero point of x.

        Args:
            x: [N, C, *spatial].
            w: [M, C/groups, *kernel].
            x_zero_point: of rank 0.
            w_zero_point: of rank 0, or [M].
            strides: as in `conv`.
            dilations: as in `conv`.
            pads: as in `conv`.
            groups: as in `conv`.
        """
        if is_zero(w_zero_point):  # before a view hides it
            w_zero_point = None
        if w_zero_point is not None and w_zero_point.rank:
            w_zero_point = self.view(w_zero_point, (*w_zero_point.shape, *(1,) * (w.rank - 1)))
        w = self.centered(w, w_zero_point)
        shift = None
        if not is_zero(x_zero_point):
            assert x_zero_point is not None
            x = self.pad(
                x, [(0, 0), (0, 0), *(pads or [(0, 0)] * (x.rank - 2))], value=x_zero_point
            )
            pads = None
            taps = self.reduce("sum", self.cast(w, DType.INT32), range(1, w.rank), keep=False)
            shift = self.binary("mul", self.cast(x_zero_point, DType.INT32), taps)
        window: dict[str, Any] = {"strides": strides, "dilations": dilations, "pads": pads}
        out = self.conv(x, w, groups=groups, out_dtype=DType.INT32, **window)
        return out if shift is None else self.binary("sub", out, self.channels(shift, out.rank))

    def centered(self, x: Value, zero_point: Value | None) -> Value:
        """Return x less its zero point: as it is where that is 0, else in 16 bits."""
        if is_zero(zero_point):
            return x
        assert zero_point is not None
        return self.binary("sub", self.cast(x, DType.INT16), self.cast(zero_point, DType.INT16))
