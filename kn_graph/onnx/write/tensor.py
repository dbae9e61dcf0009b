"""Arrays as TensorProtos: inside of the model, or in a file beside it."""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from kn_graph.dtype import DType

if TYPE_CHECKING:
    import onnx

__all__ = ["DataFile", "stored_bytes", "tensor_proto"]

Array = np.ndarray[Any, Any]

ALIGNMENT = 4096
"""Of tensors in a data file, so that each can be mapped by itself."""
INLINE_BYTES = 1024
"""Smaller tensors stay in the model: shape inference reads them."""
CHUNK_BYTES = 1 << 24


def stored_bytes(array: Array) -> int:
    """Return how many bytes of a file an array takes; strings count as nothing."""
    dtype = DType.from_numpy(array.dtype)
    return (array.size * dtype.bits + 7) // 8


def tensor_proto(name: str, array: Array, data: DataFile | None = None) -> onnx.TensorProto:
    """Return an array as a tensor of the model.

    Args:
        name: of the tensor.
        array: the values.
        data: where large tensors go instead.
    """
    import onnx

    dtype = DType.from_numpy(array.dtype)
    proto = onnx.TensorProto(name=name, data_type=dtype.onnx_code, dims=array.shape)
    if dtype is DType.STRING:
        proto.string_data.extend(s.encode("utf-8", "surrogateescape") for s in array.ravel())
    elif data is not None and stored_bytes(array) >= INLINE_BYTES:
        data.add(proto, array)
    else:
        proto.raw_data = _bytes_of(array)
    return proto


class DataFile:
    """A file of external data, written tensor by tensor.

    Args:
        file: open for writing.
        location: how the model calls it.
    """

    def __init__(self, file: BinaryIO, location: str) -> None:
        self._file, self._location, self._end = file, location, 0

    def add(self, proto: onnx.TensorProto, array: Array) -> None:
        """Write an array to the end of the file and refer to it."""
        padding = -self._end % ALIGNMENT
        self._file.write(bytes(padding))
        offset, length = self._end + padding, stored_bytes(array)
        for part in _parts(array):
            self._file.write(_bytes_of(part))
        self._end = offset + length
        proto.data_location = proto.EXTERNAL
        entries = {"location": self._location, "offset": str(offset), "length": str(length)}
        for key, value in entries.items():
            entry = proto.external_data.add()
            entry.key, entry.value = key, value


def _parts(array: Array) -> list[Array]:
    """Cut a large array so that no copy of the whole of it is made."""
    if not array.flags.c_contiguous:
        array = np.ascontiguousarray(array)
    step = CHUNK_BYTES // 8 * 8
    flat = array.reshape(-1)
    return [flat[i : i + step] for i in range(0, flat.size, step)]


def _bytes_of(array: Array) -> bytes:
    dtype = DType.from_numpy(array.dtype)
    if dtype.bits < 8:
        return _packed(array, dtype.bits)
    if sys.byteorder == "big":
        array = array.byteswap()
    return array.tobytes()


def _packed(array: Array, bits: int) -> bytes:
    """Pack numbers of 2, 4 or 6 bits from the lowest bit on."""
    group = math.lcm(bits, 8) // bits
    codes = np.ascontiguousarray(array).view(np.uint8).reshape(-1) & (2**bits - 1)
    padded = np.zeros((-(-codes.size // group), group), np.uint32)
    padded.reshape(-1)[: codes.size] = codes
    words = np.zeros(len(padded), np.uint32)
    for i in range(group):
        words |= padded[:, i] << (bits * i)
    count = group * bits // 8
    columns = [(words >> (8 * i) & 255).astype(np.uint8) for i in range(count)]
    return np.stack(columns, 1).tobytes()[: (codes.size * bits + 7) // 8]
