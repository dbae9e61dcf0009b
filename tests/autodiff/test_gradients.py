"""Derivatives against differences of the function itself, in float64 on the reference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from kn_graph import DType, Graph, Value, cpu_eval_graph, optimize_graph
from kn_graph.autodiff import gradients
from kn_graph.autodiff.rules import RULES
from kn_graph.dtype import Kind
from kn_graph.errors import DTypeError, ShapeError, UnsupportedModelError
from kn_graph.ops.elementwise import Binary, Compare, Unary
from kn_graph.ops.reduce import ArgReduce
from kn_graph.scalar import SCALAR_TABLE, scalar_function

Make = Callable[..., Value]
STEP = 1e-6


def numbers(*shape: int, seed: int = 0) -> Any:
    """Distinct numbers, at least 0.03 away from each other and from whole and half ones."""
    count = int(np.prod(shape))
    order = np.random.default_rng(seed).permutation(count)
    return ((order - count / 2) * 0.0911 + 0.0417).reshape(shape)


def indices(*numbers: Any) -> Any:
    return np.array(numbers, np.int64)


def graph_of(make: Make, arrays: Sequence[Any]) -> tuple[Graph, Value, list[Value]]:
    """Return a graph of the sum of a function's results, each with a weight of its own."""
    g = Graph("differentiated")
    types = [DType.from_numpy(a.dtype) for a in arrays]
    xs = [g.input(f"x{i}", t, a.shape) for i, (t, a) in enumerate(zip(types, arrays, strict=True))]
    y = make(g, *xs)
    weights = numbers(*[int(n) for n in y.shape], seed=7)
    loss = g.reduce("sum", y * g.constant(weights))
    return g, loss, [x for x in xs if x.dtype.is_float]


def check(make: Make, arrays: Sequence[Any], *, rtol: float = 1e-6) -> None:
    """Compare gradients by all float operands with central differences."""
    g, loss, xs = graph_of(make, arrays)
    for x, d in zip(xs, gradients(loss, xs), strict=True):
        assert d.type == x.type
        g.output(f"d_{x.name}", d)
    g.output("loss", loss)
    feeds = {v.name: a for v, a in zip(g.inputs, arrays, strict=True)}
    for graph in (g, optimize_graph(g)):
        got = cpu_eval_graph(graph, feeds)
        for x in xs:
            expected = differences(g, feeds, x.name)
            np.testing.assert_allclose(got[f"d_{x.name}"], expected, rtol=rtol, atol=1e-7)


def differences(g: Graph, feeds: dict[str, Any], name: str) -> Any:
    """Return how much the loss changes with each element of an input."""
    x = feeds[name]
    out = np.zeros_like(x)
    loss = g.extract([v.name for v in g.inputs], ["loss"])
    for place in np.ndindex(*x.shape):
        sides = []
        for sign in (1, -1):
            moved = x.copy()
            moved[place] += sign * STEP
            sides.append(float(cpu_eval_graph(loss, {**feeds, name: moved})["loss"]))
        out[place] = (sides[0] - sides[1]) / (2 * STEP)
    return out


# ---- scalar functions -----------------------------------------------------------------------

WITHOUT_DERIVATIVE = {"select", "fma"}
"""Operations of their own, or none: no `Unary` or `Binary`."""
RANGES = dict.fromkeys(("asin", "acos", "atanh"), (-0.9, 0.9)) | {"acosh": (1.2, 3)}
RANGES |= dict.fromkeys(("log", "sqrt", "rsqrt", "log1p", "pow", "reciprocal"), (0.2, 3))
FLOATS = [
    f.name
    for f in SCALAR_TABLE.values()
    if Kind.FLOAT in f.kinds and not f.signature.gives_bool and f.name not in WITHOUT_DERIVATIVE
]


@pytest.mark.parametrize("name", FLOATS)
def test_every_scalar_function_of_floats_has_a_derivative(name: str) -> None:
    arity = scalar_function(name).arity
    low, high = RANGES.get(name, (-2.9, 2.9))
    spread = np.linspace(low, high, 12).reshape(3, 4) + 0.0123
    arrays = [spread if low else spread * 0.5, np.flip(spread) * 0.7 + 0.011][:arity]

    def make(g: Graph, *xs: Value) -> Value:
        return g.push((Unary, Binary)[arity - 1](name), *xs)

    check(make, arrays, rtol=1e-5)


