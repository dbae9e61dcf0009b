"""C++ types of elements: as they lie in memory, and as kernels compute with them."""

from __future__ import annotations

from collections.abc import Mapping

from kn_graph.dtype import DType, Kind
from kn_plan.calls import UnsupportedError

__all__ = ["RAW_TYPES", "SMALL_FLOATS", "compute_type", "raw_type", "storage_type", "wide"]

SMALL_FLOATS = frozenset(
    {DType.FLOAT8E4M3FN, DType.FLOAT8E4M3FNUZ, DType.FLOAT8E5M2, DType.FLOAT8E5M2FNUZ}
)

FEW_BITS = frozenset({DType.INT4, DType.INT2})
"""Signed integers that are computed with as int8; unsigned ones are uint8 as they are."""

_STORAGE: Mapping[DType, str] = {
    DType.FLOAT32: "float",
    DType.FLOAT64: "double",
    DType.FLOAT16: "half_t",
    DType.BFLOAT16: "bfloat_t",
    DType.BOOL: "bool",
    **{d: f"{d.text}_t" for d in DType if d.is_int and d.bits >= 8},
    **{d: f"{d.text}_t" for d in SMALL_FLOATS},
    **{d: f"{d.text}_t" for d in FEW_BITS},
    **dict.fromkeys((DType.UINT4, DType.UINT2), "uint8_t"),
}
"""Integers of fewer than 8 bits lie in a byte each."""

RAW_TYPES: Mapping[int, str] = {1: "uint8_t", 2: "uint16_t", 4: "uint32_t", 8: "uint64_t"}
"""What moves elements of any type, by their bytes."""

_NARROW = SMALL_FLOATS | {DType.FLOAT16, DType.BFLOAT16}


def storage_type(dtype: DType) -> str:
    """Return the type of an element in memory.

    Raises:
        UnsupportedError: kernels do not compute with such elements.
    """
    try:
        return _STORAGE[dtype]
    except KeyError:
        raise UnsupportedError(f"there is no kernel for {dtype}") from None


def raw_type(dtype: DType) -> str:
    """Return the type that moves elements without a look at them.

    Raises:
        UnsupportedError: they are no numbers of up to 8 bytes.
    """
    if dtype.kind in (Kind.STRING, Kind.COMPLEX):
        raise UnsupportedError(f"there is no kernel for {dtype}")
    return RAW_TYPES[dtype.itemsize]


def wide(dtype: DType) -> DType:
    """Return the type that is computed with: float32 for narrow floats, int8 for few bits."""
    if dtype in FEW_BITS:
        return DType.INT8
    return DType.FLOAT32 if dtype in _NARROW else dtype


def compute_type(dtype: DType) -> str:
    """Return its name.

    Raises:
        UnsupportedError: kernels do not compute with such elements.
    """
    return storage_type(wide(dtype))
