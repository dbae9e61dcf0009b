"""Pairs of permutations with elementwise operations in between cancel."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kn_graph import DType, Graph, Value
from tests.fuzz.bodies import repeated
from tests.optimizer.check import build_graph, check, check_model, model_graph, ops_of, untouched
from tests.small_models import info, node

IMAGE = {"x": ("float32", ["n", 3, 5, 4])}  # channels first
TWO = {**IMAGE, "y": ("float32", ["n", 3, 5, 4])}
LAST, FIRST = [0, 2, 3, 1], [0, 3, 1, 2]


def between(f):
    """Return a builder that computes channels-last between two permutations."""
    return lambda g, *xs: g.permute(f(g, *[g.permute(x, LAST) for x in xs]), FIRST)


def vector(g: Graph) -> Value:
    return g.constant(np.array([1, 2, 3], np.float32))


@pytest.mark.parametrize(
    "f",
    [
        lambda g, x: g.relu(x),
        lambda g, x: g.sigmoid(g.relu(x)) * x,
        lambda g, x: g.relu(x + vector(g)),  # a bias of channels
        lambda g, x: g.cast(x, DType.FLOAT16),
        lambda g, x: g.select(g.compare("gt", x, g.scalar(0, x.dtype)), x, g.exp(x)),
        lambda g, x: g.softmax(x, -1),
        lambda g, x: g.norm(x, [3], 1e-5),
        lambda g, x: g.norm(x, [1, 2], 1e-5),
        lambda g, x: g.concat([x, g.relu(x)], 3),
        lambda g, x: g.pad(x, [(0, 0), (1, 2), (0, 1), (0, 0)]),
        lambda g, x: g.flip(x[:, 1:, ::2], 3),
        lambda g, x: g.cumulative("sum", x, 2),
        lambda g, x: x * g.sigmoid(g.reduce("mean", x, [1, 2], keep=True)),  # squeeze-excite
    ],
)
def test_permutations_cancel_around(f):
    out = check(between(f), IMAGE, {"turn_region": 1}, rtol=1e-5)
    assert "Permute" not in ops_of(out)


def test_two_operands():
    for f in (lambda g, x, y: g.relu(x + y), lambda g, x, y: g.concat([x, y, x], 3)):
        assert "Permute" not in ops_of(check(between(f), TWO, {}))
    out = check(lambda g, x, y: g.permute(x, LAST) + g.permute(y, LAST), TWO, {"turn_region": 1})
    assert ops_of(out).count("Permute") == 1
    # nothing is won where one of them is needed anyway
    untouched(
        lambda g, x, y: [g.permute(x, LAST) + g.permute(y, LAST), g.relu(g.permute(y, LAST))],
        TWO, "turn_region",
    )  # fmt: skip


def conv(g: Graph, x: Value, seed: int) -> Value:
    w = np.random.default_rng(seed).standard_normal((3, 3, 1, 1)).astype(np.float32)
    return g.conv(x, g.constant(w))


def layer(g: Graph, x: Value, seed: int) -> Value:
    """Convolve a channels-last tensor, as tf2onnx writes it."""
    return g.permute(conv(g, g.permute(x, FIRST), seed), LAST)


def test_a_residual_network_of_tensorflow():
    def build(g: Graph, x: Value) -> Value:
        y = g.relu(layer(g, x, 0) + vector(g))
        for i in (1, 3, 5):
            z = g.relu(layer(g, y, i) + vector(g))
            y = g.relu(layer(g, z, i + 1) + vector(g) + y)
        return g.reduce("mean", y, [1, 2])

    x = {"x": ("float32", ["n", 5, 4, 3])}
    out = check(build, x, {}, rtol=2e-4, sizes=[{"n": 2}])
    assert ops_of(out).count("Permute") == 1  # of the input


def test_a_model_as_tf2onnx_writes_it():
    nodes = [
        node("Transpose", "x", "a", perm=FIRST),
        node("Conv", "a w", "b"),
        node("Transpose", "b", "c", perm=LAST),
        node("Add", "c bias", "d"),
        node("Relu", "d", "e"),
        node("Transpose", "e", "f", perm=FIRST),
        node("MaxPool", "f", "g", kernel_shape=[2, 2]),
        node("Transpose", "g", "y", perm=LAST),
    ]
    rng = np.random.default_rng(0)
    weights = {
        "w": rng.standard_normal((3, 3, 1, 1)).astype(np.float32),
        "bias": rng.standard_normal(3).astype(np.float32),
    }
    graph = model_graph(nodes, [info("x", ["n", 5, 4, 3])], weights=weights)
    out = check_model(graph, {"turn_region": 1}, sizes=[{"n": 2}], rtol=1e-5)
    assert ops_of(out).count("Permute") == 2


def test_other_readers_get_a_permutation_back_only_where_it_pays():
    def build(g: Graph, x: Value) -> list[Value]:
        y = g.relu(g.permute(x, LAST))
        return [g.permute(y, FIRST), y]

    out = check(build, IMAGE, {"turn_region": 1})
    assert ops_of(out).count("Permute") == 1

    def many(g: Graph, x: Value) -> list[Value]:
        y = g.permute(x, LAST)
        z = g.relu(y)
        return [g.permute(z, FIRST), z, y]

    assert ops_of(check(many, IMAGE, {})).count("Permute") <= 2


def test_a_reduction_that_reads_what_is_turned():
    def build(axes):
        def inner(g: Graph, x: Value) -> list[Value]:
            y = g.relu(g.permute(x, LAST))
            return [g.permute(y, FIRST), g.reduce("max", y, axes)]

        return inner

    out = check(build([1, 2]), IMAGE, {"turn_region": 1})
    assert "Permute" not in ops_of(out)
    out = check(build([1]), IMAGE, {})  # columns and channels change places
    assert ops_of(out).count("Permute") == 1


def test_a_permutation_from_a_region_into_it_is_not_counted_twice():
    def build(g, x):
        turned = g.maximum(g.transpose(x), g.constant(np.zeros((1, 2), np.float32)))
        return turned + g.transpose(turned)

    sizes = [{"n": 1}, {"n": 2}]
    out = check(build, {"x": ("float32", ["n", "n"])}, {"turn_region": 1}, sizes=sizes)
    assert ops_of(out).count("Permute") == 1


def test_permutations_of_axes_of_size_1_are_not_counted():
    def build(g, x, y):
        total = g.transpose(x) + y
        first = total[:1]
        looped, _ = repeated(g, first, g.log_softmax(first, -1), 2)  # reads them unturned
        return [looped, g.transpose(total)]

    check(build, {"x": ("float32", [3, 2]), "y": ("float32", [2, 3])}, {}, rtol=1e-5)


def test_near_misses():
    # two permutations that differ: one of them always stays, and a new one at the entry
    swap = [0, 3, 2, 1]
    both = lambda g, x: [g.permute(g.relu(x), LAST), g.permute(g.relu(x), swap)]  # noqa: E731
    untouched(both, IMAGE, "turn_region")
    # the second permutation is not the inverse: they compose, nothing cancels
    out = check(lambda g, x: g.permute(g.relu(g.permute(x, LAST)), LAST), IMAGE, {})
    assert ops_of(out).count("Permute") == 1
    # nothing to cancel with
    untouched(lambda g, x: g.permute(g.relu(x), LAST), IMAGE, "turn_region")
    untouched(lambda g, x: g.relu(g.permute(x, LAST)), IMAGE, "turn_region")
    # an operation that cares for the order
    untouched(
        lambda g, x: g.permute(
            g.view(g.relu(g.permute(x, LAST)), (x.shape[0], 4, 5, 3)), [0, 3, 1, 2]
        ),
        IMAGE, "turn_region",
    )  # fmt: skip
    # heads of attention: the scale behind a permutation stays where it is
    heads = {"x": ("float32", ["n", 7, 2, 4])}
    untouched(lambda g, x: g.permute(x, [0, 2, 1, 3]) * 0.5, heads, "turn_region")


NODES = st.lists(
    st.tuples(
        st.sampled_from(["relu", "add", "permute", "bias", "concat", "mean", "pad"]),
        st.integers(0, 1000),
    ),
    min_size=2,
    max_size=14,
)


@settings(max_examples=150, deadline=None)
@given(NODES, st.integers(1, 3))
def test_any_graph_is_the_same_and_has_no_more_permutations(steps, outputs):
    def build(g: Graph, x: Value) -> list[Value]:
        values = [x]
        for kind, seed in steps:
            rng = np.random.default_rng(seed)
            v = values[rng.integers(0, len(values))]
            fit = [w for w in values if w.shape == v.shape]
            w = fit[rng.integers(0, len(fit))]
            if kind == "permute":
                v = g.permute(v, rng.permutation(4).tolist())
            elif kind == "relu":
                v = g.relu(v)
            elif kind == "add":
                v = v + w
            elif kind == "bias":
                n = v.shape[3]
                v = v * g.constant(rng.integers(1, 3, n).astype(np.float32))
            elif kind == "concat":
                v = g.concat([v, w], seed % 4)
            elif kind == "mean":
                v = g.broadcast(g.reduce("max", v, [seed % 4], keep=True), v.shape)
            else:
                v = g.pad(v, [(0, seed % 2)] * 4)
            if np.prod(np.array(v.shape)) < 5000:
                values.append(v)
        return values[-outputs:]

    x = {"x": ("float32", [2, 3, 1, 2])}
    out = check(build, x, {}, sizes=[{}], rtol=1e-5)
    plain = ops_of(build_graph(build, x)).count("Permute")
    assert ops_of(out).count("Permute") <= plain
