"""Building methods for signals: Fourier transforms and windows."""

from __future__ import annotations

from collections.abc import Sequence
from math import tau
from typing import TYPE_CHECKING

import numpy as np

from kn_graph.builder.base import Builder, normalize_axis
from kn_graph.dim import Size, floordiv, size_max
from kn_graph.dtype import DType, DTypeLike
from kn_graph.errors import ShapeError
from kn_graph.ops.signal import Dft

if TYPE_CHECKING:
    from kn_graph.value import Value

__all__ = ["SignalBuilder"]


class SignalBuilder(Builder):
    """See the module."""

    def dft(
        self,
        x: Value,
        axis: int,
        length: Size | None = None,
        *,
        inverse: bool = False,
        onesided: bool = False,
    ) -> Value:
        """Take the discrete Fourier transform along an axis; see `Dft`.

        Args:
            x: [.., n, .., 1 or 2], the last axis for real and imaginary parts.
            axis: not the last.
            length: of the signal; by default n, or 2*(n - 1) for the inverse of half a spectrum.
            inverse: take the inverse.
            onesided: keep half of the spectrum of real numbers, or take the inverse of that.
        """
        at = normalize_axis(axis, x.rank)
        if length is None:
            n = x.shape[at]
            length = 2 * (n - 1) if inverse and onesided else n
        return self.push(Dft(at, length, inverse, onesided), x)

    def stft(
        self,
        x: Value,
        step: Size,
        window: Value | None = None,
        length: Size | None = None,
        *,
        onesided: bool = True,
    ) -> Value:
        """Take Fourier transforms of windows of a signal.

        Args:
            x: [batch, n, 1 or 2].
            step: from one window to the next.
            window: factors of the elements of each window, [length].
            length: of a window; by default that of `window`, or n.
            onesided: keep half of the spectrum of real numbers.

        Returns:
            [batch, windows, length or length//2 + 1, 2].
        """
        if x.rank != 3:
            raise ShapeError(f"a signal is [batch, n, 1 or 2], got {x.type}")
        n = x.shape[1]
        if window is not None:
            if window.rank != 1:
                raise ShapeError(f"a window has one axis, got {window.type}")
            length = window.shape[0] if length is None else length
            self.require_eq(window.shape[0], length, "length of the window and of a frame")
        length = n if length is None else length
        self.require_ge(step, 1, "step between frames")
        self.require_ge(n, length, "a frame fits into the signal")
        frames = floordiv(n - length, step) + 1
        starts = self.binary("mul", self.iota(frames), self.size_tensor(np.array(step, object)))
        places = self.binary("add", self.unsqueeze(starts, [1]), self.iota(length))
        x = self.gather(x, places, 1)
        if window is not None:
            x = self.binary("mul", x, self.unsqueeze(window, [1]))
        return self.dft(x, 2, onesided=onesided)

    def cosine_window(
        self, length: Size, weights: Sequence[float], dtype: DTypeLike, *, periodic: bool = True
    ) -> Value:
        """Return a window: the sum over k of weights[k] * cos(k * 2 pi i / N) for i < length.

        Args:
            length: number of elements.
            weights: of the harmonics.
            dtype: element type; computed in float64.
            periodic: N is the length, or else one less (at least 1).
        """
        period = length if periodic else size_max(length - 1, 1)
        wide = self.cast(self.size_tensor(np.array(period, object)), DType.FLOAT64)
        turns = self.binary("div", self.cast(self.iota(length), DType.FLOAT64), wide)
        total = self.broadcast(self.scalar(weights[0], DType.FLOAT64), turns.shape)
        for k, weight in enumerate(weights[1:], 1):
            angle = self.binary("mul", turns, self.scalar(k * tau, DType.FLOAT64))
            term = self.binary("mul", self.unary("cos", angle), self.scalar(weight, DType.FLOAT64))
            total = self.binary("add", total, term)
        return self.cast(total, dtype)
