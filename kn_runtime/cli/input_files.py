"""Readers of files that hold an input of a model."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile, ZipFile

import numpy as np

from kn_graph.dtype import DType
from kn_graph.errors import KnError, UsageError
from kn_graph.types import OptionalType, SequenceType, TensorType, ValueType
from kn_graph.value import Value
from kn_runtime.images import IMAGE_SUFFIXES, ImageScaling, read_image
from kn_runtime.sounds import read_sound

if TYPE_CHECKING:
    from kn_graph.onnx.tensor import TensorReader

__all__ = ["input_suffixes", "read_input", "read_npz"]

Array = np.ndarray[Any, Any]


def read_input(value: Value | None, name: str, path: Path, scaling: ImageScaling) -> Any:
    """Return what a file holds for an input.

    Args:
        value: the input; None for an initializer that is fed.
        name: its name.
        path: a file whose suffix says what it is.
        scaling: of pictures.

    Raises:
        UsageError: the file is missing, damaged, or of an unknown kind.
        InputError: it does not fit the input.
    """
    type = None if value is None else value.type
    suffix = path.suffix.lower()
    if suffix in IMAGE_SUFFIXES:
        if not isinstance(type, TensorType):
            raise UsageError(
                f"input {name!r} is no tensor of known rank, so it cannot be a picture"
            )
        return read_image(path, name, type, scaling)
    reader = _READERS.get(suffix)
    if reader is None:
        known = ", ".join(input_suffixes())
        raise UsageError(f"--input {name}: {path} has none of the suffixes {known}")
    return _typed(_guarded(path, lambda: reader(path, name, type)), type)


def input_suffixes() -> tuple[str, ...]:
    """Return the suffixes of files that can be read."""
    return (*_READERS, *IMAGE_SUFFIXES)


def read_npz(path: Path) -> dict[str, Any]:
    """Return all arrays of an archive by name."""

    def read() -> dict[str, Any]:
        # given a path, NumPy leaves the file open where it is no archive
        with open(path, "rb") as file, ZipFile(file):
            file.seek(0)
            with np.load(file, allow_pickle=False) as archive:
                return {n: archive[n] for n in archive.files}

    found: dict[str, Any] = _guarded(path, read)
    return found


def _guarded(path: Path, read: Callable[[], Any]) -> Any:
    try:
        return read()
    except KnError:
        raise
    except FileNotFoundError:
        raise UsageError(f"there is no file {path}") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from None
    except (ValueError, EOFError, BadZipFile) as error:
        text = str(error).partition("\n")[0]
        raise UsageError(f"{path} is damaged, or not what its suffix says: {text}") from None


def _typed(x: Any, type: ValueType | None) -> Any:
    """Give arrays of bfloat16 and the like their type back: .npy files store bare bytes."""
    if isinstance(x, np.ndarray) and x.dtype.kind == "V" and isinstance(type, TensorType):
        wanted = type.dtype.numpy
        if (
            x.dtype.names is None
            and x.dtype.type is np.void
            and x.dtype.itemsize == wanted.itemsize
        ):
            return x.view(wanted)
    return x


def _read_npy(path: Path, name: str, type: ValueType | None) -> Array:
    with open(path, "rb") as file:
        array: Array = np.lib.format.read_array(file, allow_pickle=False)
        return array


def _read_npz_member(path: Path, name: str, type: ValueType | None) -> Any:
    members = read_npz(path)
    if name in members:
        return members[name]
    if len(members) == 1:
        return next(iter(members.values()))
    raise UsageError(f"{path} has no array {name!r}; it has {', '.join(members) or 'none'}")


def _read_proto(path: Path, name: str, type: ValueType | None) -> Any:
    """Read a TensorProto, or what the input's type asks for: a SequenceProto or OptionalProto."""
    import onnx
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    from kn_graph.onnx.file import ModelFile
    from kn_graph.onnx.tensor import TensorReader

    kinds: dict[Any, Any] = {SequenceType: onnx.SequenceProto, OptionalType: onnx.OptionalProto}
    proto = kinds.get(type.__class__, onnx.TensorProto)()
    try:
        proto.ParseFromString(path.read_bytes())
    except DecodeError:
        raise UsageError(f"{path} is no ONNX {proto.DESCRIPTOR.name}") from None
    holder = onnx.ModelProto(ir_version=8)
    holder.opset_import.add().version = 17
    return _proto_value(proto, TensorReader(ModelFile(holder, str(path))))


def _read_wav(path: Path, name: str, type: ValueType | None) -> Array:
    if not isinstance(type, TensorType):
        raise UsageError(f"input {name!r} is no tensor of known rank, so it cannot be a recording")
    return read_sound(path, name, type)


def _read_text(path: Path, name: str, type: ValueType | None) -> Any:
    """Read numbers, one row a line; of strings one a line, or all in one where there is one."""
    if not isinstance(type, TensorType):
        raise UsageError(f"input {name!r} is no tensor of known rank, so it cannot be a text")
    text = path.read_text(encoding="utf-8")
    if type.dtype is DType.STRING:
        whole = all(size == 1 for size in type.shape)
        lines = [text] if whole else text.splitlines()
        return _fitted(np.array(lines, object), type)
    rows = [line.replace(",", " ").split() for line in text.splitlines() if line.strip()]
    if len({*map(len, rows)}) > 1:
        raise ValueError("its lines have different numbers of numbers")
    exact = int if type.dtype.is_int else float
    numbers = [[exact(word) for word in row] for row in rows]
    x = np.array(numbers, np.int64 if exact is int else np.float64)
    if exact is int and type.dtype is not DType.UINT64:
        info = np.iinfo(type.dtype.numpy)
        if x.size and not info.min <= x.min() <= x.max() <= info.max:
            raise ValueError(f"a number does not fit into {type.dtype}")
    return _fitted(x.astype(type.dtype.numpy), type)


def _fitted(x: Array, type: TensorType) -> Array:
    """Return an array with the rank of an input, if only axes of size 1 or its shape differ."""
    shape = [size for size in type.shape if isinstance(size, int)]
    if len(shape) == type.rank and math.prod(shape) == x.size:
        return x.reshape(shape)
    x = x.reshape([n for n in x.shape if n != 1] if x.ndim > type.rank else x.shape)
    return x.reshape([1] * (type.rank - x.ndim) + list(x.shape))


_PROTO_FIELDS = {
    1: "tensor_value",
    2: "sparse_tensor_value",
    3: "sequence_value",
    4: "map_value",
    5: "optional_value",
}
"""Field of an OptionalProto by its elem_type; those of a SequenceProto have an s at the end."""


def _proto_value(proto: Any, reader: TensorReader) -> Any:
    import onnx

    if isinstance(proto, onnx.TensorProto):
        return reader.array(proto).array
    if isinstance(proto, onnx.SparseTensorProto):
        return reader.sparse(proto).array
    if isinstance(proto, onnx.MapProto):
        raise UsageError(f"{proto.name!r} is a map, which --input cannot read")
    field = _PROTO_FIELDS.get(proto.elem_type)
    if isinstance(proto, onnx.SequenceProto):
        entries = [] if field is None else getattr(proto, field + "s")
        return [_proto_value(e, reader) for e in entries]
    return None if field is None else _proto_value(getattr(proto, field), reader)


_READERS: dict[str, Callable[[Path, str, ValueType | None], Any]] = {
    ".npy": _read_npy,
    ".npz": _read_npz_member,
    ".pb": _read_proto,
    ".wav": _read_wav,
    ".txt": _read_text,
}
