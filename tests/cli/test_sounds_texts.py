"""Recordings and texts as inputs."""

from __future__ import annotations

import struct
import wave
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

from kn_graph.errors import UsageError
from kn_runtime.sounds import parse_wav
from tests.cli.conftest import Kn, Result
from tests.small_models import info, model, node


def wav(samples: Any, width: int = 2, rate: int = 16000) -> bytes:
    """Write integer samples [n, channels] as the standard library does."""
    x = np.asarray(samples)
    raw = x.astype("<i4").tobytes() if width > 1 else x.astype(np.uint8).tobytes()
    if width > 1:
        raw = np.frombuffer(raw, np.uint8).reshape(-1, 4)[:, :width].tobytes()
    out = BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(x.shape[1])
        file.setsampwidth(width)
        file.setframerate(rate)
        file.writeframes(raw)
    return out.getvalue()


def float_wav(samples: np.ndarray[Any, Any], code: int = 3, extensible: bool = False) -> bytes:
    bits, channels = 8 * samples.itemsize, samples.shape[1]
    frame = channels * samples.itemsize
    form = struct.pack("<HHIIHH", code, channels, 8000, 8000 * frame, frame, bits)
    if extensible:
        form = struct.pack("<H", 0xFFFE) + form[2:] + struct.pack("<HHIH14x", 22, bits, 0, 3)
    data = samples.tobytes()
    chunks = [(b"fmt ", form), (b"LIST", b"odd"), (b"data", data)]
    body = b"".join(n + struct.pack("<I", len(c)) + c + b"\0" * (len(c) % 2) for n, c in chunks)
    return b"RIFF" + struct.pack("<I", 4 + len(body)) + b"WAVE" + body


@pytest.mark.parametrize(
    ("width", "samples", "expected"),
    [
        (1, [[0], [128], [192]], [-1, 0, 0.5]),
        (2, [[-32768], [0], [16384]], [-1, 0, 0.5]),
        (3, [[-(2**23)], [1], [2**22]], [-1, 2**-23, 0.5]),
        (4, [[-(2**31)], [1], [2**30]], [-1, 2**-31, 0.5]),
    ],
)
def test_integers_of_every_width(width: int, samples: Any, expected: list[float]) -> None:
    sound = parse_wav(wav(samples, width), "x")
    assert sound.rate == 16000
    assert sound.samples[:, 0].tolist() == expected


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("extensible", [False, True])
def test_floats_and_chunks_that_nobody_knows(dtype: type, extensible: bool) -> None:
    samples: np.ndarray[Any, Any] = np.array([[0.25, -1], [0.5, 2]], dtype)
    sound = parse_wav(float_wav(samples, extensible=extensible), "x")
    np.testing.assert_array_equal(sound.samples, samples)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"RIFX", "x is no WAV file"),
        (b"RIFF\0\0\0\0WAVE", "x is damaged: a WAV file has the chunks"),
        (float_wav(np.zeros((1, 1), np.float32), code=6), "x has samples of format 6 with 32 bits"),
        (float_wav(np.zeros((1, 1), np.float16)), "x has floats of 16 bits"),
        (float_wav(np.zeros((1, 1), np.float64), code=1), "x has integers of 64 bits"),
    ],
)
def test_files_that_cannot_be_read(data: bytes, text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_wav(data, "x")
    assert str(caught.value).startswith(text)


def run(
    kn: Kn, folder: Path, shape: list[Any], file: str, data: bytes, dtype: int = TensorProto.FLOAT
) -> Result:
    (folder / "model.onnx").write_bytes(
        model([node("Identity", "x", "y")], [info("x", shape, dtype)]).SerializeToString()
    )
    (folder / file).write_bytes(data)
    return kn("run", folder / "model.onnx", "--input", f"x={folder / file}", "--json")


STEREO = wav([[16384, 0], [-16384, 16384], [0, 0]])


@pytest.mark.parametrize(
    ("shape", "first", "got"),
    [
        (["n"], [0.25, 0, 0], [3]),
        ([1, "n"], [0.25, 0, 0], [1, 3]),
        (["batch", 2, "n"], [0.5, -0.5, 0, 0, 0.5, 0], [1, 2, 3]),
        ([1, 1, "n"], [0.25, 0, 0], [1, 1, 3]),
    ],
)
def test_a_recording_takes_the_shape_of_the_input(
    shape: list[Any], first: list[float], got: list[int], tmp_path: Path, kn: Kn
) -> None:
    y = run(kn, tmp_path, shape, "x.wav", STEREO).json()["outputs"]["y"]
    assert (y["first"], y["shape"]) == (first, got)


@pytest.mark.parametrize(("length", "done"), [(2, "cut"), (5, "filled up with silence")])
def test_a_fixed_length_is_met_with_a_warning(
    length: int, done: str, tmp_path: Path, kn: Kn
) -> None:
    result = run(kn, tmp_path, [1, length], "x.wav", STEREO)
    assert f"has 3 samples and was {done} to {length}" in result.err
    assert result.json()["outputs"]["y"]["first"] == [0.25, 0, 0, 0, 0][:length]


def test_integers_get_samples_as_they_are(tmp_path: Path, kn: Kn) -> None:
    mono = wav([[32767], [-32768], [5]])
    y = run(kn, tmp_path, ["n"], "x.wav", mono, TensorProto.INT16).json()["outputs"]["y"]
    assert y["first"] == [32767, -32768, 5]


def test_what_is_not_shaped_like_a_recording(tmp_path: Path, kn: Kn) -> None:
    text = run(kn, tmp_path, [1, 1, 1, "n"], "x.wav", STEREO).error(2, "shape_mismatch")
    assert "is not shaped like a recording: expected numbers [samples]" in text


@pytest.mark.parametrize(
    ("shape", "dtype", "text", "first", "got"),
    [
        (["n"], TensorProto.FLOAT, "1.5 -2\n", [1.5, -2], [2]),
        (["n"], TensorProto.INT64, "1\n2\n3\n", [1, 2, 3], [3]),
        ([1, "n"], TensorProto.INT64, "101, 7592,102", [101, 7592, 102], [1, 3]),
        (["a", "b"], TensorProto.FLOAT, "1 2\n\n3 4\n", [1, 2, 3, 4], [2, 2]),
        ([1, 2, 2], TensorProto.FLOAT, "1 2 3 4", [1, 2, 3, 4], [1, 2, 2]),
        ([1], TensorProto.STRING, "two\nlines", ["two\nlines"], [1]),
        (["n"], TensorProto.STRING, "two\nlines\n", ["two", "lines"], [2]),
        (["n", 1], TensorProto.INT32, "9223372036", None, None),
        (["n"], TensorProto.INT64, "1.5", None, None),
        (["a", "b"], TensorProto.FLOAT, "1 2\n3", None, None),
    ],
)
def test_texts_are_numbers_or_strings(
    shape: list[Any], dtype: int, text: str, first: Any, got: Any, tmp_path: Path, kn: Kn
) -> None:
    result = run(kn, tmp_path, shape, "x.txt", text.encode(), dtype)
    if first is None:
        assert "x.txt is damaged, or not what its suffix says" in result.error(2, "usage")
        return
    y = result.json()["outputs"]["y"]
    assert (y["first"], y["shape"]) == (first, got)