@pytest.mark.parametrize(
    ("name", "at", "expected"),
    [
        ("relu", 0.0, 0.0),
        ("abs", 0.0, 0.0),
        ("sigmoid", 0.0, 0.25),
        ("softplus", 0.0, 0.5),
        ("silu", 0.0, 0.5),
        ("sigmoid", 800.0, 0.0),
        ("sigmoid", -800.0, 0.0),
        ("softplus", 800.0, 1.0),
        ("elu", 800.0, 1.0),
        ("selu", 800.0, 1.05070102214813232421875),
        ("mish", 1e4, 1.0),
        ("tanh", 50.0, 0.0),
        ("gelu", -50.0, 0.0),
        ("square", 0.0, 0.0),
    ],
)
def test_kinks_and_far_ends(name: str, at: float, expected: float) -> None:
    g = Graph("kink")
    x = g.input("x", "float64", [1])
    g.output("d", gradients(g.unary(name, x), [x])[0])
    got = cpu_eval_graph(g, {"x": np.array([at])})["d"]
    np.testing.assert_allclose(got, [expected], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("fn", "expected"), [("max", (0.5, 0.5)), ("min", (0.5, 0.5))])
def test_equal_operands_share_the_derivative(fn: str, expected: tuple[float, float]) -> None:
    g = Graph("tie")
    x, y = g.input("x", "float64", [1]), g.input("y", "float64", [1])
    for v, d in zip("xy", gradients(g.binary(fn, x, y), [x, y]), strict=True):
        g.output(v, d)
    got = cpu_eval_graph(g, {"x": np.ones(1), "y": np.ones(1)})
    assert (got["x"].item(), got["y"].item()) == expected


# ---- operations -----------------------------------------------------------------------------

