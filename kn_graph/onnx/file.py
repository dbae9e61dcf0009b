"""Open an ONNX model: from a path, bytes, a file object or a parsed ModelProto.

A file is memory-mapped and its large weights are not read here (see `kn_graph.onnx.wire`). As with
every mapping, a file must not be truncated or overwritten in place while arrays taken from it are
alive; to rename another file over it is safe.

What cannot be a model is refused with the name of the file, what it seems to be and what to do.
"""

from __future__ import annotations

import mmap
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeAlias

from kn_graph.errors import ExternalDataError, MalformedModelError
from kn_graph.onnx.wire import Span, cut_weights

if TYPE_CHECKING:
    from onnx import ModelProto, TensorProto

__all__ = ["Content", "ModelFile", "RawData", "Source", "read_model"]

Source: TypeAlias = (
    "str | os.PathLike[str] | bytes | bytearray | memoryview | IO[bytes] | ModelProto"
)
"""What a model is read from: a path, its content, an open binary file, or the parsed message."""


@dataclass(frozen=True, eq=False)
class Content:
    """The bytes of a file or a message, never changed.

    Attributes:
        data: the bytes, memory-mapped if they are those of a file.
        file: the real absolute path of the mapped file, None for bytes in memory.
    """

    data: bytes | mmap.mmap
    file: str | None = None


@dataclass(frozen=True, eq=False)
class RawData:
    """The little-endian elements of one tensor: a part of some content."""

    content: Content
    offset: int
    length: int

    @property
    def origin(self) -> tuple[str, int, int] | None:
        """Return (file, offset, length), or None for bytes in memory."""
        if self.content.file is None:
            return None
        return self.content.file, self.offset, self.length


class ModelFile:
    """An open model: the parsed message, and access to weights inside and beside the file.

    Attributes:
        proto: the ModelProto. Each large `raw_data` of the main graph is a placeholder in it, to be
            read with `raw_data` only. A message given by the caller is used as it is, not copied.
        path: the path the model was read from, None if it came from memory.
        label: what errors call the model: the text of the path, `<bytes>`, or the like.
        base_dir: the folder in which external data is looked for, None if there is none.
        opsets: domain -> opset version; the standard domain is "" however the file spells it.
    """

    def __init__(
        self,
        proto: ModelProto,
        label: str,
        *,
        path: Path | None = None,
        content: Content | None = None,
        spans: Mapping[bytes, Span] | None = None,
    ) -> None:
        """Wrap a parsed message; `read_model` opens one."""
        self.proto, self.label, self.path = proto, label, path
        self.base_dir = None if path is None else path.absolute().parent
        self.opsets = _opsets(proto)
        self._content = content
        self._spans = spans or {}
        self._external: dict[str, Content] = {}

    def raw_data(self, tensor: TensorProto) -> RawData | None:
        """Return where the `raw_data` of a tensor of this model is; None if the field is absent."""
        if not tensor.HasField("raw_data"):
            return None
        raw = tensor.raw_data
        span = self._spans.get(raw) if self._spans else None
        if span is None or self._content is None:
            return RawData(Content(raw), 0, len(raw))
        return RawData(self._content, span.offset, span.length)

    def external(self, location: str) -> Content:
        """Map a file of external data; each file is mapped once.

        The file must be a regular one inside the folder of the model: that of the path as given or,
        if the path is a symbolic link, that of the file it leads to. (Caches such as the one of
        huggingface_hub link the model and its data from one folder into another.)

        Raises:
            ExternalDataError: the location is not allowed, or the file is missing or unreadable.
        """
        if self.base_dir is None:
            raise ExternalDataError(
                f"the data is in the external file {location!r}, but the model was read from "
                "memory, so there is no folder to look in; load the model by its path"
            )
        for pattern, problem in _FORBIDDEN_LOCATIONS:
            if re.search(pattern, location):
                raise ExternalDataError(
                    f"the location of external data {location!r} {problem}; "
                    "expected a relative path with '/' inside the model's folder"
                )
        real = os.path.realpath(self.base_dir / location)
        folders = [os.path.realpath(self.base_dir)]
        if self.path is not None:
            folders.append(os.path.dirname(os.path.realpath(self.path)))
        if not any(Path(real).is_relative_to(folder) for folder in folders):
            raise ExternalDataError(
                f"external data {location!r} is a symbolic link to {real!r}, outside the model's "
                f"folder {str(self.base_dir)!r}; put the data itself beside the model"
            )
        if real not in self._external:
            self._external[real] = self._map_external(location, real)
        return self._external[real]

    def _map_external(self, location: str, real: str) -> Content:
        try:
            return _map_file(real)
        except FileNotFoundError:
            raise ExternalDataError(
                f"there is no file {location!r} of external data in the folder "
                f"{str(self.base_dir)!r}; put it there, it belongs to the model"
            ) from None
        except OSError as error:
            raise ExternalDataError(
                f"external data {location!r} ({real}) cannot be read: {_reason(error)}"
            ) from None


