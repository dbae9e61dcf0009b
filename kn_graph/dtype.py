"""Element types: one row a type, tying the ONNX code, the NumPy type and the C name together."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

import ml_dtypes
import numpy as np

from kn_graph.errors import DTypeError

__all__ = ["DType", "DTypeLike", "Kind"]


class Kind(Enum):
    """What arithmetic an element type has."""

    FLOAT = "float"
    INT = "int"
    UINT = "uint"
    BOOL = "bool"
    COMPLEX = "complex"
    STRING = "string"


@dataclass(frozen=True)
class _Row:
    onnx: int
    kind: Kind
    bits: int
    numpy: np.dtype[Any]


def _row(onnx: int, kind: Kind, bits: int, numpy: Any) -> _Row:
    return _Row(onnx, kind, bits, np.dtype(numpy))


class DType(Enum):
    """Element type of a tensor.

    Sub-byte types (int4 and so on) take one byte an element in memory and `bits` in a file.
    Strings are object arrays of `str`.
    """

    FLOAT32 = _row(1, Kind.FLOAT, 32, np.float32)
    UINT8 = _row(2, Kind.UINT, 8, np.uint8)
    INT8 = _row(3, Kind.INT, 8, np.int8)
    UINT16 = _row(4, Kind.UINT, 16, np.uint16)
    INT16 = _row(5, Kind.INT, 16, np.int16)
    INT32 = _row(6, Kind.INT, 32, np.int32)
    INT64 = _row(7, Kind.INT, 64, np.int64)
    STRING = _row(8, Kind.STRING, 0, np.object_)
    BOOL = _row(9, Kind.BOOL, 8, np.bool_)
    FLOAT16 = _row(10, Kind.FLOAT, 16, np.float16)
    FLOAT64 = _row(11, Kind.FLOAT, 64, np.float64)
    UINT32 = _row(12, Kind.UINT, 32, np.uint32)
    UINT64 = _row(13, Kind.UINT, 64, np.uint64)
    COMPLEX64 = _row(14, Kind.COMPLEX, 64, np.complex64)
    COMPLEX128 = _row(15, Kind.COMPLEX, 128, np.complex128)
    BFLOAT16 = _row(16, Kind.FLOAT, 16, ml_dtypes.bfloat16)
    FLOAT8E4M3FN = _row(17, Kind.FLOAT, 8, ml_dtypes.float8_e4m3fn)
    FLOAT8E4M3FNUZ = _row(18, Kind.FLOAT, 8, ml_dtypes.float8_e4m3fnuz)
    FLOAT8E5M2 = _row(19, Kind.FLOAT, 8, ml_dtypes.float8_e5m2)
    FLOAT8E5M2FNUZ = _row(20, Kind.FLOAT, 8, ml_dtypes.float8_e5m2fnuz)
    UINT4 = _row(21, Kind.UINT, 4, ml_dtypes.uint4)
    INT4 = _row(22, Kind.INT, 4, ml_dtypes.int4)
    FLOAT4E2M1 = _row(23, Kind.FLOAT, 4, ml_dtypes.float4_e2m1fn)
    FLOAT8E8M0 = _row(24, Kind.FLOAT, 8, ml_dtypes.float8_e8m0fnu)
    UINT2 = _row(25, Kind.UINT, 2, ml_dtypes.uint2)
    INT2 = _row(26, Kind.INT, 2, ml_dtypes.int2)
    FLOAT6E2M3 = _row(27, Kind.FLOAT, 6, ml_dtypes.float6_e2m3fn)
    FLOAT6E3M2 = _row(28, Kind.FLOAT, 6, ml_dtypes.float6_e3m2fn)

    # plain attributes, not properties: these are read for every node of every graph
    onnx_code: int
    kind: Kind
    bits: int
    numpy: np.dtype[Any]
    itemsize: int
    is_float: bool
    is_int: bool
    text: str

    def __init__(self, row: _Row) -> None:
        self.onnx_code, self.kind, self.bits, self.numpy = row.onnx, row.kind, row.bits, row.numpy
        self.itemsize = row.numpy.itemsize
        self.is_float = row.kind is Kind.FLOAT
        self.is_int = row.kind in (Kind.INT, Kind.UINT)
        self.text = self.name.lower()

    __hash__ = object.__hash__  # there is one object a type; hashing its name takes longer

    @classmethod
    def from_onnx(cls, code: int) -> DType:
        """Return the type with this `TensorProto.DataType` code.

        Raises:
            DTypeError: the code is undefined or unknown.
        """
        try:
            return _BY_CODE[code]
        except KeyError:
            raise DTypeError(
                f"element type code {code} is not one of ONNX's TensorProto.DataType"
            ) from None

    @classmethod
    def from_numpy(cls, dtype: Any) -> DType:
        """Return the type of a NumPy (or ml_dtypes) dtype; object and str arrays are STRING.

        Raises:
            DTypeError: no ONNX element type corresponds.
        """
        dtype = np.dtype(dtype)
        found = _BY_NUMPY.get(dtype) or _BY_NUMPY.get(dtype.newbyteorder("="))
        if found is None and dtype.kind in "UST":
            return cls.STRING
        if found is None:
            raise DTypeError(f"NumPy dtype {dtype} has no ONNX element type")
        return found

    @classmethod
    def of(cls, given: DTypeLike) -> DType:
        """Return the type that is given, or named.

        Raises:
            DTypeError: it is no element type, or nothing has this name.
        """
        if isinstance(given, cls):
            return given
        if isinstance(given, str):
            return cls.parse(given)
        raise DTypeError(
            f"expected an element type or its name, such as 'float32', got {given!r}; "
            "DType.from_numpy takes those of NumPy"
        )

    @classmethod
    def parse(cls, text: str) -> DType:
        """Return the type named `text`, such as 'float32' or 'int64'."""
        try:
            return cls[text.upper()]
        except KeyError:
            names = ", ".join(d.text for d in cls)
            raise DTypeError(f"unknown element type {text!r}; expected one of {names}") from None

    def __str__(self) -> str:
        """Return the lower-case name, such as `float32`."""
        return self.text

    def __repr__(self) -> str:
        """Return the lower-case name, such as `float32`."""
        return self.text


DTypeLike = DType | str
"""An element type, or its name."""

_BY_CODE = {d.onnx_code: d for d in DType}
_BY_NUMPY = {d.numpy: d for d in DType}
