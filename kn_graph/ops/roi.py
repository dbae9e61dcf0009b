"""Pooling of regions of interest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from kn_graph.dtype import DType
from kn_graph.errors import DTypeError, ExecutionError, ShapeError
from kn_graph.op import EvalContext, InferContext, Op
from kn_graph.ops.matmul import accumulator
from kn_graph.types import TensorType

__all__ = ["MaxRoiPool", "RoiAlign", "RoiReduction"]

Array = np.ndarray[Any, Any]
RoiReduction = Literal["mean", "max"]


def _check_images(x: TensorType, rois: TensorType, columns: int, ctx: InferContext) -> None:
    if x.rank != 4 or rois.rank != 2:
        raise ShapeError(
            f"expected images [N, C, H, W] and regions [R, {columns}], got {x} and {rois}"
        )
    if not x.dtype.is_float or rois.dtype is not x.dtype:
        raise DTypeError(f"images and regions must be of one float type, got {x}, {rois}")
    ctx.require_eq(rois.shape[1], columns, "numbers that describe a region")


def _image(x: Array, index: int, roi: int) -> Array:
    if not 0 <= index < len(x):
        raise ExecutionError(f"region {roi} is of image {index}, and there are {len(x)} images")
    image: Array = x[index]
    return image


@dataclass(frozen=True)
class RoiAlign(Op):
    """Reduce samples of regions of images to a fixed size, without rounding the regions.

    Region (x1, y1, x2, y2), times `scale` and with `half_pixel` less 1/2, is cut into `size` bins.
    Each bin has samples x samples points in the middles of equal parts, each interpolated linearly;
    `samples` = 0 takes ceil(region size / bins) of an axis. A point more than 1 outside of the
    image counts 0, one less outside as the border. Their mean is the result; `max` instead takes
    the largest weighted neighbour of all points, as ONNX's test data and runtimes do. Without
    `half_pixel` a region is at least 1 x 1. A bin without points is 0. A NaN spreads to what has it
    as a neighbour of weight other than 0. Narrow floats compute in float32.

    Shapes: x [N, C, H, W], rois [R, 4], images integer [R] -> [R, C, *size].
    Raises at run time where an image does not exist.

    Attributes:
        size: bins along height and width.
        reduction: mean or max.
        samples: points of a bin along each axis, or 0.
        scale: factor of the coordinates.
        half_pixel: whether the centre of the first element lies at 1/2.
    """

    size: tuple[int, int]
    reduction: RoiReduction = "mean"
    samples: int = 0
    scale: float = 1.0
    half_pixel: bool = True

    def infer(
        self, ctx: InferContext, x: TensorType, rois: TensorType, images: TensorType
    ) -> TensorType:
        """Replace the spatial sizes."""
        _check_images(x, rois, 4, ctx)
        if images.rank != 1 or not images.dtype.is_int:
            raise DTypeError(f"indices of images must be integers [R], got {images}")
        ctx.require_eq(rois.shape[0], images.shape[0], "number of regions")
        if min(self.size) < 1 or self.samples < 0:
            raise ShapeError(f"{self.size} bins of {self.samples} samples")
        return TensorType(x.dtype, (rois.shape[0], x.shape[1], *self.size))

    def eval(self, ctx: EvalContext, x: Array, rois: Array, images: Array) -> Array:
        """Pool one region after another."""
        wide = accumulator(DType.from_numpy(x.dtype))
        out = np.zeros((len(rois), x.shape[1], *self.size), wide)
        with np.errstate(all="ignore"):
            corners = rois.astype(wide) * wide.type(self.scale) - (0.5 if self.half_pixel else 0)
            for r, (x1, y1, x2, y2) in enumerate(corners):
                image = _image(x, int(images[r]), r).astype(wide, copy=False)
                rows = self._points(y1, y2, self.size[0], image.shape[1])
                columns = self._points(x1, x2, self.size[1], image.shape[2])
                if image.size:
                    self._pool(image, rows, columns, out[r])
        return out.astype(x.dtype)

    def _points(self, start: Any, end: Any, bins: int, n: int) -> _Points:
        """Return the sample points of one axis: [bins, samples], flattened."""
        length = end - start if self.half_pixel else np.maximum(end - start, 1)
        width = length / bins
        count = self.samples or (max(0, int(np.ceil(width))) if np.isfinite(width) else 0)
        middles = (np.arange(count, dtype=start.dtype) + start.dtype.type(0.5)) * (
            width / max(count, 1)
        )
        at = (start + np.arange(bins, dtype=start.dtype)[:, None] * width + middles).ravel()
        inside = (at >= -1) & (at <= n)
        at = np.clip(np.where(inside, at, 0), 0, max(n - 1, 0))
        low = np.floor(at).astype(np.int64)
        share = at - low
        high = np.minimum(low + 1, n - 1)
        return _Points(count, (low, high), (inside * (1 - share), inside * share))

    def _pool(self, image: Array, rows: _Points, columns: _Points, out: Array) -> None:
        if not rows.count * columns.count:
            return
        terms = []
        for i, a in zip(rows.index, rows.weight, strict=True):
            for j, b in zip(columns.index, columns.weight, strict=True):
                weight = a[:, None] * b
                terms.append(np.where(weight != 0, image[:, i][:, :, j] * weight, 0))
        shape = (len(image), self.size[0], rows.count, self.size[1], columns.count)
        if self.reduction == "max":
            out[...] = np.max(terms, axis=0).reshape(shape).max((2, 4))
        else:
            out[...] = np.sum(terms, axis=0).reshape(shape).mean((2, 4))


@dataclass(frozen=True)
class _Points:
    """Sample points along an axis: how many a bin has, both neighbours and their weights."""

    count: int
    index: tuple[Array, Array]
    weight: tuple[Array, Array]


@dataclass(frozen=True)
class MaxRoiPool(Op):
    """Reduce regions of images to a fixed size by their maxima.

    Region (image, x1, y1, x2, y2), times `scale` and rounded half away from zero, has
    max(1, end - start + 1) elements an axis, cut into `size` bins from floor to ceil, inside of the
    image. A NaN makes its bins NaN; an empty bin is 0.

    Shapes: x [N, C, H, W], rois [R, 5] -> [R, C, *size].
    Raises at run time where an image does not exist.

    Attributes:
        size: bins along height and width.
        scale: factor of the coordinates.
    """

    size: tuple[int, int]
    scale: float = 1.0

    def infer(self, ctx: InferContext, x: TensorType, rois: TensorType) -> TensorType:
        """Replace the spatial sizes."""
        _check_images(x, rois, 5, ctx)
        if min(self.size) < 1:
            raise ShapeError(f"{self.size} bins")
        return TensorType(x.dtype, (rois.shape[0], x.shape[1], *self.size))

    def eval(self, ctx: EvalContext, x: Array, rois: Array) -> Array:
        """Pool one bin after another."""
        wide = accumulator(DType.from_numpy(x.dtype))
        out = np.zeros((len(rois), x.shape[1], *self.size), x.dtype)
        for r, (index, *corners) in enumerate(rois.astype(wide)):
            if not np.isfinite(corners).all() or not np.isfinite(index):
                raise ExecutionError(f"region {r} is not finite: {rois[r].tolist()}")
            image = _image(x, int(index), r)
            x1, y1, x2, y2 = (_rounded(c * wide.type(self.scale)) for c in corners)
            rows = _bins(y1, y2, self.size[0], image.shape[1])
            columns = _bins(x1, x2, self.size[1], image.shape[2])
            for i, row in enumerate(rows):
                for j, column in enumerate(columns):
                    part = image[:, row, column]
                    if part.size:
                        with np.errstate(invalid="ignore"):
                            out[r, :, i, j] = part.max((1, 2))
        return out


def _rounded(number: Any) -> int:
    return int(np.trunc(number + np.copysign(0.5, number)))


def _bins(start: int, end: int, count: int, n: int) -> list[slice]:
    length = max(end - start + 1, 1)
    edges = [
        (start + i * length // count, start - (-(i + 1) * length // count)) for i in range(count)
    ]
    return [slice(min(max(a, 0), n), min(max(b, 0), n)) for a, b in edges]
