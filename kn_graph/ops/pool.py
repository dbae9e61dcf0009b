"""Pooling: the maximum, sum or mean of windows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from typing import Any, Literal

import numpy as np

from kn_graph.dtype import DType
from kn_graph.errors import DTypeError, ShapeError
from kn_graph.op import EvalContext, InferContext, Op
from kn_graph.ops.matmul import accumulator
from kn_graph.types import TensorType, format_shape
from kn_graph.window import (
    Pads,
    check_window,
    count_windows,
    pad_windows,
    tap_counts,
    window_counts,
    window_view,
)

__all__ = ["Pool", "PoolFunction", "PoolIndices"]

Array = np.ndarray[Any, Any]
PoolFunction = Literal["max", "mean", "sum"]
PoolIndices = Literal["none", "row_major", "column_major"]


def _lowest(dtype: np.dtype[Any]) -> Any:
    return -np.inf if dtype.kind == "f" else np.iinfo(dtype).min


@dataclass(frozen=True)
class Pool(Op):
    """One number for each window of the last axes.

    out[.., o] = max, sum or mean of x[.., o*stride - before + t*dilation] over t. Padding takes no
    part in a maximum and is 0 in a sum. A mean divides by the number of elements that are not
    padding; with `count_include_pad` the explicit padding counts too, but never what a window of
    `ceil` mode covers beyond it. A NaN makes its windows NaN. A window of padding alone gives the
    lowest number for max, 0 for sum, NaN (0/0) for mean. Narrow floats compute in float32.

    With `indices` a second result tells where the maximum is: the position in x, flattened, of the
    first largest element, or of the first NaN; -1 for a window of padding alone.

    Shapes: x [*lead, *spatial] -> [*lead, *windows]; indices int64 of the same.

    Attributes:
        fn: max, sum or mean.
        kernel: size of a window, one number a spatial axis: how many last axes there are.
        strides: step between windows.
        dilations: step between elements of a window.
        pads: padding (before, after) each spatial axis.
        ceil: keep a last window that reaches beyond the padding, if it starts before its end part.
        count_include_pad: whether a mean counts padding.
        indices: second result of max: none, or positions in row-major order, or with the spatial
            axes in column-major order.
    """

    fn: PoolFunction
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: Pads
    ceil: bool = False
    count_include_pad: bool = False
    indices: PoolIndices = "none"

    def infer(self, ctx: InferContext, x: TensorType) -> TensorType | tuple[TensorType, TensorType]:
        """Count the windows."""
        rank = len(self.kernel)
        if x.rank < rank:
            raise ShapeError(f"a window over {rank} axes does not fit {format_shape(x.shape)}")
        if not x.dtype.is_float and (self.fn == "mean" or not x.dtype.is_int):
            raise DTypeError(f"{self.fn} pool of {x.dtype}")
        if min(self.kernel, default=1) < 1:
            raise ShapeError(f"each kernel size must be at least 1, got {self.kernel}")
        if self.indices != "none" and self.fn != "max":
            raise ShapeError(f"only max pool has indices, not {self.fn}")
        check_window(ctx, rank, self.strides, self.dilations, self.pads)
        lead = x.rank - rank
        counts = window_counts(
            ctx,
            x.shape[lead:],
            self.kernel,
            self.strides,
            self.dilations,
            self.pads,
            ceil=self.ceil,
        )
        shape = (*x.shape[:lead], *counts)
        out = TensorType(x.dtype, shape)
        return out if self.indices == "none" else (out, TensorType(DType.INT64, shape))

    def eval(self, ctx: EvalContext, x: Array) -> Array | tuple[Array, Array]:
        """Fold over the elements of a window, all windows at once."""
        wide = accumulator(DType.from_numpy(x.dtype))
        pads = [(ctx.size(b), ctx.size(a)) for b, a in self.pads]
        spatial = x.shape[x.ndim - len(self.kernel) :]
        counts = count_windows(
            spatial, self.kernel, self.strides, self.dilations, pads, ceil=self.ceil
        )
        fill = _lowest(wide) if self.fn == "max" else 0
        with np.errstate(all="ignore"):
            taps = self._taps(x.astype(wide, copy=False), pads, counts, fill)
            out = reduce(np.maximum if self.fn == "max" else np.add, taps)
            if self.fn == "mean":
                out = out / self._divisors(spatial, pads, counts).astype(wide)
        out = out.astype(x.dtype)
        if self.indices == "none":
            return out
        return out, self._indices(x.astype(wide, copy=False), pads, counts)

    def _windows(
        self, x: Array, pads: list[tuple[int, int]], counts: tuple[int, ...], fill: Any
    ) -> Array:
        """Return the windows as a view [*lead, *counts, *kernel]."""
        window = (self.kernel, self.strides, self.dilations)
        padded = pad_windows(x, *window, pads, counts, fill)
        return window_view(padded, *window, counts)

    def _taps(
        self, x: Array, pads: list[tuple[int, int]], counts: tuple[int, ...], fill: Any
    ) -> Iterator[Array]:
        """Yield [*lead, *counts] for each element of a window."""
        view = self._windows(x, pads, counts, fill)
        return (view[(..., *tap)] for tap in np.ndindex(*self.kernel))

    def _divisors(
        self, spatial: tuple[int, ...], pads: list[tuple[int, int]], counts: tuple[int, ...]
    ) -> Array:
        """Return how many elements each window counts: a product over the axes."""
        axes = zip(spatial, self.kernel, self.strides, self.dilations, pads, counts, strict=True)
        each = [
            tap_counts(-b, n + a, k, s, d, b, c)
            if self.count_include_pad
            else tap_counts(0, n, k, s, d, b, c)
            for n, k, s, d, (b, a), c in axes
        ]
        return reduce(np.multiply.outer, each, np.array(1))

    def _indices(self, x: Array, pads: list[tuple[int, int]], counts: tuple[int, ...]) -> Array:
        rank = len(self.kernel)
        lead = x.shape[: x.ndim - rank]
        positions = _positions(lead, x.shape[x.ndim - rank :], self.indices)
        shape = (*lead, *counts, int(np.prod(self.kernel)))
        where = self._windows(positions, pads, counts, -1).reshape(shape)
        values = self._windows(x, pads, counts, _lowest(x.dtype)).reshape(shape)
        if 0 in shape:
            return np.empty(shape[:-1], np.int64)
        best = np.argmax(values, axis=-1)[..., None]
        # padding is chosen only where nothing is larger than it: then any element will do
        inside = np.argmax(where >= 0, axis=-1)[..., None]
        chosen = np.take_along_axis(where, best, -1)
        return np.where(chosen < 0, np.take_along_axis(where, inside, -1), chosen)[..., 0]


def _positions(lead: tuple[int, ...], spatial: tuple[int, ...], order: PoolIndices) -> Array:
    """Return the position of each element in the flattened tensor."""
    count = int(np.prod(spatial, dtype=np.int64))
    inner = np.arange(count).reshape(spatial if order == "row_major" else spatial[::-1])
    inner = inner if order == "row_major" else inner.transpose()
    outer = np.arange(int(np.prod(lead, dtype=np.int64))).reshape(lead) * count
    return outer[(..., *(None,) * len(spatial))] + inner
