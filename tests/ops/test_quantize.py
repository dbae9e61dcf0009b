"""Rounding to few bits and back, and integer products."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from kn_graph.dtype import DType
from kn_graph.errors import KnError, MalformedModelError, ShapeError
from kn_graph.onnx import load_graph_from_onnx_bytes
from tests.ops.single_node import (
    assert_like_onnxruntime,
    assert_same,
    node_model,
    run_here,
)

F32, F16, BF16 = np.float32, np.float16, ml_dtypes.bfloat16
SPECIAL = [np.nan, np.inf, -np.inf, 1e30, -1e30, 3e9, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 0.0, -0.0]


def random(*shape: int, scale: float = 100.0, dtype: Any = F32, seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(scale=scale, size=shape).astype(dtype)


def integers(dtype: Any, *shape: int, low: int | None = None, high: int | None = None) -> Any:
    info = np.iinfo(dtype)
    low, high = info.min if low is None else low, info.max + 1 if high is None else high
    return np.random.default_rng(1).integers(low, high, shape).astype(dtype)


# ---- QuantizeLinear -------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16])
@pytest.mark.parametrize("zero", [0, 3])
def test_quantize_rounds_halves_to_even_and_saturates(dtype: Any, zero: int) -> None:
    inputs = {"x": np.array(SPECIAL, F32), "s": F32(1), "z": dtype(zero)}
    assert_like_onnxruntime("QuantizeLinear", inputs)


@pytest.mark.parametrize("opset", [10, 13, 19, 21])
@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_quantize_of_every_opset(dtype: Any, opset: int) -> None:
    inputs = {"x": random(4, 5), "s": F32(0.37), "z": dtype(5)}
    assert_like_onnxruntime("QuantizeLinear", inputs, opset=opset)
    assert_like_onnxruntime("QuantizeLinear", inputs | {"z": None}, opset=opset)


@pytest.mark.parametrize("axis", [0, 1, -1, None])
def test_quantize_along_an_axis(axis: int | None) -> None:
    size = (3, 4, 5)[1 if axis is None else axis]
    inputs = {"x": random(3, 4, 5), "s": np.linspace(0.1, 2, size, dtype=F32)}
    inputs["z"] = np.arange(size, dtype=np.int8)
    options: dict[str, Any] = {} if axis is None else {"axis": axis}
    assert_like_onnxruntime("QuantizeLinear", inputs, **options)


@pytest.mark.parametrize("shape", [(2, 6, 3), (2, 5, 3)])
def test_quantize_in_blocks(shape: tuple[int, ...]) -> None:
    blocks = (2, 3, 3)
    inputs = {"x": random(*shape), "s": np.abs(random(*blocks)) + 0.5}
    inputs["z"] = integers(np.uint8, *blocks)
    assert_like_onnxruntime("QuantizeLinear", inputs, axis=1, block_size=2)


def test_quantize_an_int32() -> None:
    inputs = {"x": np.array([[7, -9, 2**31 - 1, -(2**31)]], np.int32), "s": F32(2)}
    inputs["z"] = np.int8(3)
    (y,) = run_here(node_model("QuantizeLinear", inputs, opset=13), inputs)
    assert_same([y], [np.array([[7, -1, 127, -128]], np.int8)])


def test_a_vector_takes_its_only_axis_by_default() -> None:
    inputs = {"x": np.arange(3, dtype=F32), "s": np.array([1, 2, 0.5], F32)}
    inputs["z"] = np.array([0, 1, 2], np.int8)
    (y,) = run_here(node_model("QuantizeLinear", inputs), inputs)
    assert y.tolist() == [0, 1, 6]


# before opset 23 onnxruntime divides in float32; from 23 on the text says: as the scale
@pytest.mark.parametrize("dtype", [F16, BF16])
def test_half_precision_divides_in_float32_before_opset_23(dtype: Any) -> None:
    x, s = random(10_000, scale=300, dtype=dtype), dtype(0.37)
    inputs = {"x": x, "s": s, "z": np.int16(0)}
    exact = np.rint(x.astype(F32) / F32(s)).astype(np.int16)
    assert_same(run_here(node_model("QuantizeLinear", inputs), inputs), [exact])
    rounded = np.rint((x / s).astype(F32)).astype(np.int16)
    assert (rounded != exact).any()
    assert_same(run_here(node_model("QuantizeLinear", inputs, opset=23), inputs), [rounded])
    model = node_model("QuantizeLinear", inputs, opset=23, precision=DType.FLOAT32.onnx_code)
    assert_same(run_here(model, inputs), [exact])


def test_half_precision_is_like_onnxruntime() -> None:
    inputs = {"x": random(10_000, scale=300, dtype=F16), "s": F16(0.37), "z": np.int16(0)}
    assert_like_onnxruntime("QuantizeLinear", inputs)


@pytest.mark.parametrize(
    ("dtype", "low", "high"),
    [
        (DType.INT4, -8, 7),
        (DType.UINT4, 0, 15),
        (DType.INT2, -2, 1),
        (DType.UINT2, 0, 3),
        (DType.INT16, -(2**15), 2**15 - 1),
        (DType.UINT16, 0, 2**16 - 1),
    ],
)
def test_quantize_to_narrow_integers(dtype: DType, low: int, high: int) -> None:
    x = np.array([-1e6, -2.5, -1, 0, 0.5, 1.5, 1e6, np.nan], F32)
    inputs = {"x": x, "s": F32(1)}
    model = node_model("QuantizeLinear", inputs, opset=25, output_dtype=dtype.onnx_code)
    expected = np.clip(np.nan_to_num(np.rint(x), nan=low), low, high).astype(np.int32)
    assert_same(run_here(model, inputs), [expected.astype(dtype.numpy)])


@pytest.mark.parametrize("saturate", [0, 1])
@pytest.mark.parametrize(
    "dtype", [DType.FLOAT8E4M3FN, DType.FLOAT8E4M3FNUZ, DType.FLOAT8E5M2, DType.FLOAT8E5M2FNUZ]
)
def test_quantize_to_float8(dtype: DType, saturate: int) -> None:
    x = np.array([0, 1, 1.06, -3.3, 1e6, -1e6, np.inf, np.nan], F32)
    inputs = {"x": x, "s": F32(2), "z": np.zeros((), dtype.numpy)}
    got = run_here(node_model("QuantizeLinear", inputs, saturate=saturate), inputs)
    cast = run_here(
        node_model("Cast", {"x": x / 2}, to=dtype.onnx_code, saturate=saturate), {"x": x / 2}
    )
    np.testing.assert_array_equal(got[0].view(np.uint8), cast[0].view(np.uint8))


def test_the_formula_holds_for_a_zero_point_of_float4() -> None:
    float4 = DType.FLOAT4E2M1.numpy
    inputs = {"x": np.array([1, 3, -2], F32), "s": F32(2), "z": np.array(1.5, float4)}
    (y,) = run_here(node_model("QuantizeLinear", inputs, opset=23), inputs)
    assert y.astype(F32).tolist() == [2.0, 3.0, 0.5]


def test_a_scale_of_powers_of_two_divides_in_the_type_of_x() -> None:
    inputs = {"x": random(8), "s": np.array(0.25, DType.FLOAT8E8M0.numpy), "z": np.int8(1)}
    (y,) = run_here(node_model("QuantizeLinear", inputs, opset=24), inputs)
    assert_same([y], [np.clip(np.rint(inputs["x"] * 4) + 1, -128, 127).astype(np.int8)])


# ---- DequantizeLinear -----------------------------------------------------------------------


@pytest.mark.parametrize("opset", [10, 13, 19, 21])
@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_dequantize_of_every_opset(dtype: Any, opset: int) -> None:
    inputs = {"x": integers(dtype, 4, 5), "s": F32(0.37), "z": dtype(5)}
    assert_like_onnxruntime("DequantizeLinear", inputs, opset=opset)
    assert_like_onnxruntime("DequantizeLinear", inputs | {"z": None}, opset=opset)


def test_dequantize_along_an_axis_and_in_blocks() -> None:
    inputs = {"x": integers(np.uint8, 3, 4, 5), "s": np.linspace(0.1, 2, 4, dtype=F32)}
    inputs["z"] = integers(np.uint8, 4)
    assert_like_onnxruntime("DequantizeLinear", inputs)
    assert_like_onnxruntime("DequantizeLinear", inputs, axis=-2)
    inputs |= {"s": np.abs(random(3, 2, 5)), "z": integers(np.uint8, 3, 2, 5)}
    assert_like_onnxruntime("DequantizeLinear", inputs, axis=1, block_size=3)


@pytest.mark.parametrize("dtype", [np.int16, np.uint16])
def test_dequantize_16_bits_to_half_precision(dtype: Any) -> None:
    inputs = {"x": integers(dtype, 1000), "s": F16(0.037), "z": dtype(5)}
    assert_like_onnxruntime("DequantizeLinear", inputs)


def test_dequantize_int32() -> None:
    inputs = {"x": integers(np.int32, 1000), "s": F32(0.3)}
    assert_like_onnxruntime("DequantizeLinear", inputs)


@pytest.mark.parametrize("dtype", [ml_dtypes.int4, ml_dtypes.uint4, ml_dtypes.int2])
def test_dequantize_narrow_integers(dtype: Any) -> None:
    x = np.arange(-8, 8).astype(np.int8).astype(dtype)
    inputs = {"x": x, "s": F32(0.5), "z": np.array(1, dtype)}
    (y,) = run_here(node_model("DequantizeLinear", inputs, opset=25), inputs)
    assert_same([y], [(x.astype(F32) - 1) * F32(0.5)])


def test_dequantize_to_another_type() -> None:
    inputs = {"x": integers(np.int8, 20), "s": np.array(0.25, DType.FLOAT8E8M0.numpy)}
    model = node_model("DequantizeLinear", inputs, opset=25, output_dtype=DType.BFLOAT16.onnx_code)
    assert_same(run_here(model, inputs), [(inputs["x"] * F32(0.25)).astype(BF16)])
    with pytest.raises(MalformedModelError, match="output_dtype is required"):
        load_graph_from_onnx_bytes(node_model("DequantizeLinear", inputs, opset=25))


def test_symbolic_sizes_and_empty_tensors() -> None:
    for n in (0, 1, 7):
        inputs = {"x": random(n, 6), "s": np.abs(random(n, 2)) + 1, "z": integers(np.int8, n, 2)}
        symbolic = {"x": ("n", 6), "s": ("n", 2), "z": ("n", 2)}
        model = node_model("QuantizeLinear", inputs, symbolic=symbolic, block_size=3)
        expected = np.rint(inputs["x"] / np.repeat(inputs["s"], 3, 1)) + np.repeat(
            inputs["z"], 3, 1
        )
        assert_same(run_here(model, inputs), [np.clip(expected, -128, 127).astype(np.int8)])


def test_a_zero_point_of_zero_adds_no_node() -> None:
    def count(zero: int) -> int:
        inputs = {"x": random(3), "s": F32(1), "z": np.int8(zero)}
        return len(load_graph_from_onnx_bytes(node_model("QuantizeLinear", inputs, constant=["z"]))
                   .nodes)  # fmt: skip

    assert count(0) < count(1)


# ---- DynamicQuantizeLinear ------------------------------------------------------------------


@pytest.mark.parametrize(
    "x",
    [
        random(7, 9),
        np.abs(random(5)),
        -np.abs(random(5)),
        np.zeros((2, 3), F32),
        np.ones((0, 3), F32),
    ],
    ids=["mixed", "positive", "negative", "zeros", "empty"],
)
def test_dynamic_quantize(x: Any) -> None:
    assert_like_onnxruntime("DynamicQuantizeLinear", {"x": x}, ("y", "scale", "zero"))


def test_dynamic_quantize_follows_the_formula() -> None:
    x = np.array([-1.0, 0.0, 3.0], F32)
    scale = F32(4) / F32(255)
    y, got_scale, zero = run_here(
        node_model("DynamicQuantizeLinear", {"x": x}, ("y", "scale", "zero")), {"x": x}
    )
    assert (got_scale, zero) == (scale, np.rint(1 / scale))
    assert y.tolist() == [0, 64, 255]


# ---- integer products -----------------------------------------------------------------------

MIXES = [(a, b) for a in (np.uint8, np.int8) for b in (np.uint8, np.int8)]


def exact_product(a: Any, b: Any, a_zero: Any = 0, b_zero: Any = 0) -> Any:
    wide = [np.asarray(v).astype(np.int64) for v in (a, b, a_zero, b_zero)]
    return np.matmul(wide[0] - wide[2], wide[1] - wide[3]).astype(np.int32)


@pytest.mark.parametrize(("a_type", "b_type"), MIXES)
@pytest.mark.parametrize("zeros", ["none", "single", "row and column", "large"])
def test_matmul_integer_is_exact(a_type: Any, b_type: Any, zeros: str) -> None:
    a, b = integers(a_type, 2, 3, 40), integers(b_type, 40, 5)
    inputs: dict[str, Any] = {"a": a, "b": b, "az": None, "bz": None}
    if zeros == "single":
        inputs |= {"az": a_type(7), "bz": np.array([9], b_type)}
    elif zeros == "row and column":
        inputs |= {"az": integers(a_type, 2, 3, 1), "bz": integers(b_type, 5)}
    elif zeros == "large":
        inputs |= {"az": a_type(np.iinfo(a_type).max), "bz": b_type(np.iinfo(b_type).min)}
    expected = exact_product(a, b, *(0 if inputs[n] is None else inputs[n] for n in ("az", "bz")))
    assert_same(run_here(node_model("MatMulInteger", inputs), inputs), [expected])
    constant = node_model(
        "MatMulInteger", inputs, constant=["b", *(["bz"] if zeros != "none" else [])]
    )
    assert_same(run_here(constant, inputs), [expected])


@pytest.mark.parametrize(("a_type", "b_type"), [(np.uint8, np.uint8), (np.uint8, np.int8)])
def test_matmul_integer_is_like_onnxruntime(a_type: Any, b_type: Any) -> None:
    # small numbers: without VNNI onnxruntime saturates sums of two products
    inputs = {"a": integers(a_type, 3, 8, high=50), "b": integers(b_type, 8, 4, low=0, high=50)}
    assert_like_onnxruntime("MatMulInteger", inputs | {"az": a_type(3), "bz": b_type(5)})


def test_matmul_integer_of_vectors_and_rows() -> None:
    a, b = integers(np.uint8, 6), integers(np.int8, 6)
    assert_same(run_here(node_model("MatMulInteger", {"a": a, "b": b}), {"a": a, "b": b}),
                [exact_product(a, b)])  # fmt: skip
    inputs = {"a": integers(np.uint8, 3, 6), "b": b, "az": integers(np.uint8, 3), "bz": np.int8(2)}
    expected = exact_product(inputs["a"], b, inputs["az"][:, None], 2)
    assert_same(run_here(node_model("MatMulInteger", inputs), inputs), [expected])


def test_sums_of_products_wrap() -> None:
    inputs = {"a": np.full((1, 40_000), 255, np.uint8), "b": np.full((40_000, 1), 255, np.uint8)}
    (y,) = run_here(node_model("MatMulInteger", inputs), inputs)
    assert int(y[0, 0]) == 40_000 * 255 * 255 - 2**32


CONVS: list[dict[str, Any]] = [
    {},
    {"pads": [1, 1, 1, 1]},
    {"pads": [1, 0, 2, 1], "strides": [2, 1]},
    {"auto_pad": "SAME_UPPER", "strides": [2, 2]},
    {"dilations": [2, 2], "pads": [2, 2, 2, 2]},
    {"group": 2, "pads": [1, 1, 1, 1]},
]


def exact_conv(x: Any, w: Any, x_zero: Any, w_zero: Any, options: dict[str, Any]) -> Any:
    """Convolve in float64, which holds these sums exactly."""
    wide = {
        "x": x.astype(np.float64) - float(x_zero),
        "w": w.astype(np.float64) - np.reshape(w_zero, (-1, 1, 1, 1)).astype(np.float64),
    }
    return run_here(node_model("Conv", wide, **options), wide)[0].astype(np.int32)


@pytest.mark.parametrize("options", CONVS, ids=str)
@pytest.mark.parametrize(("x_type", "w_type"), MIXES)
def test_conv_integer_pads_with_the_zero_point(
    x_type: Any, w_type: Any, options: dict[str, Any]
) -> None:
    group = options.get("group", 1)
    inputs: dict[str, Any] = {"x": integers(x_type, 2, 4, 6, 5)}
    inputs |= {"w": integers(w_type, 6, 4 // group, 3, 3), "xz": x_type(9), "wz": w_type(3)}
    expected = exact_conv(inputs["x"], inputs["w"], 9, 3, options)
    assert_same(run_here(node_model("ConvInteger", inputs, **options), inputs), [expected])
    inputs["wz"] = integers(w_type, 6)
    expected = exact_conv(inputs["x"], inputs["w"], 9, inputs["wz"], options)
    assert_same(run_here(node_model("ConvInteger", inputs, **options), inputs), [expected])


def test_conv_integer_is_like_onnxruntime() -> None:
    inputs: dict[str, Any] = {"x": integers(np.uint8, 1, 2, 5, 5, high=40)}
    inputs |= {"w": integers(np.uint8, 3, 2, 3, 3, high=40), "xz": np.uint8(5), "wz": np.uint8(2)}
    assert_like_onnxruntime("ConvInteger", inputs, pads=[1, 1, 1, 1])


def test_conv_integer_over_one_axis_without_zero_points() -> None:
    inputs = {"x": integers(np.uint8, 1, 2, 7), "w": integers(np.int8, 3, 2, 3)}
    (y,) = run_here(node_model("ConvInteger", inputs, pads=[1, 1]), inputs)
    wide = {n: a.astype(np.float64) for n, a in inputs.items()}
    (expected,) = run_here(node_model("Conv", wide, pads=[1, 1]), wide)
    assert_same([y], [expected.astype(np.int32)])


@pytest.mark.parametrize(
    ("a_type", "b_type"), [(np.uint8, np.uint8), (np.uint8, np.int8), (np.int8, np.int8)]
)
@pytest.mark.parametrize("columns", [False, True])
def test_qlinear_matmul(a_type: Any, b_type: Any, columns: bool) -> None:
    b_scale = np.linspace(0.01, 0.03, 5, dtype=F32) if columns else F32(0.02)
    inputs = {
        "a": integers(a_type, 4, 8, low=0, high=60),
        "as": F32(0.05),
        "az": a_type(3),
        "b": integers(b_type, 8, 5, low=0, high=60),
        "bs": b_scale,
        "bz": np.full(np.shape(b_scale), 5, b_type),
        "ys": F32(0.1),
        "yz": a_type(7),
    }
    assert_like_onnxruntime("QLinearMatMul", inputs)


def test_qlinear_matmul_with_scales_of_rows() -> None:
    rows = np.array([[0.5], [1], [2]], F32)
    inputs = {
        "a": integers(np.int8, 3, 8), "as": rows[:, 0], "az": np.array([1, 2, 3], np.int8),
        "b": integers(np.int8, 8, 2), "bs": F32(0.25), "bz": np.int8(0),
        "ys": F32(64), "yz": np.int8(-1),
    }  # fmt: skip
    total = exact_product(inputs["a"], inputs["b"], inputs["az"][:, None])
    expected = np.clip(np.rint(total * (rows * F32(0.25) / F32(64))) - 1, -128, 127)
    model = node_model("QLinearMatMul", inputs)
    assert_same(run_here(model, inputs), [expected.astype(np.int8)])


def test_qlinear_matmul_of_float8() -> None:
    float8 = ml_dtypes.float8_e4m3fn
    a, b = random(3, 4, scale=2, dtype=float8), random(4, 2, scale=2, dtype=float8)
    inputs = {"a": a, "as": F32(2), "az": float8(0), "b": b, "bs": F32(0.5), "bz": float8(0)}
    inputs |= {"ys": F32(4), "yz": float8(0)}
    expected = (a.astype(F32) @ b.astype(F32) / 4).astype(float8)
    assert_same(run_here(node_model("QLinearMatMul", inputs), inputs), [expected])


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("channels", [False, True])
@pytest.mark.parametrize("options", CONVS, ids=str)
def test_qlinear_conv(options: dict[str, Any], channels: bool, bias: bool) -> None:
    group = options.get("group", 1)
    w_scale = np.linspace(0.01, 0.03, 6, dtype=F32) if channels else F32(0.02)
    inputs = {
        "x": integers(np.uint8, 2, 4, 6, 5, high=60),
        "xs": F32(0.05),
        "xz": np.uint8(7),
        "w": integers(np.int8, 6, 4 // group, 3, 3, low=-30, high=30),
        "ws": w_scale,
        "wz": np.zeros(np.shape(w_scale), np.int8),
        "ys": F32(0.03),
        "yz": np.uint8(100),
        "b": integers(np.int32, 6, low=-500, high=500) if bias else None,
    }
    assert_like_onnxruntime("QLinearConv", inputs, **options)


# ---- what is refused ------------------------------------------------------------------------

BAD_NODES: list[tuple[str, dict[str, Any], dict[str, Any], type[KnError], str]] = [
    ("QuantizeLinear", {"s": np.ones((4, 5), F32)}, {}, MalformedModelError, "without block_size"),
    ("QuantizeLinear", {"s": np.ones(3, F32)}, {}, ShapeError, "scales and sizes of axis 1"),
    ("QuantizeLinear", {"s": np.ones(5, F32)}, {"axis": 2}, ShapeError, "axis 2"),
    ("QuantizeLinear", {"s": np.ones((4, 5), F32)}, {"block_size": 2}, ShapeError, "blocks of 2"),
    ("QuantizeLinear", {"z": np.int8(0)}, {"output_dtype": 2}, MalformedModelError, "uint8"),
    ("QuantizeLinear", {}, {"precision": 1}, KnError, "precision"),
    ("DequantizeLinear", {"x": np.ones(3, np.int8), "z": np.uint8(0)}, {}, KnError, "uint8"),
]


@pytest.mark.parametrize(("op", "changes", "options", "error", "text"), BAD_NODES, ids=str)
def test_bad_nodes_are_refused_by_name(
    op: str, changes: Any, options: Any, error: type[KnError], text: str
) -> None:
    inputs = {"x": random(4, 5), "s": F32(1), "z": None} | changes
    with pytest.raises(error, match=text):
        load_graph_from_onnx_bytes(node_model(op, inputs, **options))
