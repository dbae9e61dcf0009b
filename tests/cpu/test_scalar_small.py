"""Floats of 8 bits and integers of less than a byte in native scalar programs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kn_cpu import native
from kn_cpu.scalar import ScalarRefusal, compile_program
from kn_graph.cast import cast_array
from kn_graph.dtype import DType
from kn_graph.ops.elementwise import Binary, BitCast, Cast
from kn_plan.program import ProgramBuilder, ScalarProgram
from tests.cpu.test_scalar import execute

pytestmark = pytest.mark.skipif(not native.available(), reason=str(native.unavailable_reason()))

Array = np.ndarray[Any, Any]
ISAS = native.available()
FLOATS = [d for d in DType if d.name.startswith("FLOAT8E") and d is not DType.FLOAT8E8M0]
INTEGERS = [DType.INT4, DType.UINT4, DType.INT2, DType.UINT2]


def cast(source: DType, *casts: Cast | BitCast) -> ScalarProgram:
    builder = ProgramBuilder()
    register = builder.input(source)
    for op in casts:
        register = builder.apply(op, [register], op.dtype)
    return builder.build([register])


def converted(x: Array, *casts: Cast | BitCast, isa: str = ISAS[-1]) -> Array:
    out = np.empty(x.shape, casts[-1].dtype.numpy)
    program = cast(DType.from_numpy(x.dtype), *casts)
    execute(program, [out], [x], native.load(isa))
    return out


def assert_same(got: Array, want: Array) -> None:
    assert got.dtype == want.dtype
    x, y = got.astype(np.float32), want.astype(np.float32)
    np.testing.assert_array_equal(x, y)
    number = ~np.isnan(y)
    np.testing.assert_array_equal(np.signbit(x[number]), np.signbit(y[number]))


def floats() -> Array:
    """Return floats of all sizes: those of 16 bits, and what is beside them."""
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)
    halves = halves[~np.isnan(halves)]
    beside = [np.nextafter(halves, np.float32(side)) for side in (-np.inf, np.inf)]
    powers = np.float32(2) ** np.arange(-149, 128, dtype=np.float32)
    special = np.array([np.inf, -np.inf, np.nan], np.float32)
    return np.concatenate([halves, *beside, powers, -1.5 * powers, special])


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("saturate", [True, False])
@pytest.mark.parametrize("dtype", FLOATS)
def test_rounding_to_floats_of_8_bits(dtype: DType, saturate: bool, isa: str) -> None:
    x, op = floats(), Cast(dtype, saturate)
    want = cast_array(x, dtype, saturate=saturate)
    assert_same(converted(x, op, isa=isa), want)
    assert_same(converted(x, op, Cast(DType.FLOAT32), isa=isa), want.astype(np.float32))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("dtype", FLOATS)
def test_every_float_of_8_bits(dtype: DType, isa: str) -> None:
    x = np.arange(256, dtype=np.uint8).view(dtype.numpy)
    for target in (DType.FLOAT32, DType.FLOAT16, *FLOATS):
        if target is not dtype:
            assert_same(converted(x, Cast(target), isa=isa), cast_array(x, target))
    finite = x[np.isfinite(x.astype(np.float32))]
    for target in (DType.INT32, DType.BOOL):
        np.testing.assert_array_equal(converted(finite, Cast(target)), cast_array(finite, target))


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_of_less_than_a_byte(dtype: DType) -> None:
    whole = np.arange(-300, 300)
    for source in (np.int8, np.uint8, np.int32, np.int64, np.float32, np.float64, np.float16):
        x = whole.astype(source)
        if x.dtype.kind == "f":
            x = np.concatenate([(whole * 0.37).astype(source), x])
        want = cast_array(x, dtype)
        got = converted(x, Cast(dtype))
        np.testing.assert_array_equal(got.astype(np.int8), want.astype(np.int8))
        back = converted(want, Cast(DType.from_numpy(x.dtype)))
        np.testing.assert_array_equal(back, cast_array(want, DType.from_numpy(x.dtype)))
    far = np.array([2.0**31 + 5, -(2.0**40) - 3, 1e15 + 1])
    np.testing.assert_array_equal(
        converted(far, Cast(dtype)).astype(np.int8), cast_array(far, dtype).astype(np.int8)
    )


def test_other_bits_of_the_byte_do_not_matter() -> None:
    raw = np.arange(256, dtype=np.uint8)
    for dtype in INTEGERS:
        x = raw.view(dtype.numpy)
        np.testing.assert_array_equal(converted(x, Cast(DType.INT32)), x.astype(np.int32))
        assert converted(x, Cast(DType.INT32), Cast(dtype)).view(np.uint8).max() < 1 << dtype.bits
    signed, unsigned = raw.view(DType.INT4.numpy), raw.view(DType.UINT4.numpy)
    got = converted(signed, BitCast(DType.UINT4))
    np.testing.assert_array_equal(got.astype(np.uint8), unsigned.astype(np.uint8))


def test_arithmetic_of_floats_of_8_bits_is_refused() -> None:
    builder = ProgramBuilder()
    x = builder.input(DType.FLOAT8E5M2)
    program = builder.build([builder.apply(Binary("add"), [x, x], DType.FLOAT8E5M2)])
    assert isinstance(compile_program(program), ScalarRefusal)
