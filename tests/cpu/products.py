"""What the tests of products and convolutions share."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from kn_cpu.axes import KernelCall
from kn_cpu.native import library, unavailable_reason
from kn_cpu.product import REGISTERS, Registers
from kn_cpu.scalar import ScalarKernel, compile_program
from kn_graph.dtype import DType
from kn_graph.ops.elementwise import Binary, Unary
from kn_plan.program import ProgramBuilder
from tests.cpu.rows import Bound

Array = np.ndarray[Any, Any]


def registers() -> Registers:
    """Return the registers of the library that is tested."""
    found = library()
    if found is None:
        pytest.skip(str(unavailable_reason()))
    return REGISTERS[found.isa]


def run_call(call: KernelCall, *pointers: Array | None, out: int) -> None:
    """Compute all units at once, then one by one from the last: the results are the same bits.

    Args:
        call: the kernel.
        pointers: in its order.
        out: which of them is written.
    """
    target = pointers[out]
    assert target is not None
    bound = Bound(call, pointers)
    bound()
    whole = target.copy()
    target[...] = np.float32(-77)
    for unit in reversed(range(bound.units)):
        bound(unit, unit + 1)
    np.testing.assert_array_equal(target.view(np.int32), whole.view(np.int32), "bits of units")


def numbers(rng: np.random.Generator, *shape: int) -> Array:
    """Return random float32 numbers."""
    return rng.standard_normal(shape).astype(np.float32)


def channels_last(x: Array) -> Array:
    """Return [N, C, *spatial] whose channels lie side by side."""
    return np.moveaxis(np.ascontiguousarray(np.moveaxis(x, 1, -1)), -1, 1)


def assert_sums(got: Array, want: Array, magnitude: Array, terms: int, factor: float = 1.0) -> None:
    """Require sums of products, rounded as float32 rounds.

    Args:
        got: what a kernel gives.
        want: the same in float64.
        magnitude: the sums of the absolute values.
        terms: how many products a sum has.
        factor: of a kernel that is less exact than a sum of products.
    """
    unit = 2.0**-24
    growth = factor * (2 + np.sqrt(terms + 1))
    bound = unit * (abs(want) + growth * (magnitude + abs(want))) + 2.0**-149
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    finite = np.isfinite(want)
    np.testing.assert_array_equal(got[~finite], want[~finite].astype(np.float32))
    worst = (abs(got[finite] - want[finite]) - bound[finite]).max(initial=-1)
    assert worst <= 0, f"beyond the bound by {worst}"


def gelu_program() -> ScalarKernel:
    """Return gelu(x * s) + r as a program."""
    builder, f32 = ProgramBuilder(), DType.FLOAT32
    x, s, r = (builder.input(f32) for _ in range(3))
    scaled = builder.apply(Binary("mul"), [x, s], f32)
    active = builder.apply(Unary("gelu"), [scaled], f32)
    kernel = compile_program(builder.build([builder.apply(Binary("add"), [active, r], f32)]))
    assert isinstance(kernel, ScalarKernel)
    return kernel


def gelu(x: Array) -> Array:
    """Return it in float64."""
    return x * np.vectorize(lambda v: 0.5 * (1 + math.erf(v / math.sqrt(2))))(x)
