"""Where the elements of a resampled axis come from: positions, neighbours and their weights.

Positions are exact fractions until one last division, so that a position that is a whole number, or
exactly between two, is one: rounding never decides which neighbour is nearest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, lcm
from typing import Any, Literal

import numpy as np

__all__ = [
    "Coordinates",
    "Kernel",
    "NearestRule",
    "Positions",
    "Taps",
    "cubic_kernel",
    "linear_kernel",
    "make_taps",
    "nearest_indices",
    "simplest_fraction",
    "source_positions",
]

Array = np.ndarray[Any, Any]
Kernel = Callable[[Array], Array]
Coordinates = Literal[
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "tf_half_pixel_for_nn",
    "align_corners",
    "asymmetric",
    "tf_crop_and_resize",
]
NearestRule = Literal["round_prefer_floor", "round_prefer_ceil", "floor", "ceil", "simple"]

MAX_DENOMINATOR = 4096


def simplest_fraction(number: float) -> Fraction:
    """Return the fraction that a float32 number was rounded from, such as 3/5 for 0.6.

    That is one of a denominator up to 4096 which rounds to the number, or else its exact value.
    """
    exact = Fraction(float(number))
    near = exact.limit_denominator(MAX_DENOMINATOR)
    return near if np.float32(float(near)) == np.float32(number) else exact


# ---- positions ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Positions:
    """Positions `offset + i * step` of elements i = 0, 1, ..., exactly."""

    offset: Fraction
    step: Fraction

    def array(self, count: int) -> Array:
        """Return the first `count` positions as float64: sums are exact, one division rounds."""
        common = lcm(self.offset.denominator, self.step.denominator)
        offset, step = int(self.offset * common), int(self.step * common)
        return (float(offset) + np.arange(count) * float(step)) / float(common)


Rule = Callable[[int, int, Fraction], tuple[Fraction | int, Fraction | int]]

HALF = Fraction(1, 2)

_RULES: dict[str, Rule] = {
    # (i + 1/2) / scale - 1/2
    "half_pixel": lambda m, n, s: (HALF / s - HALF, 1 / s),
    # the same, with the centre of the result at the centre of the operand
    "half_pixel_symmetric": lambda m, n, s: (HALF / s - HALF + (n - m / s) / 2, 1 / s),
    "pytorch_half_pixel": lambda m, n, s: (HALF / s - HALF, 1 / s) if m > 1 else (0, 0),
    # (i + 1/2) / scale
    "tf_half_pixel_for_nn": lambda m, n, s: (HALF / s, 1 / s),
    # the first elements coincide, and the last ones
    "align_corners": lambda m, n, s: (0, Fraction(n - 1, m - 1) if m > 1 else 0),
    # i / scale
    "asymmetric": lambda m, n, s: (0, 1 / s),
}
"""Offset and step for m elements out of n, by a scale which is m / n before rounding."""


def source_positions(
    mode: Coordinates, m: int, n: int, scale: Fraction, roi: tuple[float, float] = (0.0, 1.0)
) -> Positions:
    """Return where in an axis of size n the m elements of the resampled axis lie.

    Args:
        mode: the rule.
        m: size of the result.
        n: size of the source, at least 1.
        scale: result size over source size, before rounding.
        roi: part of the source that tf_crop_and_resize takes, from 0 to 1; it maps its ends to the
            first and the last element.
    """
    if mode != "tf_crop_and_resize":
        offset, step = _RULES[mode](m, n, scale)
        return Positions(Fraction(offset), Fraction(step))
    start, end = map(simplest_fraction, roi)
    if m == 1:
        return Positions((start + end) / 2 * (n - 1), Fraction(0))
    return Positions(start * (n - 1), (end - start) * (n - 1) / (m - 1))


# ---- neighbours -----------------------------------------------------------------------------

_NEAREST: dict[str, Callable[[Array], Array]] = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


def nearest_indices(positions: Array, n: int, rule: NearestRule, scale: Fraction) -> Array:
    """Return the index nearest to each position, inside of the axis.

    The rule `simple`, of old opsets, is floor where the axis grows and ceil where it shrinks.
    """
    if rule == "simple":
        rule = "ceil" if scale < 1 else "floor"
    return np.clip(_NEAREST[rule](positions), 0, n - 1).astype(np.int64)


def linear_kernel(t: Array) -> Array:
    """Return the weight of a neighbour at distance t: a triangle of half-width 1."""
    return np.maximum(0.0, 1.0 - np.abs(t))


def cubic_kernel(a: float) -> Kernel:
    """Return Keys' convolution kernel of half-width 2 with slope `a` at distance 1."""

    def weight(t: Array) -> Array:
        d = np.abs(t)
        near = ((a + 2) * d - (a + 3)) * d * d + 1
        far = ((d - 5) * d + 8) * d * a - 4 * a
        return np.where(d <= 1, near, np.where(d < 2, far, 0.0))

    return weight


@dataclass(frozen=True)
class Taps:
    """The elements of an axis that a result is a weighted sum of.

    Attributes:
        index: [m, k], inside of the axis.
        weight: [m, k] float64.
    """

    index: Array
    weight: Array


def make_taps(
    positions: Array,
    n: int,
    kernel: Kernel,
    half_width: int,
    *,
    stretch: float = 1.0,
    exclude_outside: bool = False,
) -> Taps:
    """Return neighbours and weights for each position.

    Args:
        positions: [m] in the source axis.
        n: size of that axis, at least 1.
        kernel: weight by distance.
        half_width: distance from which on the kernel is 0.
        stretch: factor of the kernel's width, at least 1: above 1 for antialiasing.
        exclude_outside: give neighbours outside of the axis no weight; else they are those at its
            border.
    """
    wide = half_width * stretch
    first = np.floor(positions - wide).astype(np.int64) + 1
    index = first[:, None] + np.arange(ceil(2 * wide))
    weight = kernel((index - positions[:, None]) / stretch)
    if exclude_outside:
        inside = np.where((index >= 0) & (index < n), weight, 0.0)
        some = inside.sum(1, keepdims=True) != 0
        weight = np.where(some, inside, weight)
    if exclude_outside or stretch > 1:
        weight = weight / weight.sum(1, keepdims=True)
    return Taps(np.clip(index, 0, n - 1), weight)
