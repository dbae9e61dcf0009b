"""The sum of overlapping windows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kn_graph.dim import Size, exact_div, floordiv, size_prod
from kn_graph.dtype import DType, Kind
from kn_graph.errors import DTypeError, ShapeError
from kn_graph.op import EvalContext, InferContext, Op
from kn_graph.ops.matmul import accumulator
from kn_graph.types import TensorType
from kn_graph.window import Pads, check_window, count_windows, window_counts

__all__ = ["Col2Im"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Col2Im(Op):
    """Add the elements of windows to the places of an image that they were taken from.

    out[n, c, o*stride - before + t*dilation] += x[n, (c, t), o] for each window o and each element
    t of it; what falls outside of the image is dropped. Narrow floats add in float32; integers
    wrap; a NaN spreads to its place; no windows give zeros.

    Shapes: x [N, C*prod(kernel), windows] -> [N, C, *image].

    Attributes:
        image: spatial sizes of the result.
        kernel: spatial sizes of a window.
        strides: step between windows, one number a spatial axis.
        dilations: step between elements of a window.
        pads: what the windows reach beyond the image (before, after) each axis.
    """

    image: tuple[Size, ...]
    kernel: tuple[Size, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: Pads

    def infer(self, ctx: InferContext, x: TensorType) -> TensorType:
        """Check that channels and windows add up."""
        rank = len(self.image)
        if x.rank != 3 or len(self.kernel) != rank:
            raise ShapeError(
                f"windows of {len(self.kernel)} axes in {x} for an image of {rank} axes: "
                "expected [N, C*prod(kernel), windows]"
            )
        if x.dtype.kind in (Kind.BOOL, Kind.STRING):
            raise DTypeError(f"windows of {x.dtype} cannot be added")
        check_window(ctx, rank, self.strides, self.dilations, self.pads)
        counts = window_counts(
            ctx, self.image, self.kernel, self.strides, self.dilations, self.pads
        )
        ctx.require_eq(x.shape[2], size_prod(counts), "number of windows")
        taps = size_prod(self.kernel)
        ctx.require_ge(taps, 1, "a window has elements")
        channels = exact_div(x.shape[1], taps)
        if channels is None:
            channels = floordiv(x.shape[1], taps)
            ctx.require_eq(channels * taps, x.shape[1], "channels times elements of a window")
        return TensorType(x.dtype, (x.shape[0], channels, *self.image))

    def eval(self, ctx: EvalContext, x: Array) -> Array:
        """Add one element of all windows after another."""
        dtype = DType.from_numpy(x.dtype)
        wide = x.dtype if dtype.kind is Kind.COMPLEX else accumulator(dtype)
        image, kernel = ctx.sizes(self.image), ctx.sizes(self.kernel)
        pads = [(ctx.size(b), ctx.size(a)) for b, a in self.pads]
        axes = list(zip(image, kernel, self.strides, self.dilations, pads, strict=True))
        counts = count_windows(image, kernel, self.strides, self.dilations, pads)
        channels = x.shape[1] // int(np.prod(kernel))
        columns: Any = x.reshape(x.shape[0], channels, *kernel, *counts).astype(wide, copy=False)
        # wide enough for every window; the image is a part of it
        padded = [max(n + b + a, 0) for n, _, _, _, (b, a) in axes]
        out: Any = np.zeros((x.shape[0], channels, *padded), wide)
        if out.size:
            for tap in np.ndindex(*kernel):
                places = [
                    slice(t * d, t * d + (c - 1) * s + 1 if c else t * d, s)
                    for t, c, (_, _, s, d, _) in zip(tap, counts, axes, strict=True)
                ]
                out[(..., *places)] += columns[(slice(None), slice(None), *tap)]
        inner = tuple(slice(b, b + n) for n, _, _, _, (b, _) in axes)
        result: Array = out[(..., *inner)].astype(x.dtype)
        return result
