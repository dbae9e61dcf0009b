"""Building methods for images: resizing, sampling, regions, blocks."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from kn_graph.builder.base import Builder, normalize_axes
from kn_graph.dim import Size, floordiv
from kn_graph.dtype import DType
from kn_graph.errors import ShapeError
from kn_graph.interpolation import Coordinates, NearestRule, simplest_fraction
from kn_graph.ops.resize import Resize, ResizeMode, Scales
from kn_graph.value import Value

__all__ = ["ImageBuilder"]

LARGEST_AXIS = 1 << 16
"""Up to this size the formula for scaled symbolic sizes is compared with float32 arithmetic."""


class ImageBuilder(Builder):
    """See the module."""

    def resize(
        self,
        x: Value,
        axes: Sequence[int],
        sizes: Sequence[Size] | None = None,
        scales: Sequence[float | Fraction] | Value | None = None,
        *,
        mode: ResizeMode = "nearest",
        coordinates: Coordinates = "half_pixel",
        nearest: NearestRule = "round_prefer_floor",
        cubic_a: float = -0.75,
        exclude_outside: bool = False,
        antialias: bool = False,
        roi: Value | None = None,
        extrapolation: float = 0.0,
    ) -> Value:
        """Sample axes at other positions; see `Resize`.

        Args:
            x: any tensor.
            axes: the axes that change.
            sizes: what they become; by default size times scale, rounded down.
            scales: result size over operand size of each axis, or a float tensor of them; by
                default just that.
            mode: nearest, linear or cubic.
            coordinates: the rule for positions.
            nearest: which element is nearest, in mode nearest.
            cubic_a: slope of the cubic kernel.
            exclude_outside: give elements beyond the border no weight.
            antialias: widen the kernel where an axis shrinks.
            roi: for tf_crop_and_resize: float [2*k], starts and ends of the axes, from 0 to 1.
            extrapolation: for tf_crop_and_resize: what is outside of the operand.
        """
        over = normalize_axes(axes, x.rank)
        operands = [x]
        given: Scales = "sizes"
        if isinstance(scales, Value):
            given = "operand"
            operands.append(scales)
        elif scales is not None:
            given = tuple(s if isinstance(s, Fraction) else simplest_fraction(s) for s in scales)
        if sizes is None:
            if scales is None:
                raise ShapeError("resize needs sizes or scales")
            sizes = self.scaled_sizes([x.shape[a] for a in over], scales)
        if roi is not None:
            operands.append(roi)
        op = Resize(
            over,
            tuple(sizes),
            given,
            mode,
            coordinates,
            nearest,
            cubic_a,
            exclude_outside,
            antialias,
            extrapolation,
        )
        return self.push(op, *operands)

    def scaled_sizes(
        self, sizes: Sequence[Size], scales: Sequence[float | Fraction] | Value
    ) -> tuple[Size, ...]:
        """Return sizes times scales, rounded down, as float32 arithmetic gives them.

        Sizes that no formula gives are computed when the graph runs.

        Args:
            sizes: of some axes.
            scales: a number for each, or a float tensor [k].
        """
        if isinstance(scales, Value):
            return self._sizes_at_run_time(sizes, scales)
        out = []
        for n, scale in zip(sizes, scales, strict=True):
            wide = np.float32(float(scale))
            fraction = simplest_fraction(float(wide))
            if isinstance(n, int):
                out.append(int(np.float32(n) * wide))
            elif _is_exact(fraction):
                out.append(floordiv(n * fraction.numerator, fraction.denominator))
            else:
                out += self._sizes_at_run_time([n], self.constant(np.array([wide])))
        return tuple(out)

    def _sizes_at_run_time(self, sizes: Sequence[Size], scales: Value) -> tuple[Size, ...]:
        content = np.empty(len(sizes), object)
        content[:] = sizes
        wide = self.cast(self.size_tensor(content), DType.FLOAT32)
        product = self.binary("mul", wide, self.cast(scales, DType.FLOAT32))
        whole = self.cast(self.unary("floor", product), DType.INT64)
        return self.read_sizes(whole, name="resized")


@cache
def _is_exact(scale: Fraction) -> bool:
    """Return whether float32 arithmetic rounds size times scale to the same integer."""
    if scale.denominator > 1 << 40:
        return False
    n = np.arange(1, LARGEST_AXIS + 1)
    exact = n * scale.numerator // scale.denominator
    return bool(np.array_equal(np.floor(n.astype(np.float32) * np.float32(float(scale))), exact))
