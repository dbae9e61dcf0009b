"""Turn TensorProtos into NumPy arrays, without reading large weights.

Whole-byte elements in a mapped file become views on the mapping: nothing is read until somebody
computes with them. Such a view may be misaligned for its type (`flags.aligned` is False), as a file
may place bytes anywhere: NumPy handles this, native code that takes pointers has to look.
Everything else (typed fields, packed 2-, 4- and 6-bit elements, strings) becomes an array of its
own. Every size that a file claims is checked against the bytes it has before memory is taken.
"""

from __future__ import annotations

import math
import os
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from kn_graph.dtype import DType
from kn_graph.errors import (
    DTypeError,
    ExternalDataError,
    KnError,
    MalformedModelError,
    OutOfMemoryError,
    UnsupportedModelError,
)
from kn_graph.onnx.file import ModelFile, RawData

if TYPE_CHECKING:
    from onnx import SparseTensorProto, TensorProto

__all__ = ["ExternalMode", "LoadedTensor", "TensorReader"]

ExternalMode: TypeAlias = "bool | Literal['dummy']"
"""Read external data (True), refuse it (False), or invent it ('dummy')."""

_Array: TypeAlias = npt.NDArray[Any]

_EXTERNAL = 1  # TensorProto.EXTERNAL
_MAX_RANK = 64  # NumPy's limit
_MAX_BYTES = 2**63 - 1
_MAX_NUMBER_DIGITS = 19
_SPARSE_MIN_BYTES = 64 * 2**20
_SPARSE_MAX_GROWTH = 1000
_DUMMY_DEVIATION = 0.02
_DUMMY_PERIOD = 65_537  # a prime, so that the rows of a matrix do not repeat

# typed field -> the type of its entries in the message
_ENTRY_TYPES: dict[str, type[np.generic] | None] = {
    "float_data": np.float32,
    "int32_data": np.int32,
    "int64_data": np.int64,
    "uint64_data": np.uint64,
    "double_data": np.float64,
    "string_data": None,
}

# element type -> the typed field that holds it; the small types are all in int32_data
_TYPED_FIELDS = dict.fromkeys(DType, "int32_data") | {
    DType.FLOAT32: "float_data",
    DType.COMPLEX64: "float_data",
    DType.INT64: "int64_data",
    DType.UINT32: "uint64_data",
    DType.UINT64: "uint64_data",
    DType.FLOAT64: "double_data",
    DType.COMPLEX128: "double_data",
    DType.STRING: "string_data",
}
_COMPLEX = (DType.COMPLEX64, DType.COMPLEX128)
_PACKED_IN_ENTRIES = (2, 4)  # bits of the types of which one int32_data entry holds a whole byte
_EXTERNAL_KEYS = frozenset({"location", "offset", "length", "checksum"})


@dataclass(frozen=True, eq=False)
class LoadedTensor:
    """The value of a tensor.

    Attributes:
        array: read-only and C-contiguous, of the NumPy type of its DType; rank 0 stays rank 0.
        origin: (absolute path, offset, length) if the array is a view on a mapped file, else None.
            Equal origins, dtypes and shapes mean equal values, known without reading them.
    """

    array: _Array
    origin: tuple[str, int, int] | None = None

    def __post_init__(self) -> None:
        """Protect the array against writing."""
        self.array.flags.writeable = False


