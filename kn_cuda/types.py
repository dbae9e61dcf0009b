"""C++ types of elements: as they lie in memory, and as kernels compute with them."""

from __future__ import annotations

from collections.abc import Mapping

from kn_graph.dtype import DType, Kind
from kn_plan.calls import UnsupportedError

__all__ = ["RAW_TYPES", "compute_type", "raw_type", "storage_type", "wide"]

_STORAGE: Mapping[DType, str] = {
    DType.FLOAT32: "float",
    DType.FLOAT64: "double",
    DType.FLOAT16: "half_t",
    DType.BFLOAT16: "bfloat_t",
    DType.BOOL: "bool",
    **{d: f"{d.text}_t" for d in DType if d.is_int and d.bits >= 8},
}

RAW_TYPES: Mapping[int, str] = {1: "uint8_t", 2: "uint16_t", 4: "uint32_t", 8: "uint64_t"}
"""What moves elements of any type, by their bytes."""

_NARROW = frozenset({DType.FLOAT16, DType.BFLOAT16})


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
    """Return the type that is computed with: float32 for narrow floats."""
    return DType.FLOAT32 if dtype in _NARROW else dtype


def compute_type(dtype: DType) -> str:
    """Return its name.

    Raises:
        UnsupportedError: kernels do not compute with such elements.
    """
    return storage_type(wide(dtype))
