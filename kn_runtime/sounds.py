"""Recordings as inputs of models: WAV files, read without help of other packages."""

from __future__ import annotations

import struct
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kn_graph.dtype import DType, Kind
from kn_graph.errors import InputShapeError, KnWarning, UsageError
from kn_graph.types import TensorType

__all__ = ["Sound", "parse_wav", "read_sound"]

Array = np.ndarray[Any, Any]

PCM, FLOAT, EXTENSIBLE = 1, 3, 0xFFFE

FULL_SCALE = 1 << 31
"""Samples of all widths are brought to 32 bits first."""


@dataclass(frozen=True)
class Sound:
    """What a file holds.

    Attributes:
        samples: [n, channels], float64 from -1 to 1.
        rate: samples a second.
    """

    samples: Array
    rate: int


def read_sound(path: Path, name: str, type: TensorType) -> Array:
    """Read a recording as one input.

    Args:
        path: a WAV file of integers (8 to 32 bits) or floats.
        name: of the input, for errors.
        type: [samples], [N, samples], or [N, channels, samples]. Without an axis of channels they
            are averaged. Floats get samples from -1 to 1, integers their own range. A fixed number
            of samples cuts the recording or fills it up with silence, with a warning.

    Raises:
        UsageError: the file is no such recording.
        InputShapeError: the input is not shaped like one.
    """
    sound = parse_wav(path.read_bytes(), str(path))
    if type.rank not in (1, 2, 3) or type.dtype.kind not in (Kind.FLOAT, Kind.INT):
        raise InputShapeError(
            f"input {name!r} of type {type} is not shaped like a recording: expected numbers "
            "[samples], [N, samples] or [N, channels, samples]",
            name=name,
            expected="[samples], [N, samples] or [N, channels, samples]",
            got=str(type),
        )
    samples = sound.samples.T
    if type.rank < 3 or type.shape[1] == 1:
        samples = samples.mean(axis=0, keepdims=True)
    samples = _of_length(samples, type.shape[-1], path)
    if type.rank < 3:
        samples = samples[0]
    numbers = _as_numbers(samples, type.dtype)
    return numbers if type.rank == 1 else numbers[None]


def _of_length(samples: Array, length: object, path: Path) -> Array:
    have = samples.shape[-1]
    if not isinstance(length, int) or have == length:
        return samples
    done = "cut" if have > length else "filled up with silence"
    text = f"{path} has {have:,} samples and was {done} to {length:,}"
    warnings.warn(text, KnWarning, stacklevel=3)
    samples = samples[:, :length]
    return np.pad(samples, ((0, 0), (0, length - samples.shape[-1])))


def _as_numbers(samples: Array, dtype: DType) -> Array:
    if dtype.is_float:
        return samples.astype(dtype.numpy)
    info = np.iinfo(dtype.numpy)
    return np.clip(np.rint(samples * -float(info.min)), info.min, info.max).astype(dtype.numpy)


def parse_wav(data: bytes, what: str) -> Sound:
    """Return the samples of a WAV file.

    Args:
        data: the whole file.
        what: its name, for errors.

    Raises:
        UsageError: it is damaged, or compressed.
    """
    if data[:4] != b"RIFF" or data[8:12] != b"WAVE":
        raise UsageError(f"{what} is no WAV file")
    chunks = _chunks(data)
    form, body = chunks.get(b"fmt "), chunks.get(b"data")
    if form is None or len(form) < 16 or body is None:
        raise UsageError(f"{what} is damaged: a WAV file has the chunks 'fmt ' and 'data'")
    code, channels, rate, _, frame, bits = struct.unpack("<HHIIHH", form[:16])
    if code == EXTENSIBLE and len(form) >= 26:
        (code,) = struct.unpack("<H", form[24:26])
    if code not in (PCM, FLOAT) or bits % 8 or not channels or frame != channels * bits // 8:
        raise UsageError(
            f"{what} has samples of format {code} with {bits} bits; known are integers and floats "
            "that are not compressed"
        )
    body = body[: len(body) // frame * frame]
    return Sound(_samples(body, code, bits // 8, what).reshape(-1, channels), rate)


def _chunks(data: bytes) -> dict[bytes, bytes]:
    """Return the chunks of a RIFF file; one that is cut off ends where the file does."""
    found: dict[bytes, bytes] = {}
    at = 12
    while at + 8 <= len(data):
        size = int.from_bytes(data[at + 4 : at + 8], "little")
        found.setdefault(data[at : at + 4], data[at + 8 : at + 8 + size])
        at += 8 + size + size % 2
    return found


def _samples(body: bytes, code: int, width: int, what: str) -> Array:
    if code == FLOAT:
        if width not in (4, 8):
            raise UsageError(f"{what} has floats of {8 * width} bits; known are 32 and 64")
        return np.frombuffer(body, f"<f{width}").astype(np.float64)
    if width == 1:  # the only unsigned one
        return (np.frombuffer(body, np.uint8).astype(np.float64) - 128) / 128
    if width > 4:
        raise UsageError(f"{what} has integers of {8 * width} bits; known are 8 to 32")
    wide = np.zeros((len(body) // width, 4), np.uint8)
    wide[:, 4 - width :] = np.frombuffer(body, np.uint8).reshape(-1, width)
    return wide.view("<i4")[:, 0] / FULL_SCALE