class TensorReader:
    """Read the tensors of one model.

    Errors name the tensor; whoever loads the model adds the name of the file.

    Args:
        model_file: the model that the tensors belong to.
        external_data: what to do about data in other files. True reads it; False refuses it;
            'dummy' invents it without touching a file, the same for the same tensor name: small
            normal numbers for floats, zeros for integers.
    """

    def __init__(self, model_file: ModelFile, external_data: ExternalMode = True) -> None:
        """Keep the model and the mode; nothing is read yet."""
        self._file = model_file
        self._mode: ExternalMode = external_data

    def array(self, tensor: TensorProto) -> LoadedTensor:
        """Return the value of a tensor of the model.

        Raises:
            MalformedModelError: sizes, type and data contradict each other or the ONNX text.
            ExternalDataError: external data is not allowed, missing or too short.
            OutOfMemoryError: invented data would not fit this machine.
        """
        try:
            return self._read(tensor)
        except KnError as error:
            error.add_context(f"tensor {tensor.name!r}")
            raise

    def sparse(self, tensor: SparseTensorProto) -> LoadedTensor:
        """Return the dense value of a sparse tensor of the model.

        Raises:
            MalformedModelError: indices, values and sizes contradict each other.
            UnsupportedModelError: the dense value is unreasonably larger than the file.
        """
        values, indices = self.array(tensor.values).array, self.array(tensor.indices).array
        try:
            return LoadedTensor(_densify(values, indices, tensor.dims))
        except KnError as error:
            error.add_context(f"sparse tensor {tensor.values.name!r}")
            raise

    def _read(self, tensor: TensorProto) -> LoadedTensor:
        if tensor.HasField("segment"):
            raise MalformedModelError("it is a segment of a tensor; store the tensor in one piece")
        dtype = _dtype(tensor.data_type)
        shape = _shape(tensor.dims, dtype.itemsize)
        typed = [f.name for f, _ in tensor.ListFields() if f.name in _ENTRY_TYPES]
        raw = self._file.raw_data(tensor)
        stores = typed + ["raw_data"] * (raw is not None and raw.length > 0)
        external = tensor.data_location == _EXTERNAL
        if len(stores) + external > 1:
            where = " and ".join(stores + ["external data"] * external)
            raise MalformedModelError(f"its data is given more than once: in {where}")
        if external:
            return self._read_external(tensor, dtype, shape)
        if typed:
            return _from_field(tensor, typed[0], dtype, shape)
        return _from_raw(raw, dtype, shape)

    def _read_external(
        self, tensor: TensorProto, dtype: DType, shape: tuple[int, ...]
    ) -> LoadedTensor:
        location, offset, length = _external_entries(tensor)
        if self._mode is False:
            raise ExternalDataError(
                f"its data is in the external file {location!r}, and external_data=False refuses "
                "to read that; use external_data=True, or 'dummy' to invent the values"
            )
        if dtype is DType.STRING:
            raise ExternalDataError("strings cannot be stored as external data")
        expected = _stored_bytes(math.prod(shape), dtype)
        if length not in (None, expected):
            raise ExternalDataError(
                f"expected {expected} bytes for {_describe(dtype, shape)}, "
                f"got a length of {length} in the external file {location!r}"
            )
        if self._mode == "dummy":
            return LoadedTensor(_invent(tensor.name, dtype, shape))
        content = self._file.external(location)
        if offset + expected > len(content.data):
            raise ExternalDataError(
                f"expected bytes {offset} to {offset + expected} of the external file "
                f"{location!r}, got a file of {len(content.data)} bytes; it is truncated or "
                "belongs to another model"
            )
        return _from_raw(RawData(content, offset, expected), dtype, shape)


def _dtype(code: int) -> DType:
    try:
        return DType.from_onnx(code)
    except DTypeError as error:
        raise MalformedModelError(f"{error}; export the model again") from None


def _shape(dims: Sequence[int], itemsize: int) -> tuple[int, ...]:
    """Return the sizes; refuse what no array can have."""
    shape = tuple(dims)
    if len(shape) > _MAX_RANK:
        raise MalformedModelError(f"expected at most {_MAX_RANK} axes, got {len(shape)}")
    if min(shape, default=0) < 0:
        raise MalformedModelError(f"expected sizes of at least 0, got {list(shape)}")
    # NumPy multiplies the non-zero sizes even if another one is zero.
    claimed = math.prod([size for size in shape if size]) * itemsize
    if claimed > _MAX_BYTES:
        raise MalformedModelError(f"its sizes {list(shape)} ask for {claimed} bytes")
    return shape


def _stored_bytes(count: int, dtype: DType) -> int:
    return (count * dtype.bits + 7) // 8


def _describe(dtype: DType, shape: tuple[int, ...]) -> str:
    return f"{dtype}{list(shape)}"


