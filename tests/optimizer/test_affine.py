"""Scales and biases by constants: fused, and folded into the weights around them."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from kn_graph import DType, Graph, Value, cpu_eval_graph, load_graph_from_onnx_bytes
from kn_graph.optimizer import OptimizerSettings, product
from kn_graph.optimizer.compact import compact_constant
from kn_graph.optimizer.editor import Editor
from kn_graph.optimizer.rules import affine_input
from models.generate import build, inputs
from tests.optimizer.rewriting import (
    EXPORTS,
    MODELS,
    assert_equal,
    constant,
    feeds,
    ops,
    optimized,
    refusals,
    stored,
)

RNG = np.random.default_rng(7)


def random(g: Graph, *shape: int, dtype: str = "float32", low: float = 0.5) -> Value:
    """Add a constant of magnitude `low` to 2, of both signs."""
    a = RNG.uniform(low, 2, shape) * RNG.choice([-1, 1], shape)
    return constant(g, a, dtype)


def channels(x: Value, n: int, dtype: str = "float32") -> Value:
    return random(x.graph, n, *(1,) * (x.rank - 2), dtype=dtype)


def scaled_bias(x: Value, n: int, dtype: str = "float32") -> Value:
    """Return ((x - a) / b * c + d) along axis 1: a batch normalisation."""
    a, b, c, d = (channels(x, n, dtype) for _ in range(4))
    return (x - a) / b * c + d


# ---- chains behind anything -----------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize(
    "shapes",
    [
        [(), (), ()],
        [(4, 1, 1), (), (4, 1, 1)],
        [(1, 4, 1, 1), (4, 1, 1), ()],
        [(5,), (1, 1, 1, 5), (1,)],
        [(4, 3, 5), (5,), (5,)],
    ],
)
def test_chain_becomes_scale_and_bias(dtype, shapes):
    g = Graph()
    g.symbol("n", lo=0)
    x = g.input("x", dtype, ["n", 4, 3, 5])
    a, b, c = (random(g, *s, dtype=dtype) for s in shapes)
    g.output("y", b * (g.relu(x) - a) * c + a)
    out, _ = optimized(g, affine=1)
    assert ops(out) == {"relu": 1, "mul": 1, "add": 1}
    for n in (0, 1, 3):
        assert_equal(g, out, feeds(g, n=n))


def test_constants_stand_on_either_side():
    g = Graph()
    x = g.input("x", "float64", ["n", 4])
    a, b, c, d = (random(g, 4, dtype="float64") for _ in range(4))
    g.output("y", (a - (b - x) * c) / d)
    out, _ = optimized(g, affine=1)
    assert ops(out) == {"mul": 1, "add": 1}
    assert_equal(g, out, feeds(g))


def test_what_cancels_is_dropped():
    g = Graph()
    x = g.input("x", "float32", ["n", 4])
    g.output("y", (x * 4.0 + 3.0 - 3.0) / 4.0)
    out, _ = optimized(g, affine=1)
    assert not ops(out)
    assert_equal(g, out, feeds(g))


def test_chain_goes_through_layout():
    """tf2onnx and keras2onnx put transposes between the steps."""
    g = Graph()
    x = g.input("x", "float64", ["n", 4, 3, 5])
    y = g.permute(x * random(g, 4, 1, 1, dtype="float64"), [0, 2, 3, 1])
    y = g.view(y, (x.shape[0], 15, 4)) + random(g, 4, dtype="float64")
    g.output("y", y * random(g, 1, dtype="float64") - random(g, 1, 4, dtype="float64"))
    out, _ = optimized(g, affine=1)
    assert ops(out) == {"mul": 1, "add": 1}
    assert_equal(g, out, feeds(g))


def test_constants_do_not_grow():
    g = Graph()
    x = g.input("x", "float32", ["n", 64, 32, 32])
    wide, tall = random(g, 32, 32), random(g, 64, 1, 1)
    g.output("y", (x + wide) * tall)
    g.output("z", x * wide * tall)
    out, _ = optimized(g, affine=0)
    assert ops(out) == {"add": 1, "mul": 3}


def test_pieces_that_do_not_combine_are_fused_each():
    g = Graph()
    x = g.input("x", "float64", ["n", 4, 3])
    row, column = (
        (random(g, 1, 3, dtype="float64") for _ in range(2)),
        random(g, 4, 1, dtype="float64"),
    )
    a, b = row
    g.output("y", (x * a + b - a) * column * column - column)
    out, _ = optimized(g, affine=1)
    assert ops(out) == {"mul": 2, "add": 2}
    assert_equal(g, out, feeds(g))


@pytest.mark.parametrize(
    "other",
    [
        lambda g, x: g.scalar(np.inf, x.dtype),
        lambda g, x: g.scalar(np.nan, x.dtype),
        lambda g, x: g.input("other", "float32", []),
        lambda g, x: g.view(g.reduce("max", x), ()),
    ],
    ids=["infinity", "nan", "input", "computed"],
)
def test_near_miss_other_operands(other: Callable[[Graph, Value], Value]):
    g = Graph()
    x = g.input("x", "float32", ["n", 4])
    g.output("y", (x + 1.0) * other(g, x) - 1.0)
    out, _ = optimized(g, affine=0)
    assert ops(out)["mul"] == 1
    assert ops(out)["add"] + ops(out)["sub"] == 2


def test_near_miss_readers_in_between():
    g = Graph()
    x = g.input("x", "float32", ["n", 4])
    first = x * 2.0
    second = first + 1.5
    g.output("y", second * 5.0 + 7.0)
    g.output("first", first)
    g.output("second", g.relu(second))
    out, _ = optimized(g, affine=0)
    assert ops(out) == {"mul": 2, "add": 2, "relu": 1}


def test_near_miss_integers():
    g = Graph()
    x = g.input("x", "int32", ["n", 4])
    g.output("y", (x * 3 + 5) * 7 - 2)
    out, _ = optimized(g, affine=0)
    assert_equal(g, out, feeds(g))


def test_scales_that_leave_the_range_are_kept_apart():
    g = Graph()
    x = g.input("x", "float32", ["n"])
    g.output("y", x * 1e-30 * 1e-30 * 1e-30)
    g.output("z", x * 1e30 * 1e30)
    out, _ = optimized(g)
    given = {"x": np.array([1e-5, np.inf, np.nan, 1e30, 0], np.float32)}
    assert_equal(g, out, given)


def test_order_of_two_steps_is_kept():
    """(x + a) * b is two operations already; a mask such as (1 - x) * -1e9 stays as it is."""
    g = Graph()
    x = g.input("x", "float32", ["n", 4])
    g.output("y", (x + 1.5) * 3.0)
    g.output("z", (1.0 - g.relu(x)) * -1e9)
    out, _ = optimized(g, affine=0)
    assert ops(out)["add"] == 1
    assert ops(out)["sub"] == 1


def test_long_chain_takes_no_time():
    g = Graph()
    x = v = g.input("x", "float32", ["n"])
    one, two = (
        g.broadcast(g.scalar(1, x.dtype), x.shape),
        g.broadcast(g.scalar(1.00001, x.dtype), x.shape),
    )
    for i in range(5_000):
        v = g.mul(v, two) if i % 100 == 0 else g.add(v, one)
    g.output("y", v)
    start = time.perf_counter()
    out, _ = optimized(g, affine=1)
    assert time.perf_counter() - start < 10
    assert ops(out) == {"mul": 1, "add": 1}
    assert_equal(g, out, feeds(g), tolerance=1e-3)


# ---- what belongs to something else ---------------------------------------------------------


def quantized(g: Graph, x: Value) -> Value:
    step, zero = g.scalar(0.1, DType.FLOAT32), g.scalar(3, DType.UINT8)
    return g.quantize(x, step, zero)


def conv(x: Value, outputs: int, *, bias: bool = True, pad: int = 0, kernel: int = 1) -> Value:
    g, n = x.graph, x.shape[1]
    assert isinstance(n, int)
    w = random(g, outputs, n, *(kernel,) * (x.rank - 2))
    pads = [(pad, pad)] * (x.rank - 2)
    return g.conv(x, w, random(g, outputs) if bias else None, pads=pads)


def test_quantization_is_left_alone():
    g = Graph()
    x = g.input("x", "float32", ["n", 3, 4, 4])
    y = g.dequantize(
        quantized(g, conv(x, 4)), g.scalar(0.1, DType.FLOAT32), g.scalar(3, DType.UINT8)
    )
    g.output("y", g.relu(conv(y, 5)))
    off = OptimizerSettings(fuse_quantized=False)
    out, _ = optimized(g, off, affine=0, affine_input=0)
    assert ops(out)["div"] == 1
    assert ops(out)["mul"] == 1


def test_bytes_of_a_picture_are_no_quantization():
    g = Graph()
    x = g.input("x", "uint8", ["n", 3, 4, 4])
    y = (g.cast(x, DType.FLOAT32) / 255.0 - random(g, 3, 1, 1)) / random(g, 3, 1, 1)
    g.output("y", conv(y, 4))
    out, _ = optimized(g, affine_input=1)
    assert ops(out) == {"Cast": 1, "Conv": 1, "add": 1}
    given = {"x": np.random.default_rng(0).integers(0, 256, (2, 3, 4, 4), np.uint8)}
    assert_equal(g, out, given)


@pytest.mark.parametrize("fn", ["floor", "ceil", "round_even"])
def test_what_is_rounded_is_left_alone(fn):
    g = Graph()
    x = g.input("x", "float32", ["n", 3, 4, 4])
    g.output("y", g.unary(fn, conv(x, 4) * 2.0))
    g.output("z", g.cast(conv(x, 4) / 3.0, DType.INT32))
    out, _ = optimized(g, affine=0)
    assert ops(out)["mul"] + ops(out)["div"] == 2


@pytest.mark.parametrize("form", ["plus 3", "plus half"])
def test_hard_sigmoid_keeps_its_bias(form):
    g = Graph()
    x = g.input("x", "float32", ["n", 3, 4, 4])
    y = conv(x, 4)
    if form == "plus 3":
        y = g.minimum(g.maximum(y + 3.0, g.scalar(0, y.dtype)), g.scalar(6, y.dtype)) / 6.0
    else:
        y = g.minimum(g.maximum(y * 0.2 + 0.5, g.scalar(0, y.dtype)), g.scalar(1, y.dtype))
    g.output("y", y)
    out, _ = optimized(g, affine=0)
    assert_equal(g, out, feeds(g))
    kept, _ = optimized(g, OptimizerSettings(fuse_activation=False), affine=0)
    assert ops(kept)["add"] == 2


# ---- behind convolutions --------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize(
    ("spatial", "options"),
    [
        (1, {}),
        (1, {"strides": [2], "pads": [(1, 2)], "groups": 2}),
        (2, {"strides": [2, 1], "dilations": [1, 2], "pads": [(1, 1), (0, 2)]}),
        (2, {"groups": 4, "pads": [(1, 1), (1, 1)]}),
        (3, {"pads": [(1, 1)] * 3, "groups": 2}),
    ],
)
@pytest.mark.parametrize("transposed", [False, True])
def test_batch_norm_goes_into_the_weights(dtype, spatial, options, transposed):
    g = Graph()
    g.symbol("n", lo=0)
    x = g.input("x", dtype, ["n", 4, *(6,) * spatial])
    groups = options.get("groups", 1)
    kernel = (3,) * spatial
    if transposed:
        w = random(g, 4, 8 // groups, *kernel, dtype=dtype)
        y = g.conv_transpose(x, w, random(g, 8, dtype=dtype), **options)
    else:
        y = g.conv(x, random(g, 8, 4 // groups, *kernel, dtype=dtype), **options)
    g.output("y", g.relu(scaled_bias(y, 8, dtype)))
    out, _ = optimized(g, affine=1)
    name = "ConvTranspose" if transposed else "Conv"
    assert ops(out) == {name: 1, "add": 1, "relu": 1}
    for n in (0, 1, 2):
        assert_equal(g, out, feeds(g, n=n))


def test_chain_behind_a_convolution_goes_through_transposes():
    """tf2onnx computes in NHWC, with a bias and a decomposed batch norm behind the transpose."""
    g = Graph()
    x = g.input("x", "float32", ["n", "h", "w", 3])
    y = g.permute(conv(g.permute(x, [0, 3, 1, 2]), 8, bias=False, kernel=3), [0, 2, 3, 1])
    row = [random(g, 1, 1, 1, 8) for _ in range(4)]
    g.output("y", g.relu((y + row[0] - row[1]) * row[2] + row[3]))
    out, _ = optimized(g, affine=1)
    assert ops(out) == {"Conv": 1, "add": 1, "relu": 1}
    for h in (3, 5):
        assert_equal(g, out, feeds(g, h=h, w=4))


def test_difference_becomes_a_bias():
    g = Graph()
    x = g.input("x", "float32", ["n", 3, 4, 4])
    y = conv(x, 4, bias=False)
    g.output("y", y - channels(y, 4))
    g.output("z", channels(y, 5) - conv(x, 5, bias=False))
    out, _ = optimized(g, affine=2)
    assert ops(out) == {"Conv": 2, "add": 2}
    assert_equal(g, out, feeds(g), tolerance=1e-7)


def test_near_miss_product_with_other_readers():
    g = Graph()
    x = g.input("x", "float32", ["n", 3, 4, 4])
    y = conv(x, 4, bias=False)
    g.output("y", g.relu(y * channels(y, 4)) + g.tanh(y))
    out, report = optimized(g, affine=0)
    assert ops(out)["mul"] == 1
    assert any("somebody else" in why for why in refusals(report, "affine"))


def test_near_miss_product_is_an_output():
    g = Graph()
    x = g.input("x", "float32", ["n", 3, 4, 4])
    y = conv(x, 4, bias=False)
    g.output("conv", y)
    g.output("y", y * channels(y, 4))
    _, report = optimized(g, affine=0)
    assert any("somebody else" in why for why in refusals(report, "affine"))


@pytest.mark.parametrize("shape", [(4, 4), (1, 4, 1), (4, 4, 4), (2, 1, 1, 1)])
def test_near_miss_scale_is_not_one_for_each_channel(shape):
    g = Graph()
    x = g.input("x", "float32", [2, 3, 4, 4])
    y = conv(x, 4, bias=False)
    g.output("y", y * random(g, *shape))
    out, report = optimized(g, affine=0)
    assert ops(out) == {"Conv": 1, "mul": 1}
    assert refusals(report, "affine") == ["the scale is not one for each channel"]


def test_near_miss_computed_weights():
    g = Graph()
    x = g.input("x", "float32", ["n", 3, 4, 4])
    y = g.conv(x, g.input("w", "float32", [4, 3, 1, 1]))
    g.output("y", y * channels(y, 4))
    out, _ = optimized(g, affine=0)
    assert ops(out) == {"Conv": 1, "mul": 1}


def test_near_miss_wider_result():
    g = Graph()
    x = g.input("x", "float16", ["n", 3, 4, 4])
    w = random(g, 4, 3, 1, 1, dtype="float16")
    y = g.conv(x, w, out_dtype=DType.FLOAT32)
    g.output("y", y * channels(y, 4))
    optimized(g, affine=0)


def test_setting_switches_it_off():
    g = Graph()
    x = g.input("x", "float32", ["n", 3, 4, 4])
    g.output("y", conv(scaled_bias(conv(x, 4), 4), 4))
    off = OptimizerSettings(fuse_affine=False)
    out, _ = optimized(g, off, affine=0, affine_input=0)
    assert ops(out)["mul"] + ops(out)["div"] == 2


@pytest.mark.parametrize(
    ("weight", "scale", "why"), [(6e4, 4.0, "overflow"), (1e-3, 1e-3, "underflow")]
)
def test_float16_weights_stay_in_range(weight, scale, why):
    g = Graph()
    x = g.input("x", "float16", ["n", 2, 3])
    y = g.conv(x, constant(g, np.full((2, 2, 1), weight), "float16"))
    g.output("y", y * constant(g, [[scale], [1.0]], "float16"))
    _, report = optimized(g, affine=0)
    assert any(why in text for text in refusals(report, "affine"))


def test_pruned_channels_do_not_hinder():
    """Trained networks have scales of 0, and denormal ones."""
    g = Graph()
    x = g.input("x", "float32", ["n", 3, 4, 4])
    y = conv(x, 4)
    scale = np.array([0, 1e-41, 2, -1], np.float32).reshape(4, 1, 1)
    g.output("y", y * g.constant(scale) + channels(y, 4))
    out, _ = optimized(g, affine=1)
    given = feeds(g)
    given["x"][0, 0, 0, 0] = np.nan
    given["x"][1, 0, 0, 0] = np.inf
    assert_equal(g, out, given)


def test_shared_weights_are_copied_up_to_a_size(monkeypatch):
    def graph() -> Graph:
        g = Graph()
        x = g.input("x", "float32", ["n", 3, 4, 4])
        w = random(g, 4, 3, 3, 3)
        for name in ("y", "z"):
            g.output(
                name, g.conv(g.unary("exp" if name == "y" else "tanh", x), w) * random(g, 4, 1, 1)
            )
        return g

    g = graph()
    out, _ = optimized(g, affine=2)
    assert ops(out)["mul"] == 0
    assert_equal(g, out, feeds(g))
    monkeypatch.setattr(product, "SHARED_BYTES", 16)
    _, report = optimized(graph(), affine=0)
    assert any("shared" in why for why in refusals(report, "affine"))


def test_large_weights_are_not_copied(monkeypatch):
    monkeypatch.setattr(product, "LARGEST", 16)
    g = Graph()
    x = g.input("x", "float32", ["n", 3, 4, 4])
    y = conv(x, 4, bias=False)
    g.output("y", y * channels(y, 4))
    _, report = optimized(g, affine=0)
    assert any("MiB" in why for why in refusals(report, "affine"))


# ---- behind and in front of matrix products -------------------------------------------------


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize(
    ("x_shape", "w_shape", "left", "scale"),
    [
        (("n", 4), (4, 5), False, (5,)),
        (("n", 4), (4, 5), False, ()),
        (("b", "n", 4), (4, 5), False, (1, 5)),
        ((2, "n", 4), (2, 4, 5), False, (2, 1, 5)),
        ((2, "n", 4), (2, 4, 5), False, (5,)),
        ((4, "n"), (5, 4), True, (5, 1)),
        ((2, 4, "n"), (2, 5, 4), True, (2, 5, 1)),
        ((2, 4, "n"), (1, 5, 4), True, (5, 1)),
    ],
)
def test_scale_goes_into_matrices(dtype, x_shape, w_shape, left, scale):
    g = Graph()
    g.symbol("n", lo=0)
    x, w = g.input("x", dtype, x_shape), random(g, *w_shape, dtype=dtype)
    y = g.matmul(w, x) if left else g.matmul(x, w)
    y = (y + random(g, *scale, dtype=dtype)) * random(g, *scale, dtype=dtype)
    g.output("y", y - random(g, *scale, dtype=dtype))
    out, _ = optimized(g, affine=1)
    assert ops(out) == {"MatMul": 1, "add": 1}
    for n in (0, 1, 3):
        assert_equal(g, out, feeds(g, n=n, b=2))


def test_near_miss_scale_along_the_rows_of_x():
    g = Graph()
    x = g.input("x", "float32", [3, 4])
    g.output("y", g.matmul(x, random(g, 4, 5)) * random(g, 3, 1))
    _, report = optimized(g, affine=0)
    assert refusals(report, "affine") == ["the scale is not one for each channel"]


def test_near_miss_scale_for_each_of_several_matrices():
    """One matrix for the whole batch does not become several."""
    g = Graph()
    x = g.input("x", "float32", [4, 3, "n"])
    g.output("y", g.matmul(random(g, 5, 3), x) * random(g, 4, 1, 1))
    optimized(g, affine=0)


@pytest.mark.parametrize("beta", [1.0, 0.5])
def test_gemm_leaves_no_factors(beta):
    """Gemm with alpha, beta and transB, as sklearn2onnx writes it."""
    weights = RNG.standard_normal((5, 4)).astype(np.float32)
    bias = RNG.standard_normal(5).astype(np.float32)
    gemm = helper.make_node("Gemm", ["x", "w", "c"], ["y"], alpha=0.25, beta=beta, transB=1)
    g = load_graph_from_onnx_bytes(model([gemm], {"w": weights, "c": bias}, (None, 4), (None, 5)))
    out, _ = optimized(g, affine=1)
    assert ops(out) == {"MatMul": 1, "add": 1}
    assert "Permute" not in [n.op.title for n in out.nodes]  # `fold` transposes the weights
    assert_equal(g, out, feeds(g))


def test_layer_norm_goes_into_the_next_matrix():
    g = Graph()
    g.symbol("s", lo=0)
    x = g.input("x", "float32", ["b", "s", 4])
    y = g.norm(x, [2], 1e-5) * random(g, 4) + random(g, 4)
    g.output("y", g.relu(g.matmul(y, random(g, 4, 6)) + random(g, 6)))
    out, _ = optimized(g, affine_input=1)
    assert ops(out) == {"Norm": 1, "MatMul": 1, "add": 1, "relu": 1}
    for s in (0, 1, 3):
        assert_equal(g, out, feeds(g, s=s))


def test_matrix_on_the_left_takes_an_input_scale():
    g = Graph()
    x = g.input("x", "float64", [2, 4, "n"])
    y = g.relu(x) * random(g, 4, 1, dtype="float64") + random(g, 1, 1, dtype="float64")
    g.output("y", g.matmul(random(g, 2, 5, 4, dtype="float64"), y))
    out, _ = optimized(g, affine_input=1)
    assert ops(out) == {"relu": 1, "MatMul": 1, "add": 1}
    assert_equal(g, out, feeds(g))


def test_near_miss_large_matrix_keeps_its_input_scale(monkeypatch):
    monkeypatch.setattr(affine_input, "MATRIX_BYTES", 16)
    g = Graph()
    x = g.input("x", "float32", ["b", 4])
    g.output("y", g.matmul(g.relu(x) * random(g, 4), random(g, 4, 6)))
    _, report = optimized(g, affine_input=0)
    assert any("MiB" in why for why in refusals(report, "affine_input"))


# ---- in front of convolutions ---------------------------------------------------------------


def test_picture_normalisation_goes_into_the_first_convolution():
    g = Graph()
    x = g.input("x", "float64", ["n", 3, "h", "w"])
    y = (x - random(g, 3, 1, 1, dtype="float64")) / random(g, 3, 1, 1, dtype="float64")
    w, b = random(g, 8, 3, 3, 3, dtype="float64"), random(g, 8, dtype="float64")
    g.output("y", g.relu(g.conv(y, w, b)))
    out, _ = optimized(g, affine_input=1)
    assert ops(out) == {"Conv": 1, "add": 1, "relu": 1}
    for h in (3, 5):
        assert_equal(g, out, feeds(g, h=h, w=4))


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("transposed", [False, True])
def test_bias_stays_in_front_of_padding(groups, transposed):
    """PaddleOCR's learnable affine blocks: an activation, a scale, a bias, a padded convolution."""
    g = Graph()
    x = g.input("x", "float64", ["n", 4, "h", 5])
    y = g.unary("hard_swish", x) * random(g, 4, 1, 1, dtype="float64") + random(
        g, 1, dtype="float64"
    )
    pads = [(1, 1), (1, 1)]
    if transposed:
        w = random(g, 4, 8 // groups, 3, 3, dtype="float64")
        y = g.conv_transpose(y, w, pads=pads, strides=[2, 2], groups=groups)
    else:
        w = random(g, 8, 4 // groups, 3, 3, dtype="float64")
        y = g.conv(y, w, pads=pads, groups=groups)
    g.output("y", y)
    out, _ = optimized(g, affine_input=1)
    assert ops(out) == {"hard_swish": 1, "add": 1, "ConvTranspose" if transposed else "Conv": 1}
    for h in (1, 4):
        assert_equal(g, out, feeds(g, h=h))


def test_near_miss_bias_in_front_of_padding_alone():
    g = Graph()
    x = g.input("x", "float32", ["n", 3, 4, 4])
    g.output("y", conv(g.relu(x) + channels(x, 3), 4, pad=1))
    out, _ = optimized(g, affine_input=0)
    assert ops(out) == {"relu": 1, "Conv": 1, "add": 2}


def test_near_miss_scale_of_0_keeps_the_bias():
    g = Graph()
    x = g.input("x", "float32", ["n", 3, 4, 4])
    y = g.relu(x) * constant(g, np.array([0, 1, 2]).reshape(3, 1, 1)) + channels(x, 3)
    g.output("y", conv(y, 4, pad=1))
    _, report = optimized(g, affine_input=0)
    assert any("divided" in why for why in refusals(report, "affine_input"))


def test_near_miss_input_with_other_readers():
    g = Graph()
    x = g.input("x", "float32", ["n", 3, 4, 4])
    y = g.relu(x) * channels(x, 3)
    g.output("y", conv(y, 3) + y)
    optimized(g, affine_input=0)


def test_near_miss_scale_of_places():
    g = Graph()
    x = g.input("x", "float32", ["n", 3, 4, 4])
    g.output("y", conv(g.relu(x) * random(g, 4, 4), 4))
    _, report = optimized(g, affine_input=0)
    assert refusals(report, "affine_input") == ["the scale is not one for each channel"]


# ---- as exporters write it ------------------------------------------------------------------


def model(
    nodes, weights, x_shape, y_shape, opset: int = 15, dtype: int = TensorProto.FLOAT
) -> bytes:
    graph = helper.make_graph(
        nodes,
        "test",
        [helper.make_tensor_value_info("x", dtype, x_shape)],
        [helper.make_tensor_value_info("y", dtype, y_shape)],
        [numpy_helper.from_array(a, n) for n, a in weights.items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    onnx.checker.check_model(made)
    data: bytes = made.SerializeToString()
    return data


def norm_weights(n: int, dtype: type = np.float32) -> dict[str, np.ndarray]:
    names = ("scale", "bias", "mean", "var")
    return {k: RNG.uniform(0.5, 2, n).astype(dtype) for k in names}


@pytest.mark.parametrize("opset", [7, 9, 15])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_convolution_with_batch_normalization(opset, dtype):
    """PyTorch's exporter in training mode "preserve", and paddle2onnx, keep the node."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["c", "scale", "bias", "mean", "var"], ["n"]),
        helper.make_node("Relu", ["n"], ["y"]),
    ]
    weights = norm_weights(8, dtype) | {"w": RNG.standard_normal((8, 3, 3, 3)).astype(dtype)}
    code = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    shape = ["n", 3, 6, 6]
    g = load_graph_from_onnx_bytes(model(nodes, weights, shape, ["n", 8, 6, 6], opset, code))
    out, report = optimized(g)
    assert report.fired["affine"] == 1
    assert report.fired["affine_cast"] == (dtype is np.float16)
    assert ops(out) == {"Conv": 1, "add": 1, "relu": 1}
    for n in (0, 2):
        assert_equal(g, out, feeds(g, n=n))


def test_batch_normalization_alone():
    node = helper.make_node("BatchNormalization", ["x", "scale", "bias", "mean", "var"], ["y"])
    g = load_graph_from_onnx_bytes(model([node], norm_weights(8), ["n", 8, 6], ["n", 8, 6]))
    out, _ = optimized(g, affine=1)
    assert ops(out) == {"mul": 1, "add": 1}
    assert_equal(g, out, feeds(g))


def test_paddle_block():
    """paddle2onnx: a convolution, its bias, a batch norm, and a learnable scale and bias."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1], group=4),
        helper.make_node("Reshape", ["b", "shape"], ["r"]),
        helper.make_node("Add", ["c", "r"], ["a"]),
        helper.make_node("BatchNormalization", ["a", "scale", "bias", "mean", "var"], ["n"]),
        helper.make_node("Identity", ["s"], ["i"]),
        helper.make_node("Mul", ["i", "n"], ["m"]),
        helper.make_node("Add", ["m", "t"], ["l"]),
        helper.make_node("Relu", ["l"], ["y"]),
    ]
    weights = norm_weights(8) | {
        "w": RNG.standard_normal((8, 1, 3, 3)).astype(np.float32),
        "b": RNG.standard_normal(8).astype(np.float32),
        "shape": np.array([1, 8, 1, 1]),
        "s": np.array([1.5], np.float32),
        "t": np.array([-0.25], np.float32),
    }
    g = load_graph_from_onnx_bytes(model(nodes, weights, ["n", 4, 6, 6], ["n", 8, 6, 6]))
    out, _ = optimized(g, affine=1)
    assert ops(out) == {"Conv": 1, "add": 1, "relu": 1}
    assert_equal(g, out, feeds(g))


@pytest.mark.parametrize("narrow", ["float16", "bfloat16"])
def test_wide_arithmetic_behind_narrow_products(narrow):
    g = Graph()
    dtype = DType.parse(narrow)
    x = g.input("x", narrow, ["n", 3, 4, 4])
    y = g.cast(g.conv(x, random(g, 4, 3, 3, 3, dtype=narrow)), DType.FLOAT32)
    g.output("y", g.relu(g.cast(scaled_bias(y, 4), dtype)))
    out, _ = optimized(g, affine_cast=1)
    assert ops(out) == {"Conv": 1, "add": 1, "relu": 1}
    assert_equal(g, out, feeds(g))


def test_near_miss_casts_with_other_readers():
    g = Graph()
    x = g.input("x", "float16", ["n", 3, 4, 4])
    y = g.cast(g.conv(x, random(g, 4, 3, 3, 3, dtype="float16")), DType.FLOAT32)
    z = y * channels(y, 4)
    g.output("y", g.cast(z, DType.FLOAT16))
    g.output("z", g.relu(z))
    optimized(g, affine_cast=0)


@pytest.mark.parametrize("fn", ["mul", "add"])
def test_near_miss_constant_does_not_fit_the_narrow_type(fn):
    g = Graph()
    x = g.input("x", "float16", ["n", 3, 4, 4])
    y = g.cast(g.conv(x, random(g, 4, 3, 3, 3, dtype="float16")), DType.FLOAT32)
    y = g.binary(fn, y, g.scalar(1e6, y.dtype))
    g.output("y", g.cast(y, DType.FLOAT16))
    _, report = optimized(g, affine_cast=0)
    assert refusals(report, "affine_cast")


# ---- models ---------------------------------------------------------------------------------


def other_scalar_ops(graph: Graph) -> list[str]:
    """Return arithmetic with a constant that is no sum directly behind a product."""
    edit = Editor(graph)
    found = []
    for node in edit.graph.nodes:
        if node.op.title not in ("add", "sub", "mul", "div"):
            continue
        rest = [v for v in node.operands if compact_constant(edit, v) is None]
        if len(rest) != 1:
            continue
        (x,) = rest
        while x.node.op.title in ("View", "Permute"):
            (x,) = x.node.operands
        if node.op.title != "add" or x.node.op.title not in ("Conv", "ConvTranspose", "MatMul"):
            found.append(f"{node.op.title} of {x.node.op.title}")
    return found


def test_generated_residual_cnn():
    g = load_graph_from_onnx_bytes(build("residual_cnn").SerializeToString())
    out, report = optimized(g)
    assert report.fired["affine"] == 6
    assert not other_scalar_ops(out)
    assert_equal(g, out, inputs("residual_cnn"))


@pytest.mark.real_models
@pytest.mark.parametrize("exporter", ["legacy", "dynamo"])
@pytest.mark.parametrize("name", ["resnet18", "resnet50", "mobilenetv2", "mobilenetv3s"])
def test_exported_classifiers_have_biases_alone(name, exporter):
    g = stored(EXPORTS, f"{name}.{exporter}.onnx")
    out, _ = optimized(g)
    assert not other_scalar_ops(out)


@pytest.mark.real_models
@pytest.mark.parametrize(
    ("name", "fired", "left"),
    [
        ("e47acedf6632", 35, set()),  # rapidocr: ch_ppocr_mobile_v2.0_cls, paddle2onnx
        ("fb29e60f4b22", 53, set()),  # yahoo open_nsfw, tf2onnx
        ("d2a7720d45a5", 32, {"mul of hard_swish", "add of hard_swish", "add of mul"}),
        ("0857526d9cbc", 7, set()),  # madmom chords
    ],
)
def test_real_models(name, fired, left):
    out, _ = optimized(stored(MODELS, f"{name}.onnx"), affine=fired)
    assert set(other_scalar_ops(out)) <= left


# ---- any chain ------------------------------------------------------------------------------

STEPS = st.tuples(
    st.sampled_from(["add", "sub", "mul", "div"]),
    st.sampled_from([(), (1,), (3, 1), (2,), (1, 3, 1), (1, 3, 2)]),
    st.booleans(),
    st.lists(st.sampled_from([0.5, -1.5, 3.0, -0.125, 1.0, 1e-3, 7.0]), min_size=6, max_size=6),
)


@settings(deadline=None, max_examples=60)
@given(
    steps=st.lists(STEPS, min_size=1, max_size=6),
    front=st.sampled_from(["input", "conv", "matmul"]),
    behind=st.sampled_from(["output", "conv", "matmul"]),
    n=st.integers(0, 2),
    special=st.sampled_from([0.0, np.nan, np.inf, -np.inf, 5e-324, 1e300]),
)
def test_any_chain(steps, front, behind, n, special):
    rng = np.random.default_rng(0)
    g = Graph()
    g.symbol("n", lo=0)

    def weights(*shape: int) -> Value:
        return constant(g, rng.uniform(-2, 2, shape), "float64")

    v = g.input("x", "float64", ["n", 3, 2])
    if front == "conv":
        v = g.conv(v, weights(3, 3, 1))
    elif front == "matmul":
        v = g.matmul(v, weights(2, 2))
    for fn, shape, swapped, numbers in steps:
        count = int(np.prod(shape))
        c = constant(g, np.reshape(numbers[:count], shape), "float64")
        swap = swapped and fn != "div"
        v = g.binary(fn, *((c, v) if swap else (v, c)))
    if behind == "conv":
        v = g.conv(v, weights(4, 3, 2))
    elif behind == "matmul":
        v = g.matmul(v, weights(2, 4))
    g.output("y", v)
    out, _ = optimized(g)
    assert ops(out).total() <= ops(g).total() + (behind != "output")
    given_inputs = feeds(g, n=n)
    if n:
        given_inputs["x"][0, 0, 0] = special
    want = cpu_eval_graph(g, given_inputs)["y"]
    got = cpu_eval_graph(out, given_inputs)["y"]
    np.testing.assert_array_equal(np.isnan(want), np.isnan(got))
    finite = np.isfinite(want)
    np.testing.assert_array_equal(want[~finite], got[~finite])
    scale = 1e3 * max(1.0, np.abs(want[finite & (np.abs(want) < 1e6)]).max(initial=0.0))
    ordinary = finite & (np.abs(want) < 1e6)
    np.testing.assert_allclose(got[ordinary], want[ordinary], rtol=0, atol=1e-12 * scale)
    np.testing.assert_allclose(got[finite & ~ordinary], want[finite & ~ordinary], rtol=1e-9)
