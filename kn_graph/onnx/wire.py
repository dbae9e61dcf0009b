"""Cut the large weights out of a serialised ONNX model without parsing the rest.

Protobuf copies every byte it parses and stops at 2 GiB. So the few fields that lead to the weights,

    ModelProto.graph (7) -> GraphProto.initializer (5) -> TensorProto.raw_data (9),

are walked here in the wire format, and each large `raw_data` is replaced by a short placeholder.
What remains, the skeleton, is a valid ModelProto for protobuf to parse. A placeholder is the key
under which the place of the bytes is found again: it is part of the tensor itself, so it survives
copies, and duplicated or unnamed initializers cannot be mixed up.

Only the main graph is cut: weights inside nodes, subgraphs and functions stay in the skeleton.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from kn_graph.errors import MalformedModelError

__all__ = ["MIN_CUT_BYTES", "Skeleton", "Span", "cut_weights"]

MIN_CUT_BYTES = 4096
"""A `raw_data` of at least this size is cut; a smaller one is not worth a view of its own."""

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_GRAPH, _INITIALIZER, _RAW_DATA = (field << 3 | _LENGTH for field in (7, 5, 9))
_FIXED_BYTES = {_FIXED64: 8, _FIXED32: 4}
_NONCE_BYTES = 16
_MAX_TAG_BITS = 32


class Span(NamedTuple):
    """A run of bytes in the model file."""

    offset: int
    length: int


@dataclass(frozen=True)
class Skeleton:
    """A model without its large weights.

    Attributes:
        data: the serialised ModelProto in which placeholders stand for the large `raw_data`.
        spans: placeholder -> where the bytes are in the original buffer.
    """

    data: bytes
    spans: dict[bytes, Span]


class _Field(NamedTuple):
    start: int
    payload: int
    end: int


# The pieces of a rewritten message in order, or None where the message stays as it is.
_Pieces = list[memoryview | bytes]
_Rewrite = Callable[[int, int], _Pieces | None]


def cut_weights(data: memoryview) -> Skeleton:
    """Return the skeleton of the ModelProto serialised in `data` (contiguous bytes).

    Raises:
        MalformedModelError: the wire format is broken; the text names the byte.
    """
    cutter = _Cutter(data)
    pieces = cutter.model(0, len(data))
    return Skeleton(b"".join(pieces or [data]), cutter.spans)


class _Cutter:
    def __init__(self, data: memoryview) -> None:
        self.spans: dict[bytes, Span] = {}
        self._data = data
        # A nonce, so that no file can contain a placeholder by chance or by intent.
        self._nonce = os.urandom(_NONCE_BYTES)

    def model(self, start: int, end: int) -> _Pieces | None:
        return self._rewrite(start, end, _GRAPH, self._graph)

    def _graph(self, start: int, end: int) -> _Pieces | None:
        return self._rewrite(start, end, _INITIALIZER, self._tensor)

    def _tensor(self, start: int, end: int) -> _Pieces | None:
        if end - start < MIN_CUT_BYTES:
            return None
        raws = list(_fields(self._data, start, end, _RAW_DATA))
        # Protobuf keeps the last value of a field that occurs more than once.
        if not raws or raws[-1].end - raws[-1].payload < MIN_CUT_BYTES:
            return None
        span = Span(raws[-1].payload, raws[-1].end - raws[-1].payload)
        placeholder = self._nonce + len(self.spans).to_bytes(8, "little")
        self.spans[placeholder] = span
        pieces: _Pieces = []
        for raw in raws:
            pieces.append(self._data[start : raw.start])
            start = raw.end
        return [*pieces, self._data[start:end], *_delimited(_RAW_DATA, [placeholder])]

    def _rewrite(self, start: int, end: int, tag: int, rewrite: _Rewrite) -> _Pieces | None:
        """Rewrite the fields with this tag; all between them is copied as a whole."""
        pieces: _Pieces = []
        for field in _fields(self._data, start, end, tag):
            inner = rewrite(field.payload, field.end)
            if inner is not None:
                pieces.append(self._data[start : field.start])
                pieces += _delimited(tag, inner)
                start = field.end
        return [*pieces, self._data[start:end]] if pieces else None


def _delimited(tag: int, payload: _Pieces) -> _Pieces:
    return [_encode_varint(tag) + _encode_varint(sum(map(len, payload))), *payload]


def _encode_varint(value: int) -> bytes:
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _fields(data: memoryview, start: int, end: int, wanted: int) -> Iterator[_Field]:
    """Yield the fields of the message in `data[start:end]` that have a tag."""
    while start < end:
        tag, payload = _varint(data, start, end)
        number, kind = tag >> 3, tag & 7
        if number == 0 or tag >> _MAX_TAG_BITS:
            raise MalformedModelError(f"byte {start}: {number} is not a protobuf field number")
        if kind == _LENGTH:
            length, payload = _varint(data, payload, end)
        elif kind == _VARINT:
            length = _varint(data, payload, end)[1] - payload
        elif kind in _FIXED_BYTES:
            length = _FIXED_BYTES[kind]
        else:
            raise MalformedModelError(
                f"byte {start}: field {number} has wire type {kind}, which ONNX never uses"
            )
        if length > end - payload:
            raise MalformedModelError(
                f"byte {start}: field {number} claims {length} bytes, {end - payload} are left"
            )
        if tag == wanted:
            yield _Field(start, payload, payload + length)
        start = payload + length


def _varint(data: memoryview, start: int, end: int) -> tuple[int, int]:
    """Return the number encoded at `start`, and where it ends."""
    if start < end and (first := data[start]) < 0x80:  # nearly all, and a model has many
        return first, start + 1
    value = 0
    for count, byte in enumerate(data[start : min(end, start + 10)]):
        value |= (byte & 0x7F) << 7 * count
        if byte < 0x80:
            return value, start + count + 1
    raise MalformedModelError(f"byte {start}: a number breaks off or is longer than 10 bytes")
