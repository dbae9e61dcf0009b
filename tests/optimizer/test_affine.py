"""Scales and biases by constants: fused, and folded into the weights in front of them."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kn_graph import DType, Graph, Value, cpu_eval_graph
from kn_graph.optimizer import OptimizerSettings, product
from tests.optimizer.rewriting import (
    assert_equal,
    channels,
    constant,
    conv,
    feeds,
    ops,
    optimized,
    random,
    refusals,
    scaled_bias,
)

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
