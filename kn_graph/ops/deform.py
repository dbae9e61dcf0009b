"""Deformable convolution: a convolution that samples its input beside the grid."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from kn_graph.dim import size_prod
from kn_graph.dtype import DType
from kn_graph.errors import DTypeError, ShapeError
from kn_graph.op import EvalContext, InferContext, Op
from kn_graph.ops.conv import grouped_channels, grouped_product
from kn_graph.ops.matmul import accumulator
from kn_graph.types import TensorType
from kn_graph.window import Pads, check_window, count_windows, window_counts

__all__ = ["DeformConv"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class DeformConv(Op):
    """Convolution with an offset, and optionally a weight, for each element of each window.

    out[n, m, o] = sum over c and t of w[m, c, t] * mask[n, t, o] * x(n, g*C/G + c, p) with
    p = o*stride - before + t*dilation + offset[n, t, :, o]. Between the elements of x there is
    linear interpolation along each axis, outside of x there are zeros. Narrow floats compute in
    float32. A NaN position reads as zeros; NaN in x spreads to every sample beside it.

    Shapes: with K = prod(kernel) and r spatial axes, x [N, C, *spatial], w [M, C/groups, *kernel],
    offset [N, offset_groups*K*r, *windows], mask (optional) [N, offset_groups*K, *windows]
    -> [N, M, *windows].

    Attributes:
        strides: step between windows, one number a spatial axis.
        dilations: step between elements of a window.
        pads: zeros (before, after) each spatial axis.
        groups: parts that the channels are cut into for the weights.
        offset_groups: parts that the channels are cut into for offsets and mask.
    """

    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: Pads
    groups: int = 1
    offset_groups: int = 1

    def infer(
        self,
        ctx: InferContext,
        x: TensorType,
        w: TensorType,
        offset: TensorType,
        mask: TensorType | None = None,
    ) -> TensorType:
        """Check channels, windows and the shapes of offset and mask."""
        if x.rank < 3 or x.rank != w.rank:
            raise ShapeError(f"deformable conv of {x} with weights {w}: expected equal ranks >= 3")
        rank, kernel = x.rank - 2, w.shape[2:]
        check_window(ctx, rank, self.strides, self.dilations, self.pads)
        each = grouped_channels(ctx, x.shape[1], self.groups, "input channels")
        grouped_channels(ctx, w.shape[0], self.groups, "output channels")
        grouped_channels(ctx, x.shape[1], self.offset_groups, "input channels (by offset)")
        ctx.require_eq(w.shape[1], each, "the channels of a group that weights and input have")
        counts = window_counts(ctx, x.shape[2:], kernel, self.strides, self.dilations, self.pads)
        taps = size_prod(kernel) * self.offset_groups
        extras = [("offset", offset, taps * rank)]
        if mask is not None:
            extras.append(("mask", mask, taps))
        for name, t, channels in extras:
            if t.rank != x.rank:
                raise ShapeError(f"the {name} must have rank {x.rank}, got {t}")
            expected = (x.shape[0], channels, *counts)
            for axis, (a, b) in enumerate(zip(t.shape, expected, strict=True)):
                ctx.require_eq(a, b, f"deformable conv: axis {axis} of the {name}")
        for t in (w, *(t for _, t, _ in extras)):
            if t.dtype is not x.dtype or not x.dtype.is_float:
                raise DTypeError(f"deformable conv of {x.dtype} with an operand of {t.dtype}")
        return TensorType(x.dtype, (x.shape[0], w.shape[0], *counts))

    def eval(
        self, ctx: EvalContext, x: Array, w: Array, offset: Array, mask: Array | None = None
    ) -> Array:
        """Sample the windows as columns and multiply, image by image."""
        wide = accumulator(DType.from_numpy(x.dtype))
        kernel = w.shape[2:]
        pads = [(ctx.size(b), ctx.size(a)) for b, a in self.pads]
        counts = count_windows(x.shape[2:], kernel, self.strides, self.dilations, pads)
        grid = self._grid(kernel, counts, [b for b, _ in pads])
        out = np.zeros((x.shape[0], w.shape[0], *counts), wide)
        weights = w.astype(wide, copy=False)
        points = int(np.prod(counts, dtype=np.int64))
        taps = int(np.prod(kernel, dtype=np.int64))
        if not out.size:
            return out.astype(x.dtype)
        with np.errstate(all="ignore"):
            for n, target in enumerate(out):
                image = x[n].astype(wide, copy=False)
                shifts = offset[n].astype(wide).reshape(self.offset_groups, taps, -1, points)
                columns = self._sample(image, grid + np.moveaxis(shifts, 2, 0))
                if mask is not None:
                    factors = mask[n].astype(wide).reshape(self.offset_groups, 1, taps, points)
                    columns = columns * factors
                columns = columns.reshape(x.shape[1], taps, points)
                target[...] = grouped_product(weights, columns, self.groups).reshape(target.shape)
        return np.asarray(out.astype(x.dtype))

    def _grid(self, kernel: tuple[int, ...], counts: tuple[int, ...], befores: list[int]) -> Array:
        """Return the position of each sample before its offset: [axis, 1, tap, window]."""
        taps = np.indices(kernel).reshape(len(kernel), 1, -1, 1)
        windows = np.indices(counts).reshape(len(kernel), 1, 1, -1)
        strides, dilations, shift = (
            np.reshape(v, (-1, 1, 1, 1)) for v in (self.strides, self.dilations, befores)
        )
        return np.asarray(windows * strides - shift + taps * dilations)

    def _sample(self, image: Array, position: Array) -> Array:
        """Interpolate [C, *spatial] at [axis, G, tap, window]: [G, C/G, tap, window]."""
        spatial = image.shape[1:]
        if not image.size:
            channels = image.shape[0] // self.offset_groups
            return np.zeros((self.offset_groups, channels, *position.shape[2:]), image.dtype)
        grouped = image.reshape(self.offset_groups, -1, *spatial)
        limits = np.reshape(spatial, (-1, *(1,) * (position.ndim - 1)))
        floor = np.floor(np.clip(np.nan_to_num(position, nan=-2), -2, limits + 1)).astype(np.int64)
        fraction = (position - floor).astype(image.dtype)
        total = np.zeros((*grouped.shape[:2], *position.shape[2:]), image.dtype)
        group: Any = np.arange(self.offset_groups)[:, None, None]
        for corner in product((0, 1), repeat=len(spatial)):
            step = np.reshape(corner, limits.shape)
            at = floor + step
            inside = np.all((at >= 0) & (at < limits), axis=0)
            share = np.prod(np.where(step == 1, fraction, 1 - fraction), axis=0)
            index = tuple(np.where(inside, a, 0) for a in at)
            values = np.moveaxis(grouped[(group, slice(None), *index)], -1, 1)
            weighted = values * np.where(inside, share, 0)[:, None]
            total += np.where(inside[:, None], weighted, 0)
        return total
