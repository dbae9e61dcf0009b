"""Quantized tensors that are dequantized, moved, clipped, added and quantized again.

What is exact is compared exactly, NaNs and infinities included. Sums of quantized tensors are the
exact ones, rounded, where these are no nearer to a tie than float32 may be wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kn_graph import DType, Graph, Value, cpu_eval_graph
from kn_graph.optimizer.editor import Editor
from kn_graph.optimizer.magnitude import magnitude
from tests.optimizer.check import check, ops_of, untouched
from tests.optimizer.qdq import Net, assert_quantized
from tests.optimizer.rewriting import optimized

U8 = {"q": ("uint8", ["n", 4, 6])}
X = {"x": ("float32", ["n", 4])}
SIZES = ({"n": 3}, {"n": 1}, {"n": 0})

ROUNDED = {"x": np.array([[np.nan, np.inf, -np.inf, -0.0], [0.25, 0.75, 1e30, -1e-42]], np.float32)}
"""Ties of a scale of 0.5, and what is no number."""


def parameters(g: Graph, scale: Any = 0.5, zero: Any = 3, dtype: str = "uint8") -> list[Value]:
    return [g.constant(np.asarray(scale, np.float32)), g.constant(np.asarray(zero, dtype))]


def quantize(x: Value, *args: Any) -> Value:
    s, z = parameters(x.graph, *args)
    return x.graph.quantize(x, s, z, dtype=z.dtype)


def dequantize(q: Value, *args: Any) -> Value:
    return q.graph.dequantize(q, *parameters(q.graph, *args))


# ---- quantize(dequantize(q)) = q ------------------------------------------------------------

MOVES: dict[str, Callable[[Graph, Value], Value]] = {
    "nothing": lambda g, x: x,
    "view": lambda g, x: g.view(x, (x.shape[0], 24)),
    "permute": lambda g, x: g.permute(x, (2, 0, 1)),
    "slice": lambda g, x: x[:, 1:3],
    "flip": lambda g, x: g.flip(x, 2),
    "broadcast": lambda g, x: g.broadcast(x[:, :1], x.shape),
    "gather": lambda g, x: g.gather(x, g.constant(np.array([3, 0, 0])), axis=1),
    "max pool": lambda g, x: g.pool(x, "max", (2, 3), pads=[(1, 0), (1, 1)]),
    "pad with zero": lambda g, x: g.pad(x, [(0, 0), (1, 2), (0, 0)]),
    "reflect": lambda g, x: g.pad(x, [(0, 0), (1, 2), (0, 0)], "reflect"),
    "several": lambda g, x: g.permute(g.pool(x, "max", (2,)), (1, 0, 2))[1:],
}


@pytest.mark.parametrize("name", MOVES)
def test_what_is_quantized_as_it_was_stays_integers(name):
    move = MOVES[name]

    def build(g: Graph, q: Value) -> Value:
        return quantize(move(g, dequantize(q)))

    out = check(build, U8, {"quantize_pair": 1}, sizes=SIZES)
    assert not {"Cast", "round_even", "mul"} & set(ops_of(out))


@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", "int16"])
def test_every_integer_survives_the_round_trip_through_floats(dtype):
    limits = np.iinfo(dtype)
    codes = np.arange(limits.min, limits.max + 1).astype(dtype)
    for scale in (0.3, 1e-37, 3e25, 0.00392157):
        args = (scale, limits.max - 2, dtype)
        check(
            lambda g, q, args=args: quantize(dequantize(q, *args), *args),
            {"q": (dtype, [codes.size])},
            {"quantize_pair": 1},
            feeds=[{"q": codes}],
        )


def test_scales_of_channels_move_with_them():
    scale = np.linspace(0.1, 1, 4).reshape(4, 1)

    def build(g: Graph, q: Value) -> Value:
        x = g.permute(dequantize(q, scale, 0), (1, 0, 2))
        return quantize(x, scale.reshape(4, 1, 1), 0)

    check(build, U8, {"quantize_pair": 1}, sizes=SIZES)
    untouched(
        lambda g, q: quantize(g.flip(dequantize(q, scale, 0), 1), scale, 0), U8, "quantize_pair"
    )


def test_parts_of_one_scale_are_joined_as_integers():
    def build(g: Graph, q: Value) -> Value:
        return quantize(g.concat([dequantize(q), dequantize(q)[:, 1:]], 1))

    out = check(build, U8, {"quantized_concat": 1, "quantize_pair": 1}, sizes=SIZES)
    assert ops_of(out) == ["Concat", "Slice"]
    untouched(
        lambda g, q: quantize(g.concat([dequantize(q), dequantize(q, 0.25)], 1)),
        U8,
        "quantized_concat",
        "quantize_pair",
    )


NEAR_PAIRS: dict[str, Callable[[Graph, Value], Value]] = {
    "another zero point": lambda g, q: quantize(dequantize(q), 0.5, 4),
    "another scale": lambda g, q: quantize(dequantize(q), 0.25, 3),
    "another type": lambda g, q: quantize(dequantize(q), 0.5, 3, "int8"),
    "a denormal scale": lambda g, q: quantize(dequantize(q, 1e-41), 1e-41),
    "a negative scale": lambda g, q: quantize(dequantize(q, -1.0), -1.0),
    "an overflow": lambda g, q: quantize(dequantize(q, 3e38), 3e38),
    "padded with something else": lambda g, q: quantize(
        g.pad(dequantize(q), [(0, 0), (1, 1), (0, 0)], value=g.scalar(1.5, DType.FLOAT32))
    ),
    "a mean pool": lambda g, q: quantize(g.pool(dequantize(q), "mean", (2,))),
    "windows of padding": lambda g, q: g.matmul(
        g.pool(dequantize(q), "max", (1,), pads=[(1, 1)]),
        g.broadcast(dequantize(q[:1, :1, :1]), (q.shape[0], 8, 2)),
    ),
}


@pytest.mark.parametrize("name", NEAR_PAIRS)
def test_near_misses_of_a_pair_are_computed(name):
    untouched(NEAR_PAIRS[name], U8, "quantize_pair", "integer_product")


def test_a_pool_that_others_read_is_not_computed_twice():
    def build(g: Graph, q: Value) -> list[Value]:
        pooled = g.pool(dequantize(q), "max", (2,))
        return [quantize(pooled), g.exp(pooled)]

    untouched(build, U8, "quantize_pair")


# ---- clips and bounds -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("low", "high", "fires"),
    [(0.0, np.inf, 1), (-1.5, np.inf, 1), (0.0, 6.0, 1), (-np.inf, 0.3, 1), (200.0, 300.0, 0)],
)
def test_a_clip_of_what_is_no_nan_cuts_the_integers(low, high, fires):
    def build(g: Graph, q: Value) -> Value:
        x = g.exp(g.neg(g.relu(dequantize(q, 0.03, 128)))) * 3.0 - 2.0
        for fn, bound in (("max", low), ("min", high)):
            if np.isfinite(bound):
                x = g.binary(fn, x, g.scalar(bound, x.dtype))
        return quantize(x)

    codes = np.arange(256).astype(np.uint8).reshape(1, 16, 16)
    inputs = {"q": ("uint8", [1, 16, 16])}
    check(build, inputs, {"clamped_quantize": fires, "nan_guard": 1}, feeds=[{"q": codes}])


@pytest.mark.parametrize("zero", [0, 3])
def test_a_clip_of_what_may_be_a_nan_is_left_out_where_it_cuts_nothing_more(zero):
    def build(g: Graph, x: Value) -> Value:
        return quantize(g.relu(x), 0.5, zero)

    fires = {"clamped_quantize": int(not zero), "nan_guard": 0}
    check(build, X, fires, feeds=[ROUNDED])


def test_a_nan_is_guarded_as_long_as_there_can_be_one():
    def build(g: Graph, x: Value) -> Value:
        return g.dequantize(quantize(g.exp(x)), *parameters(g))

    check(build, X, {"nan_guard": 0, "round_trip": 1, "shifted_clamp": 1}, feeds=[ROUNDED])


BOUNDED: dict[str, Callable[[Graph, Value], Value]] = {
    "dequantized": lambda g, q: q,
    "a sum and a product": lambda g, q: (q + q) * q - q / 3.0,
    "activations": lambda g, q: g.sigmoid(q) + g.tanh(q) + g.unary("erf", q) + g.gelu(q),
    "a softmax": lambda g, q: g.softmax(q, -1),
    "a norm": lambda g, q: g.norm(q, [-1], 1e-5),
    "a reduction": lambda g, q: g.reduce("mean", q, [-1], keep=True),
    "a product of matrices": lambda g, q: g.matmul(q, g.transpose(q)),
    "choices": lambda g, q: g.select(g.compare("gt", q, g.scalar(1, q.dtype)), q, g.tanh(q)),
}
UNBOUNDED: dict[str, Callable[[Graph, Value], Value]] = {
    "a quotient": lambda g, q: q / q,
    "a logarithm": lambda g, q: g.log(q),
    "large exponentials": lambda g, q: g.exp(q) - g.exp(q),
    "a power": lambda g, q: q**0.5,
    "an infinite constant": lambda g, q: q * g.scalar(np.inf, q.dtype),
    "a norm without epsilon": lambda g, q: g.norm(q, [-1], 0.0),
    "a mean over nothing": lambda g, q: g.reduce("mean", q, [0], keep=True),
    "log-softmax": lambda g, q: g.log_softmax(q, -1),
    "a NaN": lambda g, q: g.maximum(q, g.scalar(np.nan, q.dtype)),
}


def _bound(build: Callable[[Graph, Value], Value], codes: np.ndarray) -> tuple[float, np.ndarray]:
    g = Graph("bound")
    g.symbol("n", lo=0)
    q = g.input("q", "uint8", ["n", 4, 6])
    g.output("y", build(g, dequantize(q, 0.5, 128)))
    (y,) = cpu_eval_graph(g, {"q": codes}).values()
    edit = Editor(g)
    return magnitude(edit, edit.graph.outputs["y"]), y


@pytest.mark.parametrize("name", BOUNDED)
def test_magnitudes_are_bounded(name):
    for codes in (
        np.zeros((2, 4, 6), np.uint8),
        np.random.default_rng(0).integers(0, 256, (2, 4, 6)).astype(np.uint8),
    ):
        bound, y = _bound(BOUNDED[name], codes)
        assert np.isfinite(bound)
        assert np.abs(y).max() <= bound


@pytest.mark.parametrize("name", UNBOUNDED)
def test_magnitudes_of_what_may_be_a_nan_have_no_bound(name):
    bound, _ = _bound(UNBOUNDED[name], np.zeros((1, 4, 6), np.uint8))
    assert bound == np.inf


def test_a_value_that_many_paths_lead_to_is_bounded_once():
    def build(g: Graph, q: Value) -> Value:
        for _ in range(300):
            q = q * 0.5 + q * 0.25
        return q

    bound, _ = _bound(build, np.zeros((1, 4, 6), np.uint8))
    assert bound == np.inf  # deeper than is looked


# ---- sums -----------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(
    scales=st.tuples(*[st.floats(1e-3, 10)] * 3),
    zeros=st.tuples(*[st.integers(0, 255)] * 3),
    relu=st.booleans(),
    seed=st.integers(0, 99),
)
def test_an_addition_of_quantized_tensors_is_rounded_once(scales, zeros, relu, seed):
    net = Net(("x", ["n", 4]), ("y", ["n", 4]))
    a, b = (net.quantize(n, s, z) for n, s, z in zip("xy", scales, zeros, strict=False))
    total = net.add("Add", a, b)
    total = net.add("Relu", total) if relu else total
    net.output(net.quantize(total, scales[2], zeros[2]))
    graph = net.graph()
    out, _ = optimized(graph, quantized_sum=1, clamped_quantize=int(relu), nan_guard=1)
    rng = np.random.default_rng(seed)
    feed = {
        n: rng.standard_normal((50, 4)).astype(np.float32) * 100 * s
        for n, s in zip("xy", scales, strict=False)
    }
    s = [float(np.float32(x)) for x in scales]
    codes = [
        np.clip(np.rint(feed[n] / np.float32(c)) + z, 0, 255)
        for n, c, z in zip("xy", s, zeros, strict=False)
    ]
    exact = sum((q - z) * c for q, z, c in zip(codes, zeros, s, strict=False)) / s[2]
    terms = sum((q + z) * c for q, z, c in zip(codes, zeros, s, strict=False)) / s[2]
    exact = np.clip(exact, 0 if relu else -zeros[2], 255 - zeros[2])
    for g in (graph, out):
        (y,) = cpu_eval_graph(g, feed).values()
        assert_quantized(y, exact, terms, np.float32(s[2]), ulps=8)


def test_constants_of_files_are_terms_too():
    # gelu's erf + 1, as quantize_static writes it: the 1 is an integer with a scale
    net = Net(("x", ["n", 4]))
    one = net.stored(np.array(255, np.uint8), np.float32(1 / 255), np.uint8(0))
    y = net.quantize(net.add("Erf", net.quantize("x", 0.02, 128)), 0.0078, 128)
    net.output(net.quantize(net.add("Add", y, one), 0.0078, 0))
    graph = net.graph()
    out, _ = optimized(graph, quantized_sum=1)
    x = np.random.default_rng(0).standard_normal((50, 4)).astype(np.float32)
    (want,), (got,) = (cpu_eval_graph(g, {"x": x}).values() for g in (graph, out))
    assert np.abs(got - want).max() <= 0.00781
    assert (got != want).mean() < 0.02


def test_a_scale_that_is_multiplied_with_the_numbers_leaves_the_integers():
    def build(g: Graph, q: Value) -> Value:
        return quantize(dequantize(q, 0.04, 7) * 0.125, 0.005, 7)

    codes = np.arange(256).astype(np.uint8).reshape(1, 16, 16)
    inputs = {"q": ("uint8", [1, 16, 16])}
    out = check(build, inputs, {"quantized_sum": 1}, feeds=[{"q": codes}])
    assert ops_of(out) == []


def test_another_scale_than_the_multiplied_one_changes_the_integers():
    def build(g: Graph, q: Value) -> Value:
        return quantize(dequantize(q, 0.04, 0) * 0.125, 0.0125, 0)

    codes = np.arange(256).astype(np.uint8).reshape(1, 16, 16)
    inputs = {"q": ("uint8", [1, 16, 16])}
    check(build, inputs, {"quantized_sum": 1}, feeds=[{"q": codes}])


def test_a_product_of_matrices_is_rescaled_behind_its_view():
    net = Net(("x", ["n", 3, 4]))
    w = net.stored(np.arange(-4, 4, dtype=np.int8).reshape(4, 2), np.float32(0.1))
    net.output(net.quantize(net.add("MatMul", net.quantize("x", 0.02, 128), w), 0.05, 10))
    out, _ = optimized(net.graph(), integer_product=1, quantized_sum=1)
    assert ops_of(out).count("div") == 1  # of the input


@pytest.mark.parametrize("why", ["shared", "no constant", "float16"])
def test_near_misses_of_a_sum_are_computed(why):
    def build(g: Graph, q: Value) -> list[Value]:
        x = dequantize(q)
        if why == "no constant":
            return [quantize(x * g.exp(x), 0.25)]
        if why == "float16":
            return [quantize(g.cast(x, DType.FLOAT16) + g.scalar(1, DType.FLOAT16), 0.25)]
        total = x + 1.0
        return [quantize(total * 3.0, 0.25), g.exp(total)]

    untouched(build, U8, "quantized_sum")


# ---- integers that nobody needs -------------------------------------------------------------


def test_numbers_that_are_rounded_but_not_stored_stay_floats():
    def build(g: Graph, x: Value) -> Value:
        return g.exp(dequantize(quantize(x)))

    out = check(build, X, {"round_trip": 1, "shifted_clamp": 1}, feeds=[ROUNDED])
    assert "Cast" not in ops_of(out)


def test_integers_that_others_read_are_stored():
    def build(g: Graph, x: Value) -> list[Value]:
        q = quantize(x)
        return [g.exp(dequantize(q)), q]

    untouched(build, X, "round_trip")


def test_another_zero_point_is_subtracted():
    def build(g: Graph, x: Value) -> Value:
        return dequantize(quantize(x), 0.5, 4)

    check(build, X, {"round_trip": 1, "shifted_clamp": 0}, feeds=[ROUNDED])