X, W = numbers(2, 3, 4), numbers(4, 5, seed=1)
IMAGE = numbers(2, 4, 5, 6) * 0.1  # differences of a large loss have few digits
OPERATIONS: dict[str, tuple[Make, Sequence[Any]]] = {
    "used twice": (lambda g, x: x * x + g.exp(x), [X]),
    "select": (
        lambda g, x, y: g.select(g.compare("lt", x, y), x * x, y),
        [X, numbers(2, 3, 4, seed=3)],
    ),
    "broadcast": (lambda g, x, y: x * y, [X, numbers(3, 1, seed=2)]),
    "view": (lambda g, x: g.view(x, (4, 6)) * 2, [X]),
    "permute": (lambda g, x: g.permute(x, [2, 0, 1]), [X]),
    "flip": (lambda g, x: g.flip(x, 1), [X]),
    "slice": (lambda g, x: g.slice(x, 2, 1, 2), [X]),
    "slice with a step": (lambda g, x: g.slice(x, 2, 1, 2, 2), [X]),
    "slice with a step that ends early": (lambda g, x: g.slice(x, 1, 0, 2, 2), [numbers(2, 5)]),
    "slice of nothing": (lambda g, x: g.slice(x, 1, 1, 0, 3), [numbers(2, 5)]),
    "concat": (lambda g, x, y: g.concat([x, y, x], 1), [X, numbers(2, 1, 4, seed=5)]),
    "pad": (lambda g, x, c: g.pad(x, [(1, 0), (0, 2), (1, 1)], "constant", c), [X, np.array(0.3)]),
    "matmul": (lambda g, x, w: g.matmul(x, w), [X, W]),
    "matmul of a vector": (lambda g, x, w: g.matmul(x, w), [X, numbers(4, seed=1)]),
    "einsum": (lambda g, x, y: g.einsum("bij,bkj->kbi", x, y), [X, numbers(2, 2, 4, seed=4)]),
    "sum": (lambda g, x: g.reduce("sum", x, [0, 2]), [X]),
    "mean": (lambda g, x: g.reduce("mean", x * x, [1], keep=True), [X]),
    "mean of all": (lambda g, x: g.reduce("mean", x * x), [X]),
    "max": (lambda g, x: g.reduce("max", x, [1]), [X]),
    "min": (lambda g, x: g.reduce("min", x, [0, 2], keep=True), [X]),
    "reduce to": (lambda g, x: g.reduce_to("mean", x, [1, 3, 1]), [X]),
    "arg max": (lambda g, x: x * g.cast(g.arg_reduce(x, 1, keep=True), x.dtype), [X]),
    "cumulative": (lambda g, x: g.cumulative("sum", x, 1), [X]),
    "cumulative before": (
        lambda g, x: g.cumulative("sum", x, 2, exclusive=True, reverse=True),
        [X],
    ),
    "gather": (lambda g, x, i: g.gather(x, i, 1), [X, indices([2, 0], [-1, 2])]),
    "gather elements": (lambda g, x, i: g.gather_elements(x, i, 1), [X, indices([[2, 0, 2, -1]])]),
    "gather nd": (lambda g, x, i: g.gather_nd(x, i), [X, indices([0, 2], [1, 1], [0, 2])]),
    "scatter elements": (
        lambda g, x, i, u: g.scatter_elements(x, i, u, 2),
        [X, indices([[2, 0]]), numbers(1, 1, 2, seed=6)],
    ),
    "scatter elements added": (
        lambda g, x, i, u: g.scatter_elements(x, i, u, 2, "add"),
        [X, indices([[2, 2]]), numbers(1, 1, 2, seed=6)],
    ),
    "scatter nd": (
        lambda g, x, i, u: g.scatter_nd(x, i, u),
        [X, indices([1, 2], [0, 0]), numbers(2, 4, seed=6)],
    ),
    "top k": (lambda g, x: g.top_k(x, 2, 1)[0], [X]),
    "softmax": (lambda g, x: g.softmax(x, 1), [X]),
    "log softmax": (lambda g, x: g.log_softmax(x, 2), [X]),
    "layer norm": (lambda g, x: g.norm(x, [1, 2], 1e-3), [X]),
    "rms norm": (lambda g, x: g.norm(x, [2], 1e-3, center=False), [X]),
    "conv": (lambda g, x, w: g.conv(x, w, pads=[(1, 1), (0, 2)]), [IMAGE, numbers(3, 4, 3, 2)]),
    "conv in steps": (
        lambda g, x, w: g.conv(x, w, strides=[2, 3], pads=[(1, 1), (1, 0)]),
        [IMAGE, numbers(3, 4, 3, 2)],
    ),
    "conv with gaps, in groups": (
        lambda g, x, w: g.conv(x, w, dilations=[2, 1], groups=2, pads=[(1, 1), (1, 0)]),
        [IMAGE, numbers(6, 2, 2, 3)],
    ),
    "product": (lambda g, x: g.reduce("prod", x, [0, 2]), [X]),
    "product with a zero": (lambda g, x: g.reduce("prod", x, [1]), [X * (X[0, 1, 2] != X)]),
    "transposed conv": (
        lambda g, x, w: g.conv_transpose(
            x, w, strides=[2, 1], pads=[(1, 0), (0, 1)], output_padding=[1, 0]
        ),
        [IMAGE, numbers(4, 3, 3, 2)],
    ),
    "transposed conv in groups": (
        lambda g, x, w: g.conv_transpose(x, w, dilations=[1, 2], groups=2),
        [IMAGE, numbers(4, 3, 2, 2)],
    ),
    "mean pool": (
        lambda g, x: g.pool(x, "mean", [3, 2], strides=[2, 3], pads=[(1, 1), (0, 1)]),
        [IMAGE],
    ),
    "mean pool over padding": (
        lambda g, x: g.pool(x, "mean", [2, 2], pads=[(1, 0), (1, 1)], count_include_pad=True),
        [IMAGE],
    ),
    "mean pool with a window beyond the end": (
        lambda g, x: g.pool(x, "mean", [2, 3], strides=[2, 4], ceil=True),
        [IMAGE],
    ),
    "sum pool": (lambda g, x: g.pool(x, "sum", [2, 2], dilations=[2, 1]), [IMAGE]),
    "max pool": (
        lambda g, x: g.pool(x, "max", [3, 2], strides=[2, 1], pads=[(1, 1), (0, 1)]),
        [IMAGE],
    ),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_derivatives_are_what_differences_say(name: str) -> None:
    check(*OPERATIONS[name])


def test_every_rule_is_tested() -> None:
    used = {Unary, Binary, Compare, ArgReduce}
    for make, arrays in OPERATIONS.values():
        used |= {type(n.op) for n in graph_of(make, arrays)[0].nodes}
    assert RULES.keys() <= used


# ---- the walk -------------------------------------------------------------------------------


def test_second_derivatives_are_derivatives_of_the_first() -> None:
    g = Graph("second")
    x = g.input("x", "float64", [5])
    (first,) = gradients(g.unary("sin", x) * x, [x])
    (second,) = gradients(first, [x])
    g.output("y", second)
    at = np.linspace(-2, 2, 5)
    np.testing.assert_allclose(
        cpu_eval_graph(g, {"x": at})["y"], 2 * np.cos(at) - at * np.sin(at), rtol=1e-12
    )


def test_symbolic_sizes_stay_symbolic() -> None:
    g = Graph("sizes")
    x, w = g.input("x", "float32", ["n", "m"]), g.input("w", "float32", ["m", 3])
    loss = g.reduce("mean", g.unary("relu", g.matmul(x, w)))
    for name, d in zip(("dx", "dw"), gradients(loss, [x, w]), strict=True):
        g.output(name, d)
    assert [str(v.type) for v in g.outputs.values()] == ["float32[n, m]", "float32[m, 3]"]
    got = cpu_eval_graph(g, {"x": np.ones((2, 4), np.float32), "w": np.ones((4, 3), np.float32)})
    np.testing.assert_allclose(got["dw"], np.full((4, 3), 1 / 3), rtol=1e-6)


def test_what_lies_behind_a_value_or_is_held_takes_no_part() -> None:
    g = Graph("held")
    x = g.input("x", "float64", [2])
    h = x * x
    z = g.exp(x)
    y = h * z
    got = {"h": gradients(y, [h])[0], "x": gradients(y, [x], held=[z])[0]}
    for name, d in got.items():
        g.output(name, d)
    at = np.array([0.5, 2.0])
    out = cpu_eval_graph(g, {"x": at})
    np.testing.assert_allclose(out["h"], np.exp(at))
    np.testing.assert_allclose(out["x"], 2 * at * np.exp(at))


def test_a_seed_weighs_results_and_others_do_not_depend() -> None:
    g = Graph("seed")
    x, other = g.input("x", "float64", [2]), g.input("other", "float64", [3])
    dx, zero = gradients(x * x, [x, other], g.constant(np.array([1.0, 10.0])))
    g.output("dx", dx)
    g.output("zero", zero)
    got = cpu_eval_graph(g, {"x": np.array([1.0, 2.0]), "other": np.ones(3)})
    assert got["dx"].tolist() == [2, 40]
    assert got["zero"].tolist() == [0, 0, 0]


def test_what_has_no_derivative_is_named() -> None:
    g = Graph("refused")
    x = g.input("x", "float32", [2, 2])
    n = g.input("n", "int64", [2])
    with pytest.raises(UnsupportedModelError, match="the derivative of Det is not supported"):
        gradients(g.det(x), [x])
    with pytest.raises(UnsupportedModelError, match="the derivative of cumulative prod is not"):
        gradients(g.cumulative("prod", x, 0), [x])
    with pytest.raises(DTypeError, match="not a float tensor"):
        gradients(x, [n])
    with pytest.raises(ShapeError, match=r"expected float32\[2, 2\]"):
        gradients(x, [x], g.scalar(1.0, DType.FLOAT32))


def test_descent_fits_a_line() -> None:
    g = Graph("line")
    x, y = g.input("x", "float32", ["n"]), g.input("y", "float32", ["n"])
    a, b = g.input("a", "float32", []), g.input("b", "float32", [])
    error = x * a + b - y
    for v, d in zip((a, b), gradients(g.reduce("mean", error * error), [a, b]), strict=True):
        g.output(v.name, v - d * 0.2)
    given = {"x": np.linspace(-1, 1, 9, dtype=np.float32)}
    given["y"] = given["x"] * 3 - 1
    state = {"a": np.array(0, np.float32), "b": np.array(0, np.float32)}
    for _ in range(100):
        state = cpu_eval_graph(g, {**given, **state})
    assert abs(state["a"] - 3) < 1e-3
    assert abs(state["b"] + 1) < 1e-3
