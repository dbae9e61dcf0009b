"""Fourier transforms, windows and the mel scale."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from kn_graph.dtype import DType
from kn_graph.errors import ExecutionError, KnError, ShapeError
from kn_graph.graph import Graph
from kn_graph.onnx import load_graph_from_onnx_bytes
from kn_graph.reference import cpu_eval_graph
from tests.ops.single_node import (
    assert_like_onnxruntime,
    assert_same,
    node_model,
    run_here,
)

F32, F64 = np.float32, np.float64


def random(*shape: int, dtype: Any = F32, seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def parts(z: Any) -> Any:
    return np.stack([z.real, z.imag], -1)


def whole(x: Any) -> Any:
    return x[..., 0] + (1j * x[..., 1] if x.shape[-1] == 2 else 0)


def dense_dft(x: Any, axis: int, length: int, *, inverse: bool = False) -> Any:
    """The defining sum, on complex numbers cut or filled to `length`."""
    x = np.moveaxis(x, axis, -1)[..., :length]
    x = np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, length - x.shape[-1])])
    k = np.arange(length)
    sign = 2j if inverse else -2j
    matrix = np.exp(sign * np.pi * np.outer(k, k) / length) / (length if inverse else 1)
    return np.moveaxis(x @ matrix, -1, axis)


# ---- DFT ------------------------------------------------------------------------------------


@pytest.mark.parametrize("inverse", [0, 1])
@pytest.mark.parametrize("last", [1, 2])
@pytest.mark.parametrize("length", [None, 1, 4, 7, 12])
@pytest.mark.parametrize("axis", [0, 1, 2, -2, -3])
def test_dft_is_the_defining_sum(axis: int, length: int | None, last: int, inverse: int) -> None:
    x = random(3, 6, 5, last, dtype=F64)
    inputs = {
        "x": x,
        "length": None if length is None else np.array(length),
        "axis": np.array(axis),
    }
    at = axis % 4
    expected = parts(dense_dft(whole(x), at, length or x.shape[at], inverse=bool(inverse)))
    for constant in ([n for n in ("length", "axis") if inputs[n] is not None], ["axis"], []):
        constant = [n for n in constant if inputs[n] is not None]
        model = node_model("DFT", inputs, opset=20, inverse=inverse, constant=constant)
        (y,) = run_here(model, inputs)
        assert y.dtype == x.dtype
        np.testing.assert_allclose(y, expected, atol=1e-12)


@pytest.mark.parametrize("length", [None, 4, 5, 9])
@pytest.mark.parametrize("axis", [0, 1])
def test_half_a_spectrum_and_back(axis: int, length: int | None) -> None:
    x = random(6, 7, 1, dtype=F64)
    inputs = {"x": x, "length": None if length is None else np.array(length)}
    n = length or x.shape[axis]
    full = dense_dft(whole(x), axis, n)
    half = parts(np.take(full, range(n // 2 + 1), axis))
    options: Any = {"opset": 17, "onesided": 1, "axis": axis}
    (y,) = run_here(node_model("DFT", inputs, **options), inputs)
    np.testing.assert_allclose(y, half, atol=1e-12)
    back = {"x": y, "length": np.array(n)}
    (z,) = run_here(node_model("DFT", back, inverse=1, **options), back)
    cut = dense_dft(full, axis, n, inverse=True).real[..., None]
    np.testing.assert_allclose(z, cut, atol=1e-12)


def test_the_length_of_half_a_spectrum_is_even_by_default() -> None:
    x = random(1, 5, 2, dtype=F64)
    model = node_model("DFT", {"x": x}, opset=17, onesided=1, inverse=1)
    (y,) = run_here(model, {"x": x})
    assert y.shape == (1, 8, 1)
    np.testing.assert_allclose(y[..., 0], np.fft.irfft(whole(x)), atol=1e-12)


@pytest.mark.parametrize("onesided", [0, 1])
@pytest.mark.parametrize(("opset", "axis"), [(17, {}), (17, {"axis": 2}), (17, {"axis": -3})])
def test_dft_is_like_onnxruntime(opset: int, axis: dict[str, int], onesided: int) -> None:
    inputs = {"x": random(2, 16, 10, 1)}
    options: Any = {"opset": opset, "onesided": onesided, **axis}
    assert_like_onnxruntime("DFT", inputs, rtol=0, atol=1e-4, **options)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_narrow_floats_round_once(dtype: Any) -> None:
    x = random(1, 8, 1).astype(dtype)
    (y,) = run_here(node_model("DFT", {"x": x}, opset=20), {"x": x})
    (wide,) = run_here(node_model("DFT", {"x": x.astype(F32)}, opset=20), {"x": x.astype(F32)})
    assert_same([y], [wide.astype(dtype)])


@pytest.mark.parametrize(
    ("shape", "options", "text"),
    [
        ((2, 8, 2), {"onesided": 1}, "onesided needs real"),
        ((2, 8, 1), {"onesided": 1, "inverse": 1}, "onesided needs complex"),
        ((2, 8, 3), {}, "real and imaginary"),
        ((2, 8, 1), {"axis": 2}, "axis 2"),
        ((2, 8, 1), {"axis": 5}, "axis 5"),
    ],
)
def test_bad_transforms_are_refused(shape: Any, options: Any, text: str) -> None:
    with pytest.raises(KnError, match=text):
        load_graph_from_onnx_bytes(node_model("DFT", {"x": random(*shape)}, opset=17, **options))


def test_an_empty_axis_counts_as_zeros() -> None:
    g = Graph()
    g.output("y", g.dft(g.input("x", "float32", [2, 0, 1]), 1, 4))
    y = cpu_eval_graph(g, {"x": np.zeros((2, 0, 1), F32)})["y"]
    assert_same([y], [np.zeros((2, 4, 2), F32)])
    with pytest.raises(ShapeError, match="length of a Fourier transform"):
        g.dft(g.input("z", "float32", [2, 0, 1]), 1)


# ---- STFT -----------------------------------------------------------------------------------


@pytest.mark.parametrize("onesided", [0, 1])
@pytest.mark.parametrize("length", [None, 16])
@pytest.mark.parametrize("windowed", [False, True])
def test_stft_is_like_onnxruntime(windowed: bool, length: int | None, onesided: int) -> None:
    if not windowed and length is None:
        return  # onnxruntime refuses: the whole signal is one frame
    inputs = {
        "x": random(2, 100, 1),
        "step": np.array(7),
        "window": np.hanning(16).astype(F32) if windowed else None,
        "length": None if length is None else np.array(length),
    }
    options: Any = {"opset": 17, "onesided": onesided, "rtol": 0, "atol": 1e-4}
    assert_like_onnxruntime("STFT", inputs, **options)


def test_stft_of_complex_and_of_symbolic_signals() -> None:
    x = random(2, 30, 2, dtype=F64)
    for step in (3, 8):
        inputs = {"x": x, "step": np.array(step), "window": None, "length": np.array(10)}
        frames = [whole(x)[:, s : s + 10] for s in range(0, 21, step)]
        expected = parts(np.fft.fft(np.stack(frames, 1)))
        for options in (
            {"constant": ["step", "length"]},
            {},
            {"symbolic": {"x": ("b", "n", 2)}, "constant": ["step", "length"]},
        ):
            model = node_model("STFT", inputs, opset=17, onesided=0, **options)
            np.testing.assert_allclose(run_here(model, inputs)[0], expected, atol=1e-12)


def test_a_whole_signal_is_one_frame_by_default() -> None:
    inputs = {"x": random(1, 12, 1, dtype=F64), "step": np.array(5)}
    (y,) = run_here(node_model("STFT", inputs, opset=17), inputs)
    np.testing.assert_allclose(y[:, 0], parts(np.fft.rfft(inputs["x"][..., 0])), atol=1e-12)


def test_frames_that_do_not_fit() -> None:
    inputs = {"x": random(1, 12, 1), "step": np.array(5), "w": random(16)}
    with pytest.raises(ShapeError, match="fits into the signal"):
        load_graph_from_onnx_bytes(node_model("STFT", inputs, opset=17))
    inputs |= {"w": random(8), "length": np.array(9)}
    with pytest.raises(ShapeError, match="length of the window"):
        load_graph_from_onnx_bytes(node_model("STFT", inputs, opset=17, constant=["length"]))
    inputs = {"x": random(1, 12, 1), "step": np.array(0), "w": None, "length": np.array(9)}
    with pytest.raises(ExecutionError, match="at least 1"):
        run_here(node_model("STFT", inputs, opset=17), inputs)


# ---- windows --------------------------------------------------------------------------------

WINDOWS: dict[str, Any] = {
    "HannWindow": lambda t: 0.5 - 0.5 * np.cos(t),
    "HammingWindow": lambda t: 25 / 46 - 21 / 46 * np.cos(t),
    "BlackmanWindow": lambda t: 0.42 - 0.5 * np.cos(t) + 0.08 * np.cos(2 * t),
}


@pytest.mark.parametrize("periodic", [0, 1])
@pytest.mark.parametrize("size", [2, 10, 400])
@pytest.mark.parametrize("operator", WINDOWS)
def test_windows_are_sums_of_cosines(operator: str, size: int, periodic: int) -> None:
    period = size if periodic else size - 1
    expected = WINDOWS[operator](2 * np.pi * np.arange(size) / period)
    inputs = {"size": np.array(size, np.int32)}
    for constant in (["size"], []):
        options: Any = {"opset": 17, "periodic": periodic, "constant": constant}
        (y,) = run_here(node_model(operator, inputs, **options), inputs)
        assert y.dtype == F32
        np.testing.assert_allclose(y, expected, atol=1e-7)
    assert_like_onnxruntime(operator, inputs, opset=17, periodic=periodic, rtol=0, atol=1e-5)


def test_windows_of_other_types_and_sizes() -> None:
    for size in (0, 1):
        inputs = {"size": np.array(size)}
        options: Any = {"opset": 17, "periodic": 0, "output_datatype": DType.FLOAT64.onnx_code}
        (y,) = run_here(node_model("HannWindow", inputs, **options), inputs)
        assert_same([y], [np.zeros(size)])


# ---- the mel scale --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bands", "length", "rate", "low", "high"),
    [(8, 16, 8192, 0, 4096), (20, 256, 16000, 20, 8000), (40, 512, 44100, 300, 11000)],
)
def test_mel_weights_are_like_onnxruntime(
    bands: int, length: int, rate: int, low: float, high: float
) -> None:
    inputs = {
        "bands": np.array(bands),
        "length": np.array(length),
        "rate": np.array(rate),
        "low": F32(low),
        "high": F32(high),
    }
    options: Any = {"opset": 17, "rtol": 0, "atol": 1e-6}
    assert_like_onnxruntime("MelWeightMatrix", inputs, constant=["bands", "length"], **options)
    assert_like_onnxruntime("MelWeightMatrix", inputs, **options)
    model = node_model("MelWeightMatrix", inputs, opset=17, output_datatype=7)
    assert run_here(model, inputs)[0].dtype == np.int64
