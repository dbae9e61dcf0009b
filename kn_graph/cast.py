"""Conversion between element types, as ONNX Cast defines it."""

from __future__ import annotations

from typing import Any, Literal

import ml_dtypes
import numpy as np

from kn_graph.dtype import DType, Kind
from kn_graph.errors import ExecutionError

__all__ = ["RoundMode", "bit_cast_array", "cast_array"]

Array = np.ndarray[Any, Any]
RoundMode = Literal["up", "down", "nearest"]

NATIVE_FLOATS = frozenset({DType.FLOAT16, DType.FLOAT32, DType.FLOAT64})
SATURATING = frozenset(
    {DType.FLOAT8E4M3FN, DType.FLOAT8E4M3FNUZ, DType.FLOAT8E5M2, DType.FLOAT8E5M2FNUZ}
)


def cast_array(
    x: Array, dtype: DType, *, saturate: bool = True, round_mode: RoundMode = "up"
) -> Array:
    """Convert an array.

    Args:
        x: any array of an ONNX element type.
        dtype: the element type wanted.
        saturate: for float8 targets, clip what is too large (infinities too) to the largest finite
            value; otherwise it becomes an infinity or NaN.
        round_mode: to float8e8m0, which holds powers of two: away from zero, towards zero, or to
            the nearest with ties up.

    Raises:
        ExecutionError: a string is no number.
    """
    source = DType.from_numpy(x.dtype)
    if source is dtype:
        return x
    with np.errstate(all="ignore"):
        if source is DType.STRING:
            return _from_strings(x, dtype)
        if dtype is DType.STRING:
            return _to_strings(x)
        if dtype is DType.BOOL:
            return np.asarray(x.astype(_wide(source)) != 0)
        wide = x.astype(_wide(source)) if _wide(source) != x.dtype else x
        if source.kind is Kind.COMPLEX and dtype.kind is not Kind.COMPLEX:
            wide = wide.real
        if dtype is DType.FLOAT8E8M0:
            return _to_power_of_two(wide, saturate, round_mode)
        if dtype in SATURATING and saturate:
            limit = float(ml_dtypes.finfo(dtype.numpy).max)  # type: ignore[no-untyped-call]
            wide = np.where(np.isnan(wide), wide, np.clip(wide, -limit, limit))
        if dtype.kind in (Kind.INT, Kind.UINT) and dtype.bits < 8:
            return _to_sub_byte(wide, dtype)
        return np.asarray(wide.astype(dtype.numpy))


def _wide(source: DType) -> np.dtype[Any]:
    """The NumPy type that holds every value of a type and that NumPy itself computes with."""
    if source.kind is Kind.FLOAT and source not in NATIVE_FLOATS:
        return np.dtype(np.float32)
    if source.kind in (Kind.INT, Kind.UINT) and source.bits < 8:
        return np.dtype(np.int8)
    return source.numpy


def _to_power_of_two(x: Array, saturate: bool, round_mode: RoundMode) -> Array:
    """Round to 2**e with -127 <= e <= 127 (ONNX Cast-24, table of FLOAT8E8M0)."""
    mantissa, exponent = np.frexp(x.astype(np.float64))  # x = mantissa * 2**exponent, in [0.5, 1)
    floor = exponent - 1
    up = {"up": mantissa > 0.5, "down": np.zeros_like(mantissa, bool), "nearest": mantissa >= 0.75}
    power = np.where(np.asarray(x) == 0, -128, floor + up[round_mode])
    outside = np.isinf(x) | (power > 127) | (power < -127)
    power = np.where(np.isposinf(x), 127, np.clip(power, -127, 127))
    code = np.where(np.isnan(x) | (outside & (not saturate)), 255, power + 127)
    return code.astype(np.uint8).view(DType.FLOAT8E8M0.numpy)


def _to_sub_byte(x: Array, dtype: DType) -> Array:
    """Truncate floats, keep the low bits, extend the sign."""
    whole = x.astype(np.int64) & ((1 << dtype.bits) - 1)
    if dtype.kind is Kind.INT:
        half = 1 << (dtype.bits - 1)
        whole = (whole ^ half) - half
    return np.asarray(whole.astype(np.int8).astype(dtype.numpy))


def _from_strings(x: Array, dtype: DType) -> Array:
    parse: Any = float
    if dtype.kind in (Kind.INT, Kind.UINT):
        parse = int
    elif dtype.kind is Kind.COMPLEX:
        parse = complex
    try:
        numbers = [parse(s) for s in x.ravel().tolist()]
    except ValueError as error:
        raise ExecutionError(f"cannot convert to {dtype}: {error}") from None
    if dtype is DType.BOOL:
        return np.array([n != 0 for n in numbers], bool).reshape(x.shape)
    wide = np.array(numbers, object if parse is int else np.result_type(type(parse("0")), 0.0))
    return np.asarray(wide.astype(dtype.numpy)).reshape(x.shape)


def _to_strings(x: Array) -> Array:
    out = np.empty(x.size, object)
    out[:] = [str(e) for e in x.ravel()]
    return out.reshape(x.shape)


def bit_cast_array(x: Array, dtype: DType) -> Array:
    """Reinterpret the bits of each element as an element type of the same width."""
    if dtype.bits >= 8:
        return np.ascontiguousarray(x).view(dtype.numpy).reshape(x.shape)
    raw = np.ascontiguousarray(x).view(np.uint8).reshape(x.shape) & ((1 << dtype.bits) - 1)
    if dtype.kind is Kind.INT:
        half = 1 << (dtype.bits - 1)
        raw = ((raw.astype(np.int8) ^ half) - half).view(np.uint8)
    return raw.view(dtype.numpy)