def _from_raw(raw: RawData | None, dtype: DType, shape: tuple[int, ...]) -> LoadedTensor:
    count, got = math.prod(shape), 0 if raw is None else raw.length
    if dtype is DType.STRING and (got or count):
        raise MalformedModelError(
            f"expected {count} strings in string_data, got {got} bytes of raw_data"
        )
    if got != (expected := _stored_bytes(count, dtype)):
        raise MalformedModelError(
            f"expected {expected} bytes for {_describe(dtype, shape)}, got {got} bytes of data"
        )
    if raw is None or count == 0:
        return LoadedTensor(np.zeros(shape, dtype.numpy))
    stored = np.frombuffer(raw.content.data, np.uint8, raw.length, raw.offset)
    if dtype.bits < 8:
        return LoadedTensor(_unpack(stored, dtype.bits, count).view(dtype.numpy).reshape(shape))
    if dtype is DType.BOOL and stored.max() > 1:
        # A NumPy bool that is neither 0 nor 1 would be neither equal to True nor to False.
        return LoadedTensor(stored.astype(np.bool_).reshape(shape))
    return LoadedTensor(stored.view(dtype.numpy).reshape(shape), raw.origin)


def _unpack(stored: npt.NDArray[np.uint8], bits: int, count: int) -> npt.NDArray[np.uint8]:
    """Return `count` numbers of 2, 4 or 6 bits, packed from the lowest bit on, a byte each."""
    group = math.lcm(bits, 8) // 8
    padded = np.zeros((-(-stored.size // group), group), np.uint8)
    padded.reshape(-1)[: stored.size] = stored
    words: _Array = padded[:, 0]
    for index in range(1, group):
        words = words | padded[:, index].astype(np.uint32) << 8 * index
    unpacked = np.empty((len(words), 8 * group // bits), np.uint8)
    for index in range(unpacked.shape[1]):
        unpacked[:, index] = words >> bits * index & 2**bits - 1
    return unpacked.reshape(-1)[:count].copy()


def _from_field(
    tensor: TensorProto, field: str, dtype: DType, shape: tuple[int, ...]
) -> LoadedTensor:
    """Return the value held by one of the typed fields such as `float_data`."""
    if field != _TYPED_FIELDS[dtype]:
        raise MalformedModelError(
            f"expected the data of {dtype} in {_TYPED_FIELDS[dtype]} or raw_data, got {field}"
        )
    entries, count = getattr(tensor, field), math.prod(shape)
    expected = _stored_bytes(count, dtype) if dtype.bits in _PACKED_IN_ENTRIES else count
    expected *= 2 if dtype in _COMPLEX else 1
    if len(entries) != expected:
        raise MalformedModelError(
            f"expected {expected} entries in {field} for {_describe(dtype, shape)}, "
            f"got {len(entries)}"
        )
    if dtype is DType.STRING:
        return LoadedTensor(_strings(entries).reshape(shape))
    numbers = np.array(entries, _ENTRY_TYPES[field])
    if dtype.numpy == numbers.dtype:
        return LoadedTensor(numbers.reshape(shape))
    if dtype in _COMPLEX:
        return LoadedTensor(numbers.view(dtype.numpy).reshape(shape))
    return LoadedTensor(_narrow(numbers, field, dtype, count).reshape(shape))


def _strings(entries: Sequence[bytes]) -> _Array:
    array = np.empty(len(entries), np.object_)
    array[:] = [entry.decode("utf-8", "surrogateescape") for entry in entries]
    return array


def _narrow(numbers: _Array, field: str, dtype: DType, count: int) -> _Array:
    """Return elements from the wider integers that hold their bit patterns."""
    bits = 8 if dtype.bits in _PACKED_IN_ENTRIES else dtype.bits
    # Writers differ in whether a pattern with its highest bit set is written as negative. Unsigned
    # 6-bit patterns are required by onnx.proto.
    low = 0 if bits == 6 or numbers.dtype.kind == "u" else -(2 ** (bits - 1))
    if numbers.min() < low or numbers.max() >= 2**bits:
        raise MalformedModelError(
            f"expected entries of {field} from {low} to {2**bits - 1} for {dtype}, "
            f"got {numbers.min()} to {numbers.max()}"
        )
    if dtype is DType.BOOL:
        return numbers.astype(np.bool_)
    patterns = numbers.astype(np.dtype(f"u{max(bits, 8) // 8}"))
    if dtype.bits in _PACKED_IN_ENTRIES:
        patterns = _unpack(patterns, dtype.bits, count)
    return patterns.view(dtype.numpy)


def _external_entries(tensor: TensorProto) -> tuple[str, int, int | None]:
    """Return location, offset and length; the checksum is optional and not verified."""
    entries: dict[str, str] = {}
    for entry in tensor.external_data:
        if entry.key not in _EXTERNAL_KEYS:
            raise ExternalDataError(
                f"unknown key {entry.key!r} of external data; "
                f"expected {', '.join(sorted(_EXTERNAL_KEYS))}"
            )
        if entry.key in entries:
            raise ExternalDataError(f"the key {entry.key!r} of external data is given twice")
        entries[entry.key] = entry.value
    if "location" not in entries:
        raise ExternalDataError("its data is external, but no location is given; export it again")
    length = _number(entries, "length") if "length" in entries else None
    return entries["location"], _number(entries, "offset"), length


def _number(entries: dict[str, str], key: str) -> int:
    text = entries.get(key, "0")
    if not (text.isascii() and text.isdigit() and len(text) <= _MAX_NUMBER_DIGITS):
        raise ExternalDataError(f"expected {key} of external data as a number, got {text[:40]!r}")
    return int(text)


def _invent(name: str, dtype: DType, shape: tuple[int, ...]) -> _Array:
    """Return values of the right size for data that is not read."""
    size = math.prod(shape) * dtype.itemsize
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if size > memory:
        raise OutOfMemoryError(
            f"inventing {_describe(dtype, shape)} takes {size} bytes, this machine has {memory}"
        )
    if not dtype.is_float and dtype not in _COMPLEX:
        return np.zeros(shape, dtype.numpy)
    random = np.random.default_rng(zlib.crc32(name.encode()))
    tile = random.normal(0, _DUMMY_DEVIATION, min(math.prod(shape), _DUMMY_PERIOD))
    if dtype is DType.FLOAT8E8M0:
        tile = np.ones_like(tile)  # the type has neither zero nor negative numbers
    return np.resize(tile.astype(dtype.numpy), shape)


def _densify(values: _Array, indices: _Array, dims: Sequence[int]) -> _Array:
    shape = _shape(dims, values.itemsize)
    dense_bytes = math.prod(shape) * values.itemsize
    limit = max(_SPARSE_MIN_BYTES, _SPARSE_MAX_GROWTH * values.nbytes)
    if dense_bytes > limit:
        raise UnsupportedModelError(
            f"{values.size} values would become a dense tensor {list(shape)} of {dense_bytes} "
            f"bytes, more than the {limit} allowed; export it as a dense tensor if that is meant"
        )
    layouts = ((values.size,), (values.size, len(shape)))
    if values.ndim != 1 or indices.dtype != np.int64 or indices.shape not in layouts:
        raise MalformedModelError(
            f"expected values [NNZ] and int64 indices [NNZ] or [NNZ, {len(shape)}], got values "
            f"{list(values.shape)} and {indices.dtype} indices {list(indices.shape)}"
        )
    bounds = np.array([math.prod(shape)] if indices.ndim == 1 else shape, np.int64)
    columns = indices.reshape(values.size, len(bounds))
    if ((columns < 0) | (columns >= bounds)).any():
        raise MalformedModelError(f"an index is outside the bounds of the sizes {list(shape)}")
    strides = [math.prod(bounds.tolist()[axis + 1 :]) for axis in range(len(bounds))]
    flat = columns @ np.array(strides, np.int64)
    if (np.diff(flat) <= 0).any():
        raise MalformedModelError("its indices are not in ascending order without repetition")
    dense = np.full(math.prod(shape), "" if values.dtype.kind == "O" else 0, values.dtype)
    dense[flat] = values
    return dense.reshape(shape)
