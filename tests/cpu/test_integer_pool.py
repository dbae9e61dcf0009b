"""Maxima of windows of bytes are those of the reference."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import pytest

from kn_cpu.pool import pool_call, pool_supported
from kn_graph.dtype import DType
from tests.cpu.check import check, reference, stored
from tests.cpu.integers import integers
from tests.cpu.rows import layout_of
from tests.cpu.test_pool import WINDOWS, window


def check_max(dtype: str, options: dict[str, Any], shape: tuple[int, ...], order: Any) -> None:
    op = window("max", **options)
    x = integers(np.random.default_rng(0), dtype, *shape)
    out = stored(np.zeros_like(reference(op, x)), order)
    view = stored(x, order, 1)
    call = pool_call(op, layout_of(out), layout_of(view), DType.from_numpy(x.dtype))
    check(op, call, out, view, operands=[x])


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("options", WINDOWS)
def test_windows_and_layouts(options: dict[str, Any], dtype: str) -> None:
    for order in permutations(range(4)):
        check_max(dtype, options, (2, 5, 14, 12), order)


@pytest.mark.parametrize("channels", [1, 16, 63, 64, 65, 255, 256, 257, 600])
def test_channels_around_vectors(channels: int) -> None:
    options = {"kernel": (3, 3), "strides": (2, 2), "pads": ((1, 1), (1, 1))}
    for dtype in ("uint8", "int8"):
        check_max(dtype, options, (1, channels, 5, 7), (0, 2, 3, 1))


@pytest.mark.parametrize("shape", [(0, 3, 6, 6), (2, 0, 6, 6), (1, 1, 2, 2)])
def test_empty_and_small(shape: tuple[int, ...]) -> None:
    check_max("int8", {"kernel": (2, 2)}, shape, (0, 1, 2, 3))


def test_other_axes() -> None:
    check_max("uint8", {"kernel": (3,), "pads": ((1, 1),)}, (2, 3, 9), (0, 2, 1))
    check_max("uint8", {"kernel": (2, 2, 2)}, (1, 20, 4, 5, 3), (0, 2, 3, 4, 1))


def test_sums_of_bytes_have_no_kernel() -> None:
    assert pool_supported(window("max", (2,)), DType.INT8)
    assert not pool_supported(window("sum", (2,)), DType.INT8)