_FORBIDDEN_LOCATIONS = (
    (r"\A\Z", "is empty"),
    (r"\0", "contains a NUL character"),
    (r"\A/", "is an absolute path"),
    (r"\\", "contains a backslash"),
    (r"\A[A-Za-z]:", "names a drive"),
    (r"(\A|/)\.\.(/|\Z)", "leaves the model's folder by '..'"),
)


def read_model(source: Source | ModelFile) -> ModelFile:
    """Open a model; its large weights are neither read nor copied. An open one stays as it is.

    A file object is read from its position to its end. Bytes that may change (`bytearray`,
    `memoryview`) are copied.

    Raises:
        MalformedModelError: there is no such file, or it is not an ONNX model.
    """
    from onnx import ModelProto

    if isinstance(source, ModelFile):
        return source
    if isinstance(source, ModelProto):
        return _checked(source, "<ModelProto>")
    if isinstance(source, (str, os.PathLike)):
        path = Path(os.fsdecode(source))
        return _parse(_open(path), str(path), path)
    if isinstance(source, (bytes, bytearray, memoryview)):
        return _parse(Content(bytes(source)), "<bytes>")
    if hasattr(source, "read"):
        return _parse(*_read(source))
    raise MalformedModelError(
        f"cannot read a model from an object of type {type(source).__name__}; expected a path, "
        "bytes, a binary file object or an onnx.ModelProto"
    )


def _open(path: Path) -> Content:
    try:
        return _map_file(os.path.realpath(path))
    except FileNotFoundError:
        raise MalformedModelError(
            f"{path}: there is no such file (looked for {path.absolute()}); check the path"
        ) from None
    except IsADirectoryError:
        inside = sorted(file.name for file in path.glob("*.onnx"))[:3]
        hint = f" (there are {', '.join(inside)})" if inside else ""
        raise MalformedModelError(
            f"{path}: this is a folder; give the path of the .onnx file in it{hint}"
        ) from None
    except (OSError, ValueError) as error:
        raise MalformedModelError(f"{path}: cannot be read: {_reason(error)}") from None


def _map_file(real: str) -> Content:
    # Without O_NONBLOCK, opening a pipe would wait for somebody to write to it; O_NOFOLLOW since
    # the path is resolved already: a link here was put in place after it had been checked.
    flags = ("O_BINARY", "O_CLOEXEC", "O_NOFOLLOW", "O_NONBLOCK")
    descriptor = os.open(real, os.O_RDONLY | sum(getattr(os, flag, 0) for flag in flags))
    try:
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(None, "it is a folder")
        if not stat.S_ISREG(status.st_mode):
            raise OSError(None, "it is a pipe, a device or a socket, not a file")
        if status.st_size == 0:
            return Content(b"", real)
        return Content(mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ), real)
    finally:
        os.close(descriptor)


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


def _read(file: IO[bytes]) -> tuple[Content, str]:
    name = getattr(file, "name", None)
    label = name if isinstance(name, str) else "<file>"
    try:
        data: object = file.read()
    except (OSError, ValueError) as error:
        raise MalformedModelError(f"{label}: cannot be read: {_reason(error)}") from None
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise MalformedModelError(
            f"{label}: reading the file object gave {type(data).__name__}, expected bytes; "
            "open it with mode 'rb'"
        )
    return Content(bytes(data)), label


def _parse(content: Content, label: str, path: Path | None = None) -> ModelFile:
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
    from onnx import ModelProto

    if not content.data:
        raise MalformedModelError(f"{label}: the file is empty; download or export it again")
    proto = ModelProto()
    try:
        skeleton = cut_weights(memoryview(content.data))
        proto.ParseFromString(skeleton.data)
    except MalformedModelError as error:
        raise _not_onnx(content, label, f"at {error}") from None
    except (DecodeError, ValueError):
        raise _not_onnx(content, label, "protobuf cannot parse it") from None
    if not proto.HasField("graph"):
        raise _not_onnx(content, label, "it has no graph")
    return _checked(proto, label, path=path, content=content, spans=skeleton.spans)


def _checked(proto: ModelProto, label: str, **facts: Any) -> ModelFile:
    """Return the opened model once its message holds what every model must have."""
    try:
        if not proto.HasField("graph"):
            raise MalformedModelError("the model has no graph; export it again")
        _check_text(proto)
        return ModelFile(proto, label, **facts)
    except MalformedModelError as error:
        error.add_context(label)
        raise


def _check_text(proto: ModelProto) -> None:
    """Refuse text that is not UTF-8: protobuf hands it out as `bytes` where `str` is expected."""
    pending: list[Any] = [proto]
    while pending:
        message = pending.pop()
        for field, value in message.ListFields():
            kind = field.type
            if kind == field.TYPE_MESSAGE:
                pending += value if field.is_repeated else (value,)
            elif kind == field.TYPE_STRING:
                for text in value if field.is_repeated else (value,):
                    if isinstance(text, bytes):
                        raise MalformedModelError(
                            f"{message.DESCRIPTOR.name}.{field.name} is not UTF-8 text: "
                            f"{text[:60]!r}; the file is damaged, download or export it again"
                        )


