"""Convolution and its transpose."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kn_graph.cast import cast_array
from kn_graph.dim import Size, exact_div
from kn_graph.dtype import DType
from kn_graph.errors import ShapeError
from kn_graph.op import EvalContext, InferContext, Op
from kn_graph.ops.matmul import accumulator, product_type
from kn_graph.types import TensorType
from kn_graph.window import (
    Pads,
    check_window,
    count_windows,
    pad_windows,
    transposed_size,
    window_counts,
    window_view,
)

__all__ = ["Conv", "ConvTranspose", "grouped_channels", "grouped_product"]

Array = np.ndarray[Any, Any]


def grouped_channels(ctx: InferContext, channels: Size, groups: int, what: str) -> Size:
    """Return how many channels a group has.

    Raises:
        ShapeError: the groups do not divide the channels.
    """
    if groups < 1:
        raise ShapeError(f"groups must be at least 1, got {groups}")
    each = exact_div(channels, groups)
    if each is None:
        if isinstance(channels, int):
            raise ShapeError(f"{groups} groups do not divide {channels} {what}")
        each = channels // groups
        ctx.require_eq(each * groups, channels, f"{groups} groups divide the {what}")
    return each


def _spatial_rank(x: TensorType, w: TensorType, what: str) -> int:
    if x.rank < 2 or x.rank != w.rank:
        raise ShapeError(
            f"{what} of {x} with weights {w}: expected [N, C, *spatial] and weights of equal rank"
        )
    return x.rank - 2


def grouped_product(w: Array, columns: Array, groups: int) -> Array:
    """Return [M, P], the product of weights [M, C/G, *k] with columns [C, *k, P] in G groups."""
    outputs, points = w.shape[0], columns.shape[-1]
    if not (columns.size and w.size):
        return np.zeros((outputs, points), columns.dtype)
    left = w.reshape(groups, outputs // groups, -1)
    product: Array = np.matmul(left, columns.reshape(groups, -1, points))
    return product.reshape(outputs, points)


@dataclass(frozen=True)
class Conv(Op):
    """Convolution (a correlation, as everywhere in machine learning) over any number of axes.

    out[n, m, o] = sum over c and t of w[m, c, t] * x[n, g*C/G + c, o*stride - before + t*dilation]
    with g the group of m; x is 0 in the padding. Narrow floats accumulate in float32, integers
    wrap. NaN spreads to every window that touches it. Without channels the result is 0.

    Shapes: x [N, C, *spatial], w [M, C/groups, *kernel] -> [N, M, *windows].

    Attributes:
        strides: step between windows, one number a spatial axis.
        dilations: step between elements of a window.
        pads: zeros (before, after) each spatial axis.
        groups: parts that the channels are cut into; each sees its own part only.
        out_dtype: element type of the result, where it is wider than that of the operands.
    """

    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: Pads
    groups: int = 1
    out_dtype: DType | None = None

    def infer(self, ctx: InferContext, x: TensorType, w: TensorType) -> TensorType:
        """Check channels and windows."""
        dtype = product_type(x.dtype, w.dtype, self.out_dtype, "conv")
        check_window(ctx, _spatial_rank(x, w, "conv"), self.strides, self.dilations, self.pads)
        each = grouped_channels(ctx, x.shape[1], self.groups, "input channels")
        grouped_channels(ctx, w.shape[0], self.groups, "output channels")
        ctx.require_eq(w.shape[1], each, "the channels of a group that weights and input have")
        kernel = w.shape[2:]
        counts = window_counts(ctx, x.shape[2:], kernel, self.strides, self.dilations, self.pads)
        return TensorType(dtype, (x.shape[0], w.shape[0], *counts))

    def eval(self, ctx: EvalContext, x: Array, w: Array) -> Array:
        """Gather the windows as columns and multiply, image by image."""
        result = self.out_dtype or DType.from_numpy(x.dtype)
        wide = accumulator(result)
        kernel = w.shape[2:]
        pads = [(ctx.size(b), ctx.size(a)) for b, a in self.pads]
        counts = count_windows(x.shape[2:], kernel, self.strides, self.dilations, pads)
        weights = w.astype(wide, copy=False)
        out = np.zeros((x.shape[0], w.shape[0], *counts), wide)
        with np.errstate(all="ignore"):
            for image, target in zip(x.astype(wide, copy=False), out, strict=True):
                padded = pad_windows(image, kernel, self.strides, self.dilations, pads, counts)
                windows = window_view(padded, kernel, self.strides, self.dilations, counts)
                columns = _columns(windows, len(kernel))
                target[...] = grouped_product(weights, columns, self.groups).reshape(target.shape)
        return cast_array(out, result, saturate=False)


def _columns(windows: Array, rank: int) -> Array:
    """Reorder windows [C, *counts, *kernel] to [C, *kernel, P], one column a window."""
    order = (0, *range(1 + rank, 1 + 2 * rank), *range(1, 1 + rank))
    moved = windows.transpose(order)
    points = int(np.prod(moved.shape[1 + rank :], dtype=np.int64))
    return moved.reshape((*moved.shape[: 1 + rank], points))


@dataclass(frozen=True)
class ConvTranspose(Op):
    """The transpose of a convolution: each element of x adds its multiple of the kernel to out.

    out[n, m, i*stride - before + t*dilation] += x[n, c, i] * w[c, m, t] for each c of m's group.
    What falls into the padding is dropped. Narrow floats accumulate in float32, integers wrap.
    NaN spreads to every element that its kernel covers. Elements that none covers are 0.

    Shapes: x [N, C, *spatial], w [C, M/groups, *kernel] ->
    [N, M, (n - 1)*stride + (kernel - 1)*dilation + 1 + output_padding - before - after, ..].

    Attributes:
        strides: step between kernels, one number a spatial axis.
        dilations: step between elements of a kernel.
        pads: what is cut (before, after) each spatial axis.
        output_padding: elements added after each spatial axis.
        groups: parts that the channels are cut into; each sees its own part only.
        out_dtype: element type of the result, where it is wider than that of the operands.
    """

    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: Pads
    output_padding: tuple[Size, ...]
    groups: int = 1
    out_dtype: DType | None = None

    def infer(self, ctx: InferContext, x: TensorType, w: TensorType) -> TensorType:
        """Check channels; no size may become negative."""
        dtype = product_type(x.dtype, w.dtype, self.out_dtype, "transposed conv")
        rank = _spatial_rank(x, w, "transposed conv")
        check_window(ctx, rank, self.strides, self.dilations, self.pads)
        if len(self.output_padding) != rank:
            raise ShapeError(f"{len(self.output_padding)} output paddings for {rank} spatial axes")
        grouped_channels(ctx, x.shape[1], self.groups, "input channels")
        ctx.require_eq(w.shape[0], x.shape[1], "the channels that weights and input have")
        sizes = self._sizes(x.shape[2:], w.shape[2:])
        for axis, (size, more) in enumerate(zip(sizes, self.output_padding, strict=True)):
            ctx.require_ge(more, 0, "an output padding is not negative")
            ctx.require_ge(size, 0, f"the transposed conv leaves something of spatial axis {axis}")
        return TensorType(dtype, (x.shape[0], w.shape[1] * self.groups, *sizes))

    def _sizes(self, sizes: tuple[Size, ...], kernel: tuple[Size, ...]) -> tuple[Size, ...]:
        axes = zip(
            sizes, kernel, self.strides, self.dilations, self.pads, self.output_padding, strict=True
        )
        return tuple(transposed_size(*axis) for axis in axes)

    def eval(self, ctx: EvalContext, x: Array, w: Array) -> Array:
        """Multiply, then add up where kernels overlap, element of the kernel by element."""
        result = self.out_dtype or DType.from_numpy(x.dtype)
        wide = accumulator(result)
        kernel, spatial = w.shape[2:], x.shape[2:]
        sizes = ctx.sizes(self._sizes(spatial, kernel))
        befores = [ctx.size(b) for b, _ in self.pads]
        # room for every kernel as a whole; the part [before, before + size) is the result
        axes = zip(befores, sizes, spatial, kernel, self.strides, self.dilations, strict=True)
        room = [max(b + n, (i - 1) * s + (k - 1) * d + 1) for b, n, i, k, s, d in axes]
        channels = w.shape[1] * self.groups
        out = np.zeros((x.shape[0], channels, *room), wide)
        with np.errstate(all="ignore"):
            if x.size and w.size:
                parts = self._products(x.astype(wide, copy=False), w.astype(wide, copy=False))
                for tap in np.ndindex(*kernel):
                    covered = (slice(None), slice(None), *self._covered(tap, spatial))
                    out[covered] += parts[(slice(None), slice(None), *tap)]
        cut = [slice(b, b + n) for b, n in zip(befores, sizes, strict=True)]
        return cast_array(out[(slice(None), slice(None), *cut)], result, saturate=False)

    def _products(self, x: Array, w: Array) -> Array:
        """Return [N, M, *kernel, *spatial]: what each element adds, before it is placed."""
        each, kernel = w.shape[1], w.shape[2:]
        groups = self.groups
        left = w.reshape(groups, w.shape[0] // groups, -1).swapaxes(1, 2)
        right = x.reshape(x.shape[0], groups, x.shape[1] // groups, -1)
        product: Array = np.matmul(left, right)
        return product.reshape(x.shape[0], each * groups, *kernel, *x.shape[2:])

    def _covered(self, tap: tuple[int, ...], spatial: tuple[int, ...]) -> tuple[slice, ...]:
        """Where one element of the kernel lands for all elements of x."""
        axes = zip(tap, self.dilations, self.strides, spatial, strict=True)
        return tuple(slice(t * d, t * d + (n - 1) * s + 1, s) for t, d, s, n in axes)
