"""Operators of com.microsoft on quantized tensors and weights, against onnxruntime or by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kn_graph.errors import KnError, UnsupportedModelError
from tests.ops.single_node import (
    MICROSOFT,
    assert_like_onnxruntime,
    assert_same,
    node_model,
    run_here,
    run_onnxruntime,
)

F32 = np.float32
CLOSE: dict[str, Any] = {"rtol": 1e-5, "atol": 1e-5, "domain": MICROSOFT}
EXACT: dict[str, Any] = {"domain": MICROSOFT}


def random(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng([seed, *shape]).normal(size=shape).astype(F32)


def codes(dtype: Any, *shape: int, low: int = 0, high: int = 60, seed: int = 0) -> Any:
    return np.random.default_rng([seed, *shape]).integers(low, high, shape).astype(dtype)


def here(operator: str, inputs: dict[str, Any], outputs: Any = ("y",), **options: Any) -> Any:
    model = node_model(operator, inputs, outputs, domain=MICROSOFT, **options)
    return run_here(model, inputs)


# ---- quantize -------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16])
def test_quantize_and_dequantize(dtype: Any) -> None:
    inputs = {"x": random(4, 5) * 100, "s": F32(0.5), "z": dtype(3)}
    assert_like_onnxruntime("QuantizeLinear", inputs, **EXACT)
    inputs["x"] = codes(dtype, 4, 5)
    assert_like_onnxruntime("DequantizeLinear", inputs, **EXACT)
    inputs |= {"s": np.linspace(0.1, 1, 4, dtype=F32), "z": codes(dtype, 4)}
    assert_like_onnxruntime("DequantizeLinear", inputs, axis=0, **EXACT)


# ---- DynamicQuantizeLSTM --------------------------------------------------------------------


def lstm_inputs(directions: int, kind: str, *optional: str) -> dict[str, Any]:
    steps, batch, features, hidden = 5, 3, 6, 4
    columns = 4 * hidden
    per_column = kind.endswith("columns")
    dtype: Any = np.int8 if kind.startswith("int8") else np.uint8
    shape = (directions, columns) if per_column else (directions,)
    low, high = (-127, 128) if dtype is np.int8 else (0, 256)
    zero = np.zeros(shape, dtype) if dtype is np.int8 else codes(dtype, *shape, low=110, high=140)
    optionals = {
        "b": random(directions, 2 * columns),
        "lengths": np.array([5, 2, 3], np.int32),
        "h": random(directions, batch, hidden, seed=1) / 2,
        "c": random(directions, batch, hidden, seed=2),
        "p": random(directions, 3 * hidden),
    }
    return {
        "x": random(steps, batch, features),
        "w": codes(dtype, directions, features, columns, low=low, high=high),
        "r": codes(dtype, directions, hidden, columns, low=low, high=high),
        **{n: a if n in optional else None for n, a in optionals.items()},
        "ws": np.abs(random(*shape)) / 200 + F32(0.002),
        "wz": zero,
        "rs": np.abs(random(*shape, seed=1)) / 200 + F32(0.002),
        "rz": zero,
    }


@pytest.mark.parametrize("kind", ["int8", "uint8", "int8 columns"])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("optional", [("b",), ("b", "lengths", "h", "c", "p")], ids=len)
def test_dynamic_quantize_lstm(kind: str, direction: str, optional: tuple[str, ...]) -> None:
    count = 2 if direction == "bidirectional" else 1
    inputs = lstm_inputs(count, kind, *optional)
    weights = ("w", "r", "ws", "wz", "rs", "rz")
    assert_like_onnxruntime(
        "DynamicQuantizeLSTM",
        inputs,
        ("y", "y_h", "y_c"),
        constant=weights,
        hidden_size=4,
        direction=direction,
        **CLOSE,
    )


def test_the_hidden_state_of_a_dynamic_quantize_lstm_is_rounded() -> None:
    inputs = lstm_inputs(1, "int8", "b")
    weights = {
        "x": inputs["x"],
        "w": (inputs["w"] * inputs["ws"][:, None, None]).transpose(0, 2, 1),
        "r": (inputs["r"] * inputs["rs"][:, None, None]).transpose(0, 2, 1),
        "b": inputs["b"],
    }
    plain = run_here(node_model("LSTM", weights, hidden_size=4), weights)[0]
    rounded = here("DynamicQuantizeLSTM", inputs, hidden_size=4)[0]
    difference = np.abs(plain - rounded).max()
    assert 1e-4 < difference < 0.05


# ---- products -------------------------------------------------------------------------------


@pytest.mark.parametrize("b_type", [np.int8, np.uint8])
@pytest.mark.parametrize("columns", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_dynamic_quantize_matmul(b_type: Any, columns: bool, bias: bool) -> None:
    shape = (5,) if columns else ()
    inputs = {
        "a": random(2, 3, 8),
        "b": codes(b_type, 8, 5),
        "bs": np.abs(random(*shape)) + F32(0.1),
        "bz": codes(b_type, *shape),
        "bias": random(5) if bias else None,
    }
    assert_like_onnxruntime("DynamicQuantizeMatMul", inputs, constant=["b"], **CLOSE)


@pytest.mark.parametrize("a_type", [np.int8, np.uint8])
@pytest.mark.parametrize("columns", [False, True])
def test_matmul_integer_to_float(a_type: Any, columns: bool) -> None:
    shape = (5,) if columns else (1,)
    inputs = {
        "a": codes(a_type, 2, 3, 8),
        "b": codes(np.int8, 8, 5),
        "as": np.array([0.5], F32),
        "bs": np.abs(random(*shape)) + F32(0.1),
        "az": np.array([7], a_type),
        "bz": codes(np.int8, *shape),
        "bias": random(5),
    }
    assert_like_onnxruntime("MatMulIntegerToFloat", inputs, **CLOSE)
    with pytest.raises(UnsupportedModelError, match="more than one"):
        here("MatMulIntegerToFloat", inputs | {"as": np.ones(8, F32)})


QGEMMS: list[dict[str, Any]] = [{}, {"transA": 1}, {"transB": 1, "alpha": 0.5}]


@pytest.mark.parametrize("options", QGEMMS, ids=str)
@pytest.mark.parametrize("quantized", [False, True])
@pytest.mark.parametrize("columns", [False, True])
def test_qgemm(options: dict[str, Any], quantized: bool, columns: bool) -> None:
    shape = (5,) if columns else ()
    inputs = {
        "a": codes(np.uint8, *((8, 3) if options.get("transA") else (3, 8))),
        "as": F32(0.02),
        "az": np.uint8(5),
        "b": codes(np.int8, *((5, 8) if options.get("transB") else (8, 5))),
        "bs": np.abs(random(*shape)) / 10 + F32(0.01),
        "bz": codes(np.int8, *shape),
        "c": codes(np.int32, 5, low=-500, high=500),
        "ys": F32(0.1) if quantized else None,
        "yz": np.uint8(30) if quantized else None,
    }
    tolerance: dict[str, Any] = {} if quantized else {"rtol": 1e-6, "atol": 1e-6}
    assert_like_onnxruntime("QGemm", inputs, **options, **EXACT, **tolerance)


# ---- weights of few bits --------------------------------------------------------------------


def pack(numbers: Any, bits: int) -> Any:
    """Pack the last axis into bytes, the lowest bits first."""
    per = 8 // bits
    padded = np.zeros((*numbers.shape[:-1], -(-numbers.shape[-1] // per) * per), np.uint8)
    padded[..., : numbers.shape[-1]] = numbers
    groups = padded.reshape(*padded.shape[:-1], -1, per)
    shifted = groups.astype(np.int64) << bits * np.arange(per)
    return shifted.sum(-1).astype(np.uint8)


def n_bits_inputs(k: int, block: int, bits: int, zeros: str) -> tuple[dict[str, Any], Any]:
    """Return the inputs of MatMulNBits and the weights [N, K] they stand for."""
    n, blocks = 6, -(-k // block)
    numbers = codes(np.uint8, n, blocks * block, high=2**bits)
    scales = np.abs(random(n, blocks)) + F32(0.1)
    middle = np.full((n, blocks), 2 ** (bits - 1), np.uint8)
    packed = codes(np.uint8, n, blocks, high=2**bits, seed=1)
    floats = random(n, blocks, seed=2) + F32(2 ** (bits - 1))
    offset = {"none": middle, "packed": packed, "float": floats}[zeros]
    spread = [np.repeat(v.astype(F32), block, 1)[:, :k] for v in (offset, scales)]
    given = {"none": None, "packed": pack(packed, bits), "float": floats}[zeros]
    inputs = {
        "a": random(2, 3, k),
        "b": pack(numbers.reshape(n, blocks, block), bits),
        "s": scales,
        "z": given,
    }
    return inputs, (numbers[:, :k].astype(F32) - spread[0]) * spread[1]


@pytest.mark.parametrize("zeros", ["none", "packed", "float"])
@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize(("k", "block"), [(32, 16), (40, 16), (50, 32)])
def test_matmul_n_bits_by_hand(k: int, block: int, bits: int, zeros: str) -> None:
    inputs, weights = n_bits_inputs(k, block, bits, zeros)
    options = {"K": k, "N": 6, "bits": bits, "block_size": block}
    expected = inputs["a"] @ weights.T
    assert_same(here("MatMulNBits", inputs, **options), [expected], rtol=1e-5, atol=1e-5)
    inputs |= {"groups": None, "bias": random(6)}
    got = here("MatMulNBits", inputs, constant=["b", "s"], **options)
    assert_same(got, [expected + inputs["bias"]], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("zeros", ["none", "packed", "float"])
@pytest.mark.parametrize(("k", "block"), [(32, 16), (50, 32), (128, 128)])
def test_matmul_4_bits_is_like_onnxruntime(k: int, block: int, zeros: str) -> None:
    inputs, _ = n_bits_inputs(k, block, 4, zeros)
    constant = ["b", "s", *(["z"] if zeros != "none" else [])]
    options: dict[str, Any] = {"K": k, "N": 6, "bits": 4, "block_size": block}
    options["constant"] = constant
    assert_like_onnxruntime("MatMulNBits", inputs, **options, **CLOSE | {"atol": 1e-4})


def test_matmul_4_bits_of_flat_parameters_and_groups() -> None:
    inputs, weights = n_bits_inputs(32, 16, 4, "packed")
    flat = inputs | {"s": inputs["s"].ravel(), "z": inputs["z"].ravel()}
    options = {"K": 32, "N": 6, "bits": 4, "block_size": 16}
    expected = [inputs["a"] @ weights.T]
    assert_same(here("MatMulNBits", flat, **options), expected, rtol=1e-5, atol=1e-5)
    inputs["g"] = (np.arange(32) // 16).astype(np.int32)
    assert_same(here("MatMulNBits", inputs, **options), expected, rtol=1e-5, atol=1e-5)
    inputs["g"] = np.zeros(32, np.int32)
    numbers = weights / np.repeat(inputs["s"], 16, 1)
    first = numbers[:, :16] * inputs["s"][:, :1]
    got = here("MatMulNBits", inputs, **options)[0] - here(
        "MatMulNBits", inputs | {"a": inputs["a"] * (np.arange(32) >= 16)}, **options
    )[0]  # fmt: skip
    np.testing.assert_allclose(got, inputs["a"][..., :16] @ first.T, rtol=1e-4, atol=1e-4)


def test_a_projection_that_was_left_out_gives_zeros() -> None:
    inputs = {"a": random(2, 32), "b": np.zeros((0, 2, 8), np.uint8), "s": np.zeros(0, F32)}
    options = {"K": 32, "N": 6, "bits": 4, "block_size": 16}
    assert_same(here("MatMulNBits", inputs, **options), [np.zeros((2, 6), F32)])


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("zeros", [False, True])
def test_gather_block_quantized(bits: int, zeros: bool) -> None:
    numbers = codes(np.uint8, 7, 48, high=2**bits)
    offset = codes(np.uint8, 7, 3, high=2**bits, seed=1)
    scales = np.abs(random(7, 3)) + F32(0.1)
    inputs = {
        "d": pack(numbers, bits),
        "i": np.array([[3, -1], [0, 3]], np.int64),
        "s": scales,
        "z": pack(offset, bits) if zeros else None,
    }
    shift = np.repeat(offset.astype(F32), 16, 1) if zeros else F32(2 ** (bits - 1))
    full = (numbers.astype(F32) - shift) * np.repeat(scales, 16, 1)
    options: dict[str, Any] = {"bits": bits, "block_size": 16}
    got = here("GatherBlockQuantized", inputs, **options)
    assert_same(got, [full[inputs["i"]]], rtol=1e-6)
    constant = ["d", "s", *(["z"] if zeros else [])]
    options |= {"constant": constant, "domain": MICROSOFT}
    assert_same(got, run_onnxruntime(
        node_model("GatherBlockQuantized", inputs, **options), inputs), rtol=1e-6
    )  # fmt: skip


# ---- QLinear... -----------------------------------------------------------------------------


def triple(dtype: Any, *shape: int, seed: int, low: int = 0, high: int = 256) -> dict[str, Any]:
    """Return codes, scale and zero point under names of their own."""
    if dtype is np.int8:
        low, high = low - 128, high - 128
    scale = F32(0.01 * (seed + 1))
    zero = dtype(low + (high - low) // 3)
    name = f"t{seed}"
    return {
        name: codes(dtype, *shape, low=low, high=high, seed=seed),
        f"{name}s": scale,
        f"{name}z": zero,
    }


def target(dtype: Any, scale: float = 0.05) -> dict[str, Any]:
    return {"ys": F32(scale), "yz": dtype(20)}


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("shape", [(4, 33), (33,), (1, 33), (4, 1)])
@pytest.mark.parametrize("operator", ["QLinearAdd", "QLinearMul"])
def test_qlinear_arithmetic(operator: str, shape: tuple[int, ...], dtype: Any) -> None:
    inputs = triple(dtype, 4, 33, seed=0) | triple(dtype, *shape, seed=1) | target(dtype)
    model = node_model(operator, inputs, domain=MICROSOFT)
    got, expected = run_here(model, inputs)[0], run_onnxruntime(model, inputs)[0]
    # onnxruntime rounds products of scales differently, which moves a few halves
    difference = np.abs(got.astype(int) - expected.astype(int))
    assert difference.max() <= 1
    assert difference.mean() < 0.02


def test_qlinear_arithmetic_by_hand() -> None:
    a, b = np.array([10, 200], np.uint8), np.array([3, 5], np.uint8)
    inputs = {"a": a, "as": F32(0.5), "az": np.uint8(20), "b": b, "bs": F32(0.25), "bz": None}
    inputs |= {"ys": F32(0.125), "yz": np.uint8(100)}
    # (-5 + 0.75) / 0.125 = -34, (90 + 1.25) / 0.125 saturates
    assert here("QLinearAdd", inputs)[0].tolist() == [66, 255]
    # -10 * 3 * 0.125 / 0.125 = -30, 180 * 5 saturates
    assert here("QLinearMul", inputs)[0].tolist() == [70, 255]


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize(
    ("operator", "options"),
    [
        ("QLinearSigmoid", {}),
        ("QLinearLeakyRelu", {}),
        ("QLinearLeakyRelu", {"alpha": 0.3}),
        ("QLinearSoftmax", {"opset": 13, "axis": -1}),
        ("QLinearSoftmax", {"opset": 13, "axis": 1}),
        ("QLinearSoftmax", {"opset": 11, "axis": 1}),
        ("QLinearGlobalAveragePool", {}),
        ("QLinearGlobalAveragePool", {"channels_last": 1}),
        ("QLinearAveragePool", {"kernel_shape": [2, 3]}),
        ("QLinearAveragePool", {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [2, 2]}),
        ("QLinearAveragePool", {"kernel_shape": [3, 2], "channels_last": 1, "ceil_mode": 1}),
        (
            "QLinearAveragePool",
            {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "count_include_pad": 1},
        ),
    ],
    ids=str,
)
def test_qlinear_functions(operator: str, options: dict[str, Any], dtype: Any) -> None:
    scale = 1 / 256 if operator in ("QLinearSigmoid", "QLinearSoftmax") else 0.02
    inputs = triple(dtype, 2, 3, 5, 6, seed=0) | target(dtype, scale)
    model = qlinear_model(operator, inputs, options)
    got, expected = run_here(model, inputs)[0], run_onnxruntime(model, inputs)[0]
    assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
    difference = np.abs(got.astype(int) - expected.astype(int))
    assert difference.max() <= 1
    assert difference.mean() < 0.1


def qlinear_model(operator: str, inputs: dict[str, Any], options: dict[str, Any]) -> bytes:
    """Return a model; QLinearSoftmax has an attribute that is called opset."""
    import onnx

    plain = {k: v for k, v in options.items() if k != "opset"}
    constant = [n for n in inputs if n != "t0"]
    model = node_model(operator, inputs, domain=MICROSOFT, constant=constant, **plain)
    if "opset" not in options:
        return model
    proto = onnx.ModelProto.FromString(model)
    proto.graph.node[0].attribute.append(onnx.helper.make_attribute("opset", options["opset"]))
    return proto.SerializeToString()


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_qlinear_concat(dtype: Any) -> None:
    inputs = target(dtype) | triple(dtype, 2, 3, seed=0) | triple(dtype, 2, 4, seed=1)
    assert_like_onnxruntime("QLinearConcat", inputs, axis=1, **EXACT)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_qlinear_where(dtype: Any) -> None:
    choose = codes(np.bool_, 4, 5, high=2)
    inputs: dict[str, Any] = {"c": choose} | triple(dtype, 4, 5, seed=0)
    inputs |= triple(dtype, 1, 5, seed=1) | target(dtype)
    constant = [n for n in inputs if n not in ("c", "t0", "t1")]
    assert_like_onnxruntime("QLinearWhere", inputs, constant=constant, **EXACT)


def test_qlinear_reduce_mean() -> None:
    inputs = triple(np.uint8, 2, 3, 4, seed=0) | target(np.uint8, 0.01)
    floats = (inputs["t0"].astype(F32) - inputs["t0z"]) * inputs["t0s"]
    expected = np.clip(np.rint(floats.mean((1, 2)) / F32(0.01)) + 20, 0, 255).astype(np.uint8)
    assert_same(here("QLinearReduceMean", inputs, axes=[1, 2], keepdims=0), [expected])


@pytest.mark.parametrize("last", [0, 1])
def test_qlinear_conv_with_channels_last(last: int) -> None:
    x = codes(np.uint8, 2, 4, 6, 5)
    inputs = {
        "x": x,
        "xs": F32(0.05),
        "xz": np.uint8(7),
        "w": codes(np.int8, 6, 4, 3, 3, low=-30, high=30),
        "ws": F32(0.02),
        "wz": np.int8(0),
        "ys": F32(0.03),
        "yz": np.uint8(100),
    }
    (expected,) = run_here(node_model("QLinearConv", inputs, pads=[1, 1, 1, 1]), inputs)
    if last:
        inputs["x"], expected = x.transpose(0, 2, 3, 1), expected.transpose(0, 2, 3, 1)
    assert_like_onnxruntime(
        "QLinearConv", inputs, channels_last=last, pads=[1, 1, 1, 1], **EXACT
    )  # fmt: skip
    assert_same(here("QLinearConv", inputs, channels_last=last, pads=[1, 1, 1, 1]), [expected])


# ---- what is refused ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"bits": 3}, "3 bits"),
        ({"weight_prepacked": 1}, "packed for one kind"),
        ({"K": 64}, "cannot view"),
        ({"block_size": 0}, "block_size"),
    ],
)
def test_bad_weights_are_refused(changes: dict[str, int], text: str) -> None:
    inputs, _ = n_bits_inputs(32, 16, 4, "none")
    options = {"K": 32, "N": 6, "bits": 4, "block_size": 16} | changes
    with pytest.raises(KnError, match=text):
        here("MatMulNBits", inputs, **options)