def _opsets(proto: ModelProto) -> dict[str, int]:
    # onnx.proto: before IR version 3 there was no opset_import and the operator set was 1.
    if not proto.opset_import and 1 <= proto.ir_version < 3:
        return {"": 1}
    if not proto.opset_import:
        raise MalformedModelError(
            f"no opset_import, which IR version {proto.ir_version} requires: the versions of the "
            "operators are unknown; the file is truncated or was written wrongly, export it again"
        )
    opsets: dict[str, int] = {}
    for entry in proto.opset_import:
        domain = "" if entry.domain == "ai.onnx" else entry.domain
        known = opsets.setdefault(domain, entry.version)
        if entry.version < 1 or known != entry.version:
            raise MalformedModelError(
                f"opset_import of domain {domain or 'ai.onnx'!r} has version {entry.version}, "
                f"expected {'one version at least 1' if known == entry.version else known}"
            )
    return opsets


def _not_onnx(content: Content, label: str, detail: str) -> MalformedModelError:
    what, advice = _recognise(bytes(content.data[:_HEAD_BYTES])) or (
        f"not an ONNX model, or a truncated or damaged one ({detail}; "
        f"{len(content.data)} bytes in all)",
        "download or export it again",
    )
    return MalformedModelError(f"{label}: this is {what}; {advice}")


_HEAD_BYTES = 4096
_AGAIN = "download the .onnx file itself"
_EXPORT = "export the model to ONNX first"

# (offset, bytes found there, what the file is, what to do)
_MAGIC: tuple[tuple[int, bytes, str, str], ...] = (
    (0, b"\x89PNG", "a PNG image", "give the path of the .onnx file"),
    (0, b"\xff\xd8\xff", "a JPEG image", "give the path of the .onnx file"),
    (0, b"GIF8", "a GIF image", "give the path of the .onnx file"),
    (0, b"%PDF", "a PDF document", "give the path of the .onnx file"),
    (0, b"PK\x03\x04", "a zip archive (perhaps PyTorch .pt or .npz)", f"unpack it, or {_EXPORT}"),
    (0, b"\x1f\x8b", "gzip-compressed", "unpack it first"),
    (0, b"\x28\xb5\x2f\xfd", "zstd-compressed", "unpack it first"),
    (0, b"\xfd7zXZ", "xz-compressed", "unpack it first"),
    (0, b"BZh", "bzip2-compressed", "unpack it first"),
    (0, b"7z\xbc\xaf", "a 7z archive", "unpack it first"),
    (257, b"ustar", "a tar archive", "unpack it first"),
    (0, b"\x93NUMPY", "a NumPy array (.npy)", "give the path of the .onnx file"),
    (0, b"\x89HDF", "an HDF5 file (perhaps Keras)", _EXPORT),
    (0, b"GGUF", "a GGUF model", _EXPORT),
    (4, b"TFL3", "a TensorFlow Lite model", _EXPORT),
    (4, b"ORTM", "a model in ORT format", "use the .onnx file it was made from"),
    (8, b'{"', "a safetensors file (weights only)", _EXPORT),
    (0, b"\x80\x02", "a Python pickle (perhaps PyTorch)", _EXPORT),
    (0, b"\x7fELF", "an ELF program or library", "give the path of the .onnx file"),
    (0, bytes(16), "filled with zero bytes", f"the download is incomplete: {_AGAIN}"),
)
_READ_AS = "convert it: onnx.save(onnx.load(PATH, format='{0}'), 'model.onnx')"

# (pattern at the start of a text, what the file is, what to do)
_TEXTS: tuple[tuple[str, str, str], ...] = (
    (
        r"version https://git-lfs",
        "a Git LFS pointer, not the model it stands for",
        "run `git lfs install` and `git lfs pull` in the repository, or " + _AGAIN,
    ),
    (
        r"<!doctype|<html|<\?xml|<head|<!--",
        "a web page (HTML or XML), perhaps an error or login page",
        _AGAIN,
    ),
    (
        r'\{(?s:.){0,2000}"(irVersion|opsetImport|graph)"',
        "an ONNX model as JSON",
        _READ_AS.format("json"),
    ),
    (r"[{\[]", "a JSON text, perhaps an error message", _AGAIN),
    (
        r"(ir_version|opset_import|producer_\w+|graph)\s*[:{]",
        "an ONNX model as protobuf text",
        _READ_AS.format("textproto"),
    ),
    (r"<\s*(ir_version|opset_import)", "an ONNX model as text", _READ_AS.format("onnxtxt")),
)


def _recognise(head: bytes) -> tuple[str, str] | None:
    """Return what a file that is not a model seems to be, and what to do; None if unknown."""
    for offset, magic, what, advice in _MAGIC:
        if head.startswith(magic, offset):
            return what, advice
    # The head may end within a character: what cannot be decoded at its end is left out.
    text = head.decode("utf-8", "ignore").lstrip("\ufeff \t\r\n")
    for pattern, what, advice in _TEXTS:
        if re.match(pattern, text, re.IGNORECASE):
            return what, advice
    if text and all(char.isprintable() or char.isspace() for char in text):
        return f"a text file beginning with {text[:40]!r}", "give the path of the .onnx file"
    return None
