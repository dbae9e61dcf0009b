"""Convolutions: Conv, ConvTranspose and DeformConv, and the window geometry below them."""

from __future__ import annotations

import itertools
from typing import Any, cast

import ml_dtypes
import numpy as np
import pytest

from kn_graph.dim import ceildiv
from kn_graph.dtype import DType
from kn_graph.errors import DTypeError, MalformedModelError, ShapeError, SymbolError
from kn_graph.graph import Graph
from kn_graph.ops.conv import Conv
from kn_graph.reference import cpu_eval_graph
from kn_graph.window import auto_pads, window_count
from tests.ops.single_node import assert_like_onnxruntime, assert_same, node_model, run_here

RNG = np.random.default_rng(11)
CLOSE: dict[str, Any] = {"rtol": 2e-5, "atol": 2e-5}


def normal(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return RNG.standard_normal(shape).astype(dtype)


def naive_conv(
    x: np.ndarray, w: np.ndarray, strides: Any, dilations: Any, pads: Any, groups: int
) -> np.ndarray:
    """Sum up element by element, straight from the formula."""
    padded = np.pad(x, [(0, 0), (0, 0), *pads])
    spans = [(k - 1) * d + 1 for k, d in zip(w.shape[2:], dilations, strict=True)]
    counts = [(n - s) // t + 1 for n, s, t in zip(padded.shape[2:], spans, strides, strict=True)]
    out = np.zeros((x.shape[0], w.shape[0], *counts), np.result_type(x, np.float64))
    inputs, outputs = x.shape[1] // groups, w.shape[0] // groups
    for m, *o in np.ndindex(w.shape[0], *counts):
        first = m // outputs * inputs
        cut = tuple(
            slice(i * t, i * t + s, d)
            for i, t, s, d in zip(o, strides, spans, dilations, strict=True)
        )
        window = padded[(slice(None), slice(first, first + inputs), *cut)]
        out[(slice(None), m, *o)] = (window.astype(out.dtype) * w[m]).sum(
            axis=tuple(range(1, x.ndim))
        )
    return out


def graph_conv(x: np.ndarray, w: np.ndarray, **window: Any) -> np.ndarray:
    g = Graph()
    a, b = (g.input(n, DType.from_numpy(v.dtype), v.shape) for n, v in (("x", x), ("w", w)))
    g.output("out", g.conv(a, b, **window))
    return cpu_eval_graph(g, {"x": x, "w": w})["out"]


# ---- geometry -------------------------------------------------------------------------------


def brute_count(n: int, k: int, s: int, d: int, before: int, after: int, ceil: bool) -> int:
    """Count windows by trying each start."""
    wide = (k - 1) * d + 1
    for count in itertools.count():
        start = count * s - before
        whole = start + wide <= n + after
        follows_whole = start - s + wide < n + after
        if not (start < n and follows_whole if ceil else whole):
            return count
    raise AssertionError


@pytest.mark.parametrize("ceil", [False, True])
def test_window_count_agrees_with_counting(ceil: bool) -> None:
    ranges = (range(1, 9), range(1, 4), range(1, 4), range(1, 3), range(3), range(3))
    for n, k, s, d, before, after in itertools.product(*ranges):
        if n + before + after >= (k - 1) * d + 1:
            got = window_count(n, k, s, d, (before, after), ceil=ceil)
            assert got == brute_count(n, k, s, d, before, after, ceil), (n, k, s, d, before, after)


@pytest.mark.parametrize("mode", ["SAME_UPPER", "SAME_LOWER"])
def test_same_padding_gives_the_size_that_onnx_says(mode: Any) -> None:
    symbol = Graph().symbol("n")
    for k, s, d in itertools.product(range(1, 5), range(1, 4), range(1, 3)):
        for n in range(1, 12):
            before, after = cast("tuple[int, int]", auto_pads(mode, n, k, s, d))
            assert window_count(n, k, s, d, (before, after), ceil=False) == -(-n // s)
            assert 0 <= (after - before if mode == "SAME_UPPER" else before - after) <= 1
            assert min(before, after) >= 0
        if (k - 1) * d + 1 >= s:
            pads = auto_pads(mode, symbol, k, s, d)
            assert window_count(symbol, k, s, d, pads, ceil=False) == ceildiv(symbol, s)
    assert auto_pads(mode, symbol, 1, 3, 2) == (0, 0)


# ---- Conv -----------------------------------------------------------------------------------

CONVS: list[tuple[tuple, tuple, dict[str, Any]]] = [
    ((2, 3, 7), (4, 3, 3), {}),
    ((2, 3, 7), (4, 3, 3), {"strides": [2], "pads": [(1, 2)]}),
    ((1, 2, 5, 6), (3, 2, 3, 2), {"dilations": [2, 1], "pads": [(1, 1), (0, 1)]}),
    ((1, 4, 5, 6), (6, 2, 3, 3), {"groups": 2, "strides": [1, 2]}),
    ((2, 4, 5, 5), (4, 1, 3, 3), {"groups": 4, "pads": [(1, 1), (1, 1)]}),
    ((2, 4, 5, 5), (8, 1, 3, 3), {"groups": 4}),
    ((1, 2, 4, 5, 3), (3, 2, 2, 3, 1), {"strides": [1, 2, 1]}),
    ((1, 1, 2, 3, 2, 3), (2, 1, 1, 2, 2, 1), {}),
    ((1, 3, 4, 4), (5, 3, 1, 1), {"strides": [3, 3]}),
    ((1, 2, 3), (2, 2, 9), {"pads": [(4, 4)]}),
    ((2, 3), (4, 3), {}),
    ((0, 3, 7), (4, 3, 3), {}),
    ((2, 0, 7), (4, 0, 3), {}),
    ((2, 3, 7), (0, 3, 3), {}),
    ((2, 3, 0), (4, 3, 3), {"pads": [(1, 1)]}),
]


def window_of(x: tuple, window: dict[str, Any]) -> dict[str, Any]:
    rank = len(x) - 2
    full: dict[str, Any] = {
        "strides": [1] * rank,
        "dilations": [1] * rank,
        "pads": [(0, 0)] * rank,
        "groups": 1,
    }
    return {**full, **window}


@pytest.mark.parametrize(("x", "w", "window"), CONVS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32])
def test_conv_follows_the_formula(x: tuple, w: tuple, window: dict, dtype: Any) -> None:
    a, b = (RNG.integers(-5, 6, s).astype(dtype) for s in (x, w))
    got = graph_conv(a, b, **window)
    if 0 in x[2:]:
        assert got.shape == (2, 4, 0)
        return
    assert_same([got], [naive_conv(a, b, **window_of(x, window)).astype(dtype)])


def test_conv_of_strided_operands() -> None:
    a, b = normal(2, 5, 7, 3), normal(3, 3, 3, 4)
    got = graph_conv(a.transpose(0, 3, 1, 2), b.transpose(3, 0, 1, 2)[:, :, ::-1])
    expected = naive_conv(
        a.transpose(0, 3, 1, 2),
        b.transpose(3, 0, 1, 2)[:, :, ::-1],
        (1, 1),
        (1, 1),
        [(0, 0)] * 2,
        1,
    )
    np.testing.assert_allclose(got, expected, **CLOSE)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_narrow_floats_accumulate_in_float32(dtype: Any) -> None:
    x, w = np.full((1, 1024, 4), 0.25, dtype), np.full((1, 1024, 4), 0.5, dtype)
    assert graph_conv(x, w).ravel() == 512
    assert graph_conv(x, w, out_dtype=DType.FLOAT32).dtype == np.float32


def test_integers_widen_or_wrap() -> None:
    x, w = np.full((1, 2, 3), 200, np.uint8), np.full((1, 2, 3), -100, np.int8)
    assert graph_conv(x, w, out_dtype=DType.INT32).item() == -120000
    assert graph_conv(w, w).item() == np.int64(60000).astype(np.int8)


def test_nan_reaches_the_windows_that_touch_it_only() -> None:
    x = np.zeros((1, 1, 6), np.float32)
    x[0, 0, 2] = np.nan
    got = graph_conv(x, np.ones((1, 1, 2), np.float32))
    assert np.isnan(got[0, 0]).tolist() == [False, True, True, False, False]


@pytest.mark.parametrize(
    ("x", "w", "window", "error"),
    [
        ((1, 3, 5), (4, 2, 3), {}, ShapeError),
        ((1, 3, 5), (4, 1, 3), {"groups": 2}, ShapeError),
        ((1, 4, 5), (3, 2, 3), {"groups": 2}, ShapeError),
        ((1, 3, 2), (4, 3, 3), {}, ShapeError),
        ((1, 3, 5), (4, 3, 3, 3), {}, ShapeError),
        ((3,), (3,), {}, ShapeError),
        ((1, 3, 5), (4, 3, 3), {"strides": [0]}, ShapeError),
        ((1, 3, 5), (4, 3, 3), {"strides": [1, 1]}, ShapeError),
        ((1, 3, 5), (4, 3, 3), {"pads": [(-1, 0)]}, ShapeError),
        ((1, 3, 5), (4, 3, 3), {"groups": 0}, ShapeError),
        ((1, 3, 5), (4, 3, 3), {"out_dtype": DType.INT32}, DTypeError),
    ],
)
def test_conv_refuses_what_does_not_fit(x: Any, w: Any, window: Any, error: Any) -> None:
    g = Graph()
    with pytest.raises(error):
        g.conv(g.input("x", "float32", x), g.input("w", "float32", w), **window)


def test_conv_of_symbolic_sizes() -> None:
    g = Graph()
    x, w = g.input("x", "float32", ["n", 2, "h", "v"]), g.input("w", "float32", [3, 2, 3, 3])
    out = g.conv(x, w, g.input("b", "float32", [3]), strides=[1, 2], pads=[(1, 1), (0, 0)])
    g.output("out", out)
    n, h, v = (g.symbols[name] for name in "nhv")
    assert out.shape == (n, 3, h, (v - 3) // 2 + 1)
    a, b, c = normal(2, 2, 5, 6), normal(3, 2, 3, 3), normal(3)
    got = cpu_eval_graph(g, {"x": a, "w": b, "b": c})["out"]
    expected = naive_conv(a, b, (1, 2), (1, 1), [(1, 1), (0, 0)], 1) + c[:, None, None]
    np.testing.assert_allclose(got, expected, **CLOSE)
    with pytest.raises(SymbolError, match="fits into the padded spatial axis 1"):
        cpu_eval_graph(g, {"x": normal(2, 2, 5, 2), "w": b, "b": c})


ONNX_CONVS: list[tuple[tuple, tuple, dict[str, Any]]] = [
    ((1, 2, 7), (3, 2, 3), {}),
    ((1, 2, 7), (3, 2, 3), {"auto_pad": "SAME_UPPER", "strides": [2]}),
    ((1, 2, 6), (3, 2, 3), {"auto_pad": "SAME_UPPER", "strides": [2]}),
    ((1, 2, 6), (3, 2, 2), {"auto_pad": "SAME_LOWER"}),
    ((1, 2, 6), (3, 2, 2), {"auto_pad": "VALID", "strides": [2]}),
    ((1, 2, 6, 7), (3, 2, 3, 2), {"pads": [1, 0, 2, 1], "dilations": [1, 2]}),
    ((1, 4, 6, 7), (6, 2, 3, 2), {"group": 2, "kernel_shape": [3, 2]}),
    ((2, 4, 6, 7), (4, 1, 3, 3), {"group": 4, "strides": [2, 3]}),
    ((1, 2, 4, 5, 3), (3, 2, 2, 3, 1), {"strides": [1, 2, 1], "pads": [0, 1, 0, 1, 0, 0]}),
]


@pytest.mark.parametrize(("x", "w", "attributes"), ONNX_CONVS)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("opset", [7, 11, 22])
def test_conv_like_onnxruntime(x: Any, w: Any, attributes: Any, bias: bool, opset: int) -> None:
    inputs = {"x": normal(*x), "w": normal(*w), "b": normal(w[0]) if bias else None}
    assert_like_onnxruntime("Conv", inputs, opset=opset, **CLOSE, **attributes)


def test_same_padding_of_a_symbolic_size() -> None:
    inputs = {"x": normal(1, 2, 7, 6), "w": normal(3, 2, 3, 3)}
    symbolic = {"x": [1, 2, "h", "w"]}
    for mode, strides in itertools.product(("SAME_UPPER", "SAME_LOWER"), ([1, 1], [2, 2], [4, 2])):
        assert_like_onnxruntime(
            "Conv", inputs, symbolic=symbolic, auto_pad=mode, strides=strides, **CLOSE
        )


@pytest.mark.parametrize(
    "attributes",
    [{"kernel_shape": [3]}, {"pads": [1, 1]}, {"strides": [1]}, {"auto_pad": "SAME"}, {"extra": 1}],
)
def test_conv_refuses_wrong_attributes(attributes: dict) -> None:
    inputs = {"x": normal(1, 2, 5, 5), "w": normal(3, 2, 3, 3)}
    with pytest.raises(Exception, match="node node") as caught:
        run_here(node_model("Conv", inputs, **attributes), inputs)
    expected = ShapeError if "kernel_shape" in attributes else MalformedModelError
    assert "extra" in attributes or isinstance(caught.value, (expected, MalformedModelError))


# ---- ConvTranspose --------------------------------------------------------------------------

TRANSPOSED: list[tuple[tuple, tuple, dict[str, Any]]] = [
    ((1, 2, 3), (2, 3, 3), {}),
    ((2, 2, 3, 4), (2, 3, 3, 3), {"strides": [2, 3]}),
    ((1, 2, 3, 4), (2, 3, 3, 2), {"pads": [1, 0, 1, 1], "strides": [2, 2]}),
    ((1, 2, 3, 4), (2, 3, 3, 3), {"strides": [3, 2], "output_padding": [2, 1]}),
    ((1, 2, 3, 3), (2, 2, 2, 2), {"dilations": [2, 3]}),
    ((1, 4, 3, 3), (4, 2, 3, 3), {"group": 2, "strides": [2, 2]}),
    ((1, 3, 4, 4), (3, 1, 3, 3), {"group": 3}),
    ((1, 1, 2, 3, 2), (1, 2, 2, 2, 3), {"strides": [2, 1, 2]}),
    ((1, 2, 3), (2, 2, 2), {"strides": [5]}),
    *(
        ((1, 2, 3, 4), (2, 3, k, k), {"auto_pad": mode, "strides": [2, 3]})
        for mode in ("SAME_UPPER", "SAME_LOWER", "VALID")
        for k in (3, 4, 5)
    ),
    *(
        ((1, 2, 3, 3), (2, 2, 3, 3), {"strides": [3, 2], "output_shape": size, **more})
        for size in ([9, 7], [8, 6], [8, 5], [7, 4], [10, 8])
        for more in ({}, {"auto_pad": "SAME_UPPER"}, {"auto_pad": "SAME_LOWER"})
    ),
    (
        (1, 2, 3, 3),
        (2, 2, 3, 3),
        {"strides": [3, 2], "output_shape": [10, 8], "output_padding": [1, 1]},
    ),
]


@pytest.mark.parametrize(("x", "w", "attributes"), TRANSPOSED)
@pytest.mark.parametrize("opset", [7, 11, 22])
def test_conv_transpose_like_onnxruntime(x: Any, w: Any, attributes: Any, opset: int) -> None:
    channels = w[1] * attributes.get("group", 1)
    inputs = {"x": normal(*x), "w": normal(*w), "b": normal(channels)}
    assert_like_onnxruntime("ConvTranspose", inputs, opset=opset, **CLOSE, **attributes)


def test_conv_transpose_is_the_transpose_of_conv() -> None:
    window: dict[str, Any] = {
        "strides": [2, 1],
        "dilations": [1, 2],
        "pads": [(1, 0), (2, 1)],
        "groups": 2,
    }
    x, w = normal(1, 4, 7, 8, dtype=np.float64), normal(6, 2, 3, 2, dtype=np.float64)
    y = graph_conv(x, w, **window)
    up = normal(*y.shape, dtype=np.float64)
    g = Graph()
    a, b = g.input("a", "float64", up.shape), g.input("w", "float64", w.shape)
    g.output("out", g.conv_transpose(a, b, **window, output_padding=[1, 0]))
    back = cpu_eval_graph(g, {"a": up, "w": w})["out"]
    assert back.shape == x.shape
    np.testing.assert_allclose(np.vdot(y, up), np.vdot(x, back), rtol=1e-12)


def test_conv_transpose_of_symbolic_size_and_of_nothing() -> None:
    g = Graph()
    x, w = g.input("x", "float32", ["n", 2, "h"]), g.input("w", "float32", [2, 3, 3])
    out = g.conv_transpose(x, w, strides=[2], pads=[(1, 1)], output_padding=[1])
    g.output("out", out)
    assert str(out.type) == "float32[n, 3, 2*h]"
    got = cpu_eval_graph(g, {"x": normal(2, 2, 4), "w": normal(2, 3, 3)})["out"]
    assert got.shape == (2, 3, 8)
    empty = Graph()
    e = empty.input("x", "float32", [1, 0, 3])
    empty.output("out", empty.conv_transpose(e, empty.input("w", "float32", [0, 2, 2])))
    zeros = np.zeros((1, 0, 3), np.float32), np.zeros((0, 2, 2), np.float32)
    assert_same(list(cpu_eval_graph(empty, zeros).values()), [np.zeros((1, 2, 4), np.float32)])


@pytest.mark.parametrize(
    ("x", "w", "window"),
    [
        ((1, 3, 5), (2, 4, 3), {}),
        ((1, 3, 5), (3, 4, 3), {"groups": 2}),
        ((1, 3, 1), (3, 4, 2), {"pads": [(3, 0)]}),
        ((1, 3, 5), (3, 4, 3), {"output_padding": [-1]}),
        ((1, 3, 5), (3, 4, 3), {"output_padding": [1, 1]}),
    ],
)
def test_conv_transpose_refuses_what_does_not_fit(x: Any, w: Any, window: Any) -> None:
    g = Graph()
    with pytest.raises(ShapeError):
        g.conv_transpose(g.input("x", "float32", x), g.input("w", "float32", w), **window)


# ---- DeformConv -----------------------------------------------------------------------------


def deform(
    x: np.ndarray, w: np.ndarray, offset: np.ndarray, mask: np.ndarray | None = None, **window: Any
) -> np.ndarray:
    g = Graph()
    arrays = {"x": x, "w": w, "offset": offset} | ({} if mask is None else {"mask": mask})
    values = [g.input(n, DType.from_numpy(a.dtype), a.shape) for n, a in arrays.items()]
    g.output("out", g.deform_conv(*values, **window))
    return cpu_eval_graph(g, arrays)["out"]


def test_deform_conv_without_offsets_is_conv() -> None:
    window: dict[str, Any] = {
        "strides": [2, 1],
        "dilations": [1, 2],
        "pads": [(1, 1), (2, 1)],
        "groups": 2,
    }
    x, w = normal(2, 4, 6, 7), normal(4, 2, 3, 2)
    expected = graph_conv(x, w, **window)
    offset = np.zeros((2, 2 * 12, *expected.shape[2:]), np.float32)
    got = deform(x, w, offset, offset_groups=2, **window)
    np.testing.assert_allclose(got, expected, **CLOSE)


def test_deform_conv_interpolates_and_reads_zeros_outside() -> None:
    x = np.arange(1, 6, dtype=np.float32).reshape(1, 1, 5)
    offset = np.array([0.5, -1.5, 1.25, 9, -0.5], np.float32).reshape(1, 1, 5)
    got = deform(x, np.ones((1, 1, 1), np.float32), offset)
    assert_same([got], [np.array([[[1.5, 0.5, 4.25, 0, 4.5]]], np.float32)])
    factors = np.array([1, 2, 0, 1, 10], np.float32).reshape(1, 1, 5)
    got = deform(x, np.ones((1, 1, 1), np.float32), offset, factors)
    assert_same([got], [np.array([[[1.5, 1, 0, 0, 45]]], np.float32)])
    nan = deform(x, np.ones((1, 1, 1), np.float32), np.full((1, 1, 5), np.nan, np.float32))
    assert_same([nan], [np.zeros((1, 1, 5), np.float32)])


@pytest.mark.parametrize("opset", [19, 22])
@pytest.mark.parametrize("groups", [(1, 1), (2, 1), (1, 2), (2, 2)])
@pytest.mark.parametrize("extras", [(), ("b",), ("mask",), ("b", "mask")])
def test_deform_conv_like_onnxruntime(
    opset: int, groups: tuple[int, int], extras: tuple[str, ...]
) -> None:
    inputs = {
        "x": normal(2, 4, 6, 5),
        "w": normal(2, 4 // groups[0], 3, 2),
        "offset": 2 * normal(2, groups[1] * 12, 4, 5),
        "b": normal(2) if "b" in extras else None,
        "mask": normal(2, groups[1] * 6, 4, 5) if "mask" in extras else None,
    }
    assert_like_onnxruntime(
        "DeformConv",
        inputs,
        opset=opset,
        group=groups[0],
        offset_group=groups[1],
        pads=[0, 1, 0, 0],
        rtol=1e-4,
        atol=1e-4,
    )


@pytest.mark.parametrize("shape", [(1, 5, 3), (1, 3, 4), (2, 3, 3), (1, 3, 3, 1)])
def test_deform_conv_refuses_wrong_offsets(shape: tuple) -> None:
    with pytest.raises(ShapeError):
        deform(normal(1, 2, 5), normal(1, 2, 3), normal(*shape))


def test_operations_are_merged() -> None:
    g = Graph()
    x, w = g.input("x", "float32", [1, 2, 5]), g.input("w", "float32", [2, 2, 3])
    assert g.conv(x, w, pads=[(1, 1)]) is g.conv(x, w, pads=[(1, 1)], out_dtype=DType.FLOAT32)
    assert sum(isinstance(n.op, Conv) for n in g.nodes) == 1
