"""Fourier transforms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kn_graph.dim import Size, floordiv
from kn_graph.dtype import DType
from kn_graph.errors import DTypeError, ShapeError
from kn_graph.op import EvalContext, InferContext, Op
from kn_graph.ops.layout import check_axis
from kn_graph.ops.matmul import accumulator
from kn_graph.types import TensorType, format_shape

__all__ = ["Dft"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Dft(Op):
    """Discrete Fourier transform of an axis; the last axis holds real and imaginary parts.

    With x cut or filled with zeros to N elements: y[k] = sum over n of exp(-2 pi i k n / N) x[n],
    or for the inverse x[n] = 1/N * sum over k of exp(2 pi i k n / N) y[k]. A last axis of size 1
    means that the imaginary parts are 0. One half of the spectrum of real numbers follows from the
    other: `onesided` takes just elements 0 to N//2, and inverse fills in the others and gives real
    numbers. Narrow floats compute in float32. A NaN spreads along the axis. An empty axis counts
    as zeros.

    Shapes: [.., n, .., 1 or 2] -> [.., N, .., 2]; onesided [.., n, .., 1] -> [.., N//2 + 1, .., 2],
    and its inverse [.., n, .., 2] -> [.., N, .., 1].

    Attributes:
        axis: which one; not the last.
        length: N, at least 1.
        inverse: compute the inverse.
        onesided: the spectrum is that of real numbers, and only half of it.
    """

    axis: int
    length: Size
    inverse: bool = False
    onesided: bool = False

    def infer(self, ctx: InferContext, x: TensorType) -> TensorType:
        """Replace the size of the axis and the number of parts."""
        check_axis(self.axis, x.rank - 1, "transformed axis")
        if not x.dtype.is_float:
            raise DTypeError(f"a Fourier transform of {x.dtype}")
        parts = x.shape[-1]
        if parts not in (1, 2):
            raise ShapeError(
                f"the last axis of {format_shape(x.shape)} must hold real and imaginary parts"
            )
        if self.onesided and parts != (2 if self.inverse else 1):
            kind = "complex" if self.inverse else "real"
            raise ShapeError(f"onesided needs {kind} numbers, got {format_shape(x.shape)}")
        ctx.require_ge(self.length, 1, "length of a Fourier transform")
        half = self.onesided and not self.inverse
        shape = list(x.shape)
        shape[self.axis] = floordiv(self.length, 2) + 1 if half else self.length
        shape[-1] = 1 if self.onesided and self.inverse else 2
        return TensorType(x.dtype, tuple(shape))

    def eval(self, ctx: EvalContext, x: Array) -> Array:
        """Transform with NumPy's FFT."""
        wide = x.astype(accumulator(DType.from_numpy(x.dtype)), copy=False)
        signal = wide[..., 0] if x.shape[-1] == 1 else wide[..., 0] + 1j * wide[..., 1]
        transform: Any = np.fft.ifft if self.inverse else np.fft.fft
        if self.onesided:
            transform = np.fft.irfft if self.inverse else np.fft.rfft
        with np.errstate(all="ignore"):
            out = transform(signal, n=ctx.size(self.length), axis=self.axis)
            parts = [out] if self.onesided and self.inverse else [out.real, out.imag]
            return np.stack(parts, axis=-1).astype(x.dtype)
