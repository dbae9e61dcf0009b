"""Runs one native kernel on NumPy arrays, whole and in pieces."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from kn_cpu.axes import KernelCall
from kn_cpu.native import library, unavailable_reason
from kn_plan.layout import StridedLayout

Array = np.ndarray[Any, Any]
Kernel = Callable[..., None]

KERNEL = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64
)


FAMILIES = (
    *("copy", "norm", "softmax", "reduce", "attention", "pool", "gather", "resize"),
    *("gemm", "conv", "conv_lines", "depthwise", "winograd", "conv_transpose", "integer_pool"),
)


def kernel(name: str) -> Kernel:
    """Return a kernel of the library for this processor, by its name."""
    found = library()
    if found is None:
        pytest.skip(str(unavailable_reason()))
    for family in FAMILIES:
        if name in found.family(family):
            return KERNEL(found.kernel(family, name))
    raise LookupError(name)


def layout_of(x: Array) -> StridedLayout:
    """Return where the elements of a view lie, from its first one on."""
    return StridedLayout(x.shape, tuple(s // x.itemsize for s in x.strides))


def _address(x: Array | None) -> int:
    return 0 if x is None else int(x.__array_interface__["data"][0])


class Bound:
    """A call with its numbers and pointers in memory."""

    def __init__(self, call: KernelCall, operands: Sequence[Array | None]) -> None:
        operands = [*operands, *[None] * (8 - len(operands))]
        self.run = kernel(call.kernel)
        self.numbers = np.array([int(n) for n in call.numbers], np.int64)
        self.pointers = (ctypes.c_void_p * len(operands))(*map(_address, operands))
        self.units = int(call.units)
        self.scratch = np.empty(int(call.scratch) + 128, np.uint8)
        self.operands = operands

    def __call__(self, begin: int = 0, end: int | None = None) -> None:
        """Do some units."""
        aligned = -(-_address(self.scratch) // 64) * 64
        end = self.units if end is None else end
        self.run(self.numbers.ctypes.data, self.pointers, aligned, begin, end)


def run(call: KernelCall, out: Array, *operands: Array | None) -> None:
    """Compute all units at once, then one by one from the last: the results are the same bits."""
    bound = Bound(call, (out, *operands))
    before = out.copy()
    bound()
    whole = out.copy()
    out[...] = before
    for unit in reversed(range(bound.units)):
        bound(unit, unit + 1)
    np.testing.assert_array_equal(_bits(out), _bits(whole), "whole against unit by unit")


def _bits(x: Array) -> Array:
    return np.frombuffer(np.ascontiguousarray(x).tobytes(), np.uint8)
