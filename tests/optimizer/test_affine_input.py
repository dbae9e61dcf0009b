"""Scales and biases by constants go into matrices, and into the weights behind them."""

from __future__ import annotations

import numpy as np
import pytest

from kn_graph import Graph
from kn_graph.optimizer.rules import affine_input
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
)

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
