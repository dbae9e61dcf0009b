"""Resizing of axes by sampling."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

import ml_dtypes
import numpy as np

from kn_graph.cast import cast_array
from kn_graph.dim import Size
from kn_graph.dtype import DType, Kind
from kn_graph.errors import DTypeError, ExecutionError, ShapeError
from kn_graph.interpolation import (
    Coordinates,
    NearestRule,
    Taps,
    cubic_kernel,
    linear_kernel,
    make_taps,
    nearest_indices,
    simplest_fraction,
    source_positions,
)
from kn_graph.op import EvalContext, InferContext, Op
from kn_graph.ops.layout import check_axis
from kn_graph.types import TensorType, format_shape

__all__ = ["Resize", "ResizeMode", "Scales", "interpolation_type"]

Array = np.ndarray[Any, Any]
ResizeMode = Literal["nearest", "linear", "cubic"]
Scales = tuple[Fraction, ...] | Literal["sizes", "operand"]

HALF_WIDTH = {"linear": 1, "cubic": 2}


def interpolation_type(dtype: DType) -> np.dtype[Any]:
    """Return the NumPy type that weighted sums are computed in."""
    if dtype.kind is Kind.COMPLEX:
        return dtype.numpy
    wide = dtype is DType.FLOAT64 or (dtype.is_int and dtype.bits >= 32)
    return np.dtype(np.float64 if wide else np.float32)


@dataclass(frozen=True)
class Resize(Op):
    """Sample axes at other positions.

    Along each axis, element i of the result lies at position p(i) of the operand by the rule
    `coordinates`, and is the nearest element there, or the sum of 2 (linear) or 4 (cubic) elements
    around it with weights by distance. Elements beyond the border are those at the border, or have
    no weight with `exclude_outside`. With `antialias`, an axis that shrinks by f has a kernel f
    times as wide. Several axes are independent: the weights multiply.

    An axis that keeps its size under a scale of 1 is copied, by every rule but tf_crop_and_resize.
    There, elements of which a position is outside of the operand are `extrapolation`. A NaN spreads
    to every result that has it among its elements, whatever the weight. Integers are rounded to
    even and saturate; narrow floats compute in float32. No elements can be made of an empty axis.

    Shapes: x [.., n_i, ..]; scales float [k], if these are an operand; roi float [2*k], starts then
    ends, for tf_crop_and_resize -> [.., sizes_i, ..].

    Attributes:
        axes: the axes that change, k of them.
        sizes: what they become.
        scales: result size over operand size of each, before rounding; `sizes` for just that, or
            `operand`.
        mode: nearest, linear or cubic.
        coordinates: the rule for positions; see `kn_graph.interpolation`.
        nearest: which element is nearest, in mode nearest.
        cubic_a: slope of the cubic kernel.
        exclude_outside: give elements beyond the border no weight.
        antialias: widen the kernel where an axis shrinks.
        extrapolation: result outside of the operand, for tf_crop_and_resize.
    """

    axes: tuple[int, ...]
    sizes: tuple[Size, ...]
    scales: Scales = "sizes"
    mode: ResizeMode = "nearest"
    coordinates: Coordinates = "half_pixel"
    nearest: NearestRule = "round_prefer_floor"
    cubic_a: float = -0.75
    exclude_outside: bool = False
    antialias: bool = False
    extrapolation: float = 0.0

    @property
    def crops(self) -> bool:
        """Whether there is a region of interest."""
        return self.coordinates == "tf_crop_and_resize"

    def infer(self, ctx: InferContext, x: TensorType, *extra: TensorType) -> TensorType:
        """Replace the sizes of the axes."""
        count = len(self.axes)
        scales = self.scales if isinstance(self.scales, tuple) else self.sizes
        if len(self.sizes) != count or len(scales) != count:
            raise ShapeError(f"{count} axes, {len(self.sizes)} sizes, scales {self.scales}")
        if len(set(self.axes)) != count:
            raise ShapeError(f"axes {self.axes} name an axis twice")
        self._check_extra(extra)
        if x.dtype.kind in (Kind.BOOL, Kind.STRING) and self.mode != "nearest":
            raise DTypeError(f"{self.mode} resize of {x.dtype}: only nearest is possible")
        if x.dtype is DType.STRING and self.crops:
            raise DTypeError("there are no strings outside of the operand: tf_crop_and_resize")
        shape = list(x.shape)
        for axis, size, scale in zip(self.axes, self.sizes, scales, strict=True):
            check_axis(axis, x.rank, "resize axis")
            if isinstance(scale, Fraction) and scale <= 0:
                raise ShapeError(f"the scale of axis {axis} must be positive: {scale}")
            ctx.require_ge(size, 0, f"the new size of axis {axis} is not negative")
            if x.shape[axis] == 0 and isinstance(size, int) and size:
                raise ShapeError(f"axis {axis} of {format_shape(x.shape)} has nothing to resize")
            shape[axis] = size
        return TensorType(x.dtype, tuple(shape))

    def _check_extra(self, extra: Sequence[TensorType]) -> None:
        count = len(self.axes)
        wanted = {"scales": count} if self.scales == "operand" else {}
        wanted |= {"roi": 2 * count} if self.crops else {}
        if len(extra) != len(wanted):
            raise ShapeError(f"resize takes {['x', *wanted]}, got {len(extra) + 1} operands")
        for (name, length), t in zip(wanted.items(), extra, strict=True):
            if t.shape != (length,) or not t.dtype.is_float:
                raise ShapeError(f"{name} must be float[{length}], got {t}")

    def eval(self, ctx: EvalContext, x: Array, *extra: Array) -> Array:
        """Resize one axis after another."""
        sizes = ctx.sizes(self.sizes)
        scales = [_number(s) for s in extra[0]] if self.scales == "operand" else self.scales
        shape = list(x.shape)
        for axis, m in zip(self.axes, sizes, strict=True):
            if m and not x.shape[axis]:
                raise ExecutionError(f"resize of empty axis {axis} of {list(x.shape)} to {m}")
            shape[axis] = m
        if 0 in shape:
            return np.empty(shape, x.dtype)
        dtype = DType.from_numpy(x.dtype)
        out = x if self.mode == "nearest" else x.astype(interpolation_type(dtype), copy=False)
        outside: Array = np.zeros((1,) * x.ndim, bool)
        for axis, n, scale, positions in self._positions(x.shape, sizes, scales, extra):
            if self.crops:
                beyond = ~((positions >= 0) & (positions <= n - 1))
                positions = np.where(beyond, 0.0, positions)
                outside = outside | beyond.reshape(_along(axis, x.ndim))
            out = self._resample(out, axis, positions, scale)
        if outside.any():
            out = np.where(outside, np.asarray(self.extrapolation, out.dtype), out)
        return _rounded(out, dtype)

    def _positions(
        self,
        shape: Sequence[int],
        sizes: Sequence[int],
        scales: Sequence[Fraction] | str,
        extra: Sequence[Array],
    ) -> Iterator[tuple[int, int, Fraction, Array]]:
        """Yield axis, old size, scale and positions of each axis that is not just copied."""
        count = len(self.axes)
        roi = extra[-1].astype(np.float64) if self.crops else np.repeat([0.0, 1.0], count)
        if not np.isfinite(roi).all():
            raise ExecutionError(f"a region of interest is finite, got {roi.tolist()}")
        for i, (axis, m) in enumerate(zip(self.axes, sizes, strict=True)):
            n = shape[axis]
            scale = Fraction(m, n) if isinstance(scales, str) else scales[i]
            if self.crops or m != n or scale != 1:
                part = float(roi[i]), float(roi[i + count])
                at = source_positions(self.coordinates, m, n, scale, part)
                yield axis, n, scale, at.array(m)

    def _resample(self, x: Array, axis: int, positions: Array, scale: Fraction) -> Array:
        n = x.shape[axis]
        if self.mode == "nearest":
            return np.take(x, nearest_indices(positions, n, self.nearest, scale), axis)
        taps = make_taps(
            positions,
            n,
            linear_kernel if self.mode == "linear" else cubic_kernel(self.cubic_a),
            HALF_WIDTH[self.mode],
            stretch=max(1.0, float(1 / scale)) if self.antialias else 1.0,
            exclude_outside=self.exclude_outside,
        )
        return _weighted_sum(x, axis, taps)


def _number(scale: float) -> Fraction:
    if not 0 < scale < float("inf"):
        raise ExecutionError(f"a scale must be positive, got {scale}")
    return simplest_fraction(scale)


def _along(axis: int, rank: int) -> tuple[int, ...]:
    """Return the shape of a vector that broadcasts along an axis."""
    return (*(1,) * axis, -1, *(1,) * (rank - axis - 1))


def _weighted_sum(x: Array, axis: int, taps: Taps) -> Array:
    real = np.float64 if x.dtype in (np.float64, np.complex128) else np.float32
    weights = taps.weight.astype(real)
    total: Any = 0
    with np.errstate(all="ignore"):
        for index, weight in zip(taps.index.T, weights.T, strict=True):
            total = total + np.take(x, index, axis) * weight.reshape(_along(axis, x.ndim))
    return np.asarray(total)


def _rounded(x: Array, dtype: DType) -> Array:
    if x.dtype == dtype.numpy:
        return x
    if not dtype.is_int:
        return cast_array(x, dtype)
    limits: Any = ml_dtypes.iinfo(dtype.numpy)  # type: ignore[no-untyped-call]
    whole = np.clip(np.rint(x), float(limits.min), float(limits.max))
    # the largest 64 bit integers are no floats: those would wrap
    top = whole >= float(limits.max)
    return np.where(top, dtype.numpy.type(limits.max), cast_array(np.where(top, 0, whole), dtype))
