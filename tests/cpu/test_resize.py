"""Resampling against the NumPy reference."""

from __future__ import annotations

from fractions import Fraction
from itertools import permutations
from typing import Any

import numpy as np
import pytest

from kn_cpu.resize import SPATIAL, resize_call, resize_supported, resize_tables, resize_taps
from kn_graph.dtype import DType
from kn_graph.ops.resize import Resize, ResizeMode
from tests.cpu.check import Array, check, normal, reference, stored
from tests.cpu.rows import layout_of

FIRST, LAST = (0, 1, 2, 3), (0, 2, 3, 1)
MODES: tuple[ResizeMode, ...] = ("nearest", "linear", "cubic")


def check_resize(op: Resize, x: Array, order: tuple[int, ...] | None = None, gap: int = 0) -> None:
    out = stored(np.zeros_like(reference(op, x)), order)
    view = stored(x, order, gap)
    old, new = ([t.shape[a] for a in op.axes] for t in (x, out))
    tables = [t for axis in range(SPATIAL) for t in resize_tables(op, axis, old, new)]
    taps = resize_taps(op, old, new)
    assert list(taps) == [t.shape[1] for t in tables[::2]]
    call = resize_call(op, layout_of(out), layout_of(view), taps)
    check(op, call, out, view, *tables, operands=[x])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("order", [FIRST, LAST, (3, 2, 1, 0)])
@pytest.mark.parametrize("sizes", [(14, 22), (7, 11), (3, 5), (1, 1), (10, 33), (7, 40)])
@pytest.mark.parametrize("channels", [1, 3, 16, 70])
def test_two_axes(
    channels: int, sizes: tuple[int, ...], order: tuple[int, ...], mode: ResizeMode
) -> None:
    x = normal((2, channels, 7, 11))
    check_resize(Resize((2, 3), sizes, mode=mode), x, order)
    check_resize(Resize((3, 2), sizes[::-1], mode=mode, coordinates="align_corners"), x, order)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("order", list(permutations(range(4))))
def test_any_strides(order: tuple[int, ...], mode: ResizeMode) -> None:
    check_resize(Resize((2, 3), (9, 20), mode=mode), normal((2, 18, 5, 10)), order, order[0] % 2)


@pytest.mark.parametrize("mode", MODES)
def test_one_and_three_axes(mode: ResizeMode) -> None:
    check_resize(Resize((1,), (9,), mode=mode), normal((3, 5, 17)))
    check_resize(Resize((2,), (9,), mode=mode), normal((3, 5, 17)))
    check_resize(Resize((2, 3, 4), (9, 4, 11), mode=mode), normal((1, 3, 5, 8, 7)))
    check_resize(
        Resize((2, 3, 4), (9, 4, 11), mode=mode), normal((1, 20, 5, 8, 7)), (0, 2, 3, 4, 1)
    )
    check_resize(Resize((), (), mode=mode), normal((3, 5)))


@pytest.mark.parametrize(
    "options",
    [
        {"coordinates": "asymmetric", "scales": (Fraction(2), Fraction(2)), "nearest": "floor"},
        {"coordinates": "pytorch_half_pixel"},
        {"antialias": True, "sizes": (4, 3)},
        {"exclude_outside": True},
        {"nearest": "ceil", "scales": (Fraction(2), Fraction(5, 3))},
    ],
)
@pytest.mark.parametrize("mode", MODES)
def test_rules(mode: ResizeMode, options: Any) -> None:
    options = {"sizes": (14, 20), "mode": mode, **options}
    check_resize(Resize((2, 3), **options), normal((1, 4, 7, 12)))


@pytest.mark.parametrize("order", [FIRST, LAST])
@pytest.mark.parametrize("mode", MODES)
def test_a_nan_spreads_to_its_neighbours(mode: ResizeMode, order: tuple[int, ...]) -> None:
    x = normal((1, 17, 6, 7))
    x[0, 3, 2, 3], x[0, 16, 0, 0], x[0, 0, 5, 6] = np.nan, np.inf, -np.inf
    check_resize(Resize((2, 3), (12, 14), mode=mode), x, order)


def test_empty_tensors() -> None:
    check_resize(Resize((2, 3), (4, 4)), np.zeros((0, 3, 2, 2), np.float32))
    check_resize(Resize((2, 3), (0, 4)), np.zeros((1, 3, 2, 2), np.float32))


def test_what_is_supported() -> None:
    assert resize_supported(Resize((2, 3), (4, 4)), DType.FLOAT32)
    assert not resize_supported(Resize((2, 3), (4, 4)), DType.UINT8)
    assert not resize_supported(Resize((2, 3), (4, 4), scales="operand"), DType.FLOAT32)
    crop = Resize((2, 3), (4, 4), coordinates="tf_crop_and_resize")
    assert not resize_supported(crop, DType.FLOAT32)
