"""Operations whose steps have native kernels: no host step, and what the reference gives."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from kn_graph import DType, Graph, Value, cpu_eval_graph
from kn_graph.errors import ExecutionError
from kn_graph.ops.reduce import ReduceFn
from kn_graph.ops.scatter import ScatterFn
from tests.cpu.steps import KERNELS, Build, N, check, drawn, native

pytestmark = pytest.mark.skipif(KERNELS is None, reason="there are no native kernels")

INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
EXTREMES: tuple[ScatterFn, ...] = ("max", "min")
NUMBER_FNS: tuple[ReduceFn, ...] = ("sum", "mean", "prod", "max", "min")


def native_close(build: Build, *sizes: dict[str, int]) -> None:
    """Compare sums, which close to the middle of two narrow floats may be rounded to either."""
    run, rng = native(build), np.random.default_rng(1)
    for numbers in sizes:
        feeds = drawn(run.graph, numbers, rng)
        want = cpu_eval_graph(run.graph, feeds)
        for key, x in run.eval(feeds).items():
            assert (x.dtype, x.shape) == (want[key].dtype, want[key].shape)
            wide = want[key].astype(np.float64)
            unit = max(float(ml_dtypes.finfo(x.dtype).eps), 1e-5) if x.dtype.kind != "i" else 0
            largest = np.abs(wide).max(initial=0)
            np.testing.assert_allclose(x.astype(np.float64), wide, unit, unit * largest)


def array(g: Graph, dtype: str, *shape: int) -> Value:
    rng = np.random.default_rng(sum(shape))
    return g.constant(rng.standard_normal(shape).astype(DType.parse(dtype).numpy))


# ---- indices ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "uint8", "float16", "bool"])
@pytest.mark.parametrize("indices", ["int64", "int32", "uint8"])
def test_gathers(dtype: str, indices: str) -> None:
    check(
        lambda g: g.gather(g.input("x", dtype, [4, 3, 5]), g.input("i", indices, ["n", 2]), 1), *N
    )
    check(
        lambda g: g.gather_elements(
            g.input("x", dtype, ["n", 3]), g.input("i", indices, ["n", 7]), 1
        ),
        *N,
    )
    check(
        lambda g: g.gather_nd(g.input("x", dtype, [4, 3, 5]), g.input("i", indices, ["n", 2])), *N
    )


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "uint8"])
def test_scatters_without_a_reduction(dtype: str) -> None:
    def elements(g: Graph) -> Value:
        parts = (g.input("x", dtype, ["n", 3]), g.input("i", "int64", ["n", 3]))
        return g.scatter_elements(*parts, g.input("u", dtype, ["n", 3]), 1)

    def slices(g: Graph) -> Value:
        parts = (g.input("x", dtype, [3, 4, 5]), g.input("i", "int32", ["n", 2]))
        return g.scatter_nd(*parts, g.input("u", dtype, ["n", 5]))

    check(elements, *N)
    check(slices, *N)


@pytest.mark.parametrize("fn", ["add", "mul", "max", "min"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", *INTEGERS])
def test_scatters_that_combine(dtype: str, fn: ScatterFn) -> None:
    def build(g: Graph) -> list[Value]:
        x, y = g.input("x", dtype, ["n", 3]), g.input("y", dtype, [3, 4, 5])
        i, j = g.input("i", "int64", ["n", 3]), g.input("j", "int32", ["n", 2])
        rows, slices = g.input("u", dtype, ["n", 3]), g.input("v", dtype, ["n", 5])
        return [g.scatter_elements(x, i, rows, 1, fn), g.scatter_nd(y, j, slices, fn)]

    check(build, *N)


def test_extremes_that_are_scattered_keep_nans() -> None:
    nan, one = np.array([np.nan, 1], np.float32), np.array([1, np.nan], np.float32)
    for fn in EXTREMES:
        run = native(partial(scattered_into, fn=fn))
        got = run.eval({"x": nan, "u": one})["out0"]
        np.testing.assert_array_equal(got, [np.nan, np.nan])


def scattered_into(g: Graph, fn: ScatterFn) -> Value:
    indices = g.constant(np.arange(2))
    return g.scatter_elements(
        g.input("x", "float32", [2]), indices, g.input("u", "float32", [2]), 0, fn
    )


@pytest.mark.parametrize("index", [3, -4])
def test_an_index_that_does_not_exist_is_an_error_which_names_the_node(index: int) -> None:
    run = native(lambda g: g.gather(g.input("x", "float32", [3, 2]), g.input("i", "int64", [2])))
    x = np.ones((3, 2), np.float32)
    with pytest.raises(ExecutionError, match=rf"Gather.*index {index} .* axis 0 of size 3"):
        run.eval({"x": x, "i": np.array([0, index])})
    assert run.eval({"x": x, "i": np.array([0, -3])})["out0"].shape == (2, 2)


# ---- numbers of sizes ---------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8", "int16"])
def test_sizes_and_positions(dtype: str) -> None:
    def build(g: Graph) -> list[Value]:
        x, kind = g.input("x", "float32", ["n", 3]), DType.parse(dtype)
        n = x.shape[0]
        matrix = np.array([[n, n * 2, 5], [n + 1, 7, n * n - 400]], object)
        made = g.size_tensor(matrix, kind)
        positions = g.iota(n * 3, kind)
        turned = g.permute(g.size_tensor(matrix * 2, kind), [1, 0])
        return [made, g.binary("mul", turned, turned), positions, g.view(positions, [n, 3])]

    check(build, *N, {"n": 9000})


# ---- reductions ---------------------------------------------------------------------------------


def reduced_to(g: Graph, *, fn: ReduceFn, dtype: str) -> Value:
    """Return a reduction to the shape of another input."""
    return g.reduce_to(
        fn, g.input("x", dtype, ["n", 4, "w"]), g.input("y", dtype, ["a", 4, "b"]).shape
    )


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "float16", "int8"])
def test_reductions_of_axes_that_sizes_choose(dtype: str) -> None:
    fns: tuple[ReduceFn, ...] = ("sum", "max", "prod")
    sizes = [{"n": 5, "w": 9, "a": a, "b": b} for a in (1, 5) for b in (1, 9)]
    for fn in fns if dtype == "int8" else NUMBER_FNS:
        native_close(partial(reduced_to, fn=fn, dtype=dtype), *sizes)


def test_a_reduction_to_other_sizes_is_an_error() -> None:
    run = native(lambda g: reduced_to(g, fn="sum", dtype="float32"))
    x, y = (np.ones((5, 4, n), np.float32) for n in (6, 3))
    with pytest.raises(ExecutionError, match=r"reduce_sum_to.*cannot reduce \[5, 4, 6\] to \[5"):
        run.eval({"x": x, "y": y})


# ---- images -------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("antialias", [False, True])
def test_resizes_of_symbolic_sizes(mode: Any, antialias: bool) -> None:
    if mode == "nearest" and antialias:
        pytest.skip("nothing is blended")

    def build(g: Graph) -> Value:
        x, like = g.input("x", "float32", [1, 2, "h", "w"]), g.input("y", "float32", ["a", "b"])
        return g.resize(x, [2, 3], like.shape, mode=mode, antialias=antialias)

    check(
        build,
        {"h": 5, "w": 7, "a": 10, "b": 3},
        {"h": 5, "w": 7, "a": 5, "b": 7},
        {"h": 9, "w": 1, "a": 2, "b": 1},
        {"h": 9, "w": 31, "a": 4, "b": 31},
    )


@pytest.mark.parametrize("dtype", ["uint8", "int64", "float64", "bool", "float16"])
def test_nearest_elements_of_any_type_and_of_many_axes(dtype: str) -> None:
    def build(g: Graph) -> list[Value]:
        x = g.input("x", dtype, ["n", 3, "w", 4, 2])
        four = g.resize(x, [0, 1, 2, 3], [x.shape[0] * 2, 5, 7, 3])
        return [four, g.resize(x, [2], [x.shape[2] * 3], nearest="ceil"), g.resize(x, [], [])]

    check(build, {"n": 2, "w": 6}, {"n": 1, "w": 1})


@pytest.mark.parametrize("dtype", ["float32", "uint8", "float64"])
def test_pads_that_wrap(dtype: str) -> None:
    def build(g: Graph) -> Value:
        x = g.input("x", dtype, ["n", 3, "w"])
        return g.pad(x, [(2, 7), (0, 0), (1, x.shape[0])], mode="wrap")

    check(build, {"n": 2, "w": 6}, {"n": 1, "w": 1}, {"n": 9, "w": 4})


def test_a_resize_that_copies_an_axis_keeps_infinities() -> None:
    def build(g: Graph) -> Value:
        x, like = g.input("x", "float32", [1, 2, "h", "w"]), g.input("y", "float32", ["a", "w"])
        return g.resize(x, [2, 3], [like.shape[0], x.shape[3]], mode="linear")

    x = np.array([np.inf, 1, -np.inf, np.nan], np.float32).reshape(1, 1, 2, 2).repeat(2, 1)
    run, feeds = native(build), {"x": x, "y": np.ones((2, 2), np.float32)}
    np.testing.assert_array_equal(run.eval(feeds)["out0"], x)


def test_an_empty_axis_cannot_be_resized() -> None:
    def build(g: Graph) -> Value:
        return g.resize(g.input("x", "float32", ["n"]), [0], [4])

    with pytest.raises(ExecutionError, match="resize of empty axis 0"):
        native(build).eval({"x": np.ones(0, np.float32)})


@pytest.mark.parametrize("column_major", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_maxima_of_windows_and_where_they_are(rank: int, dtype: str, column_major: bool) -> None:
    def build(g: Graph) -> list[Value]:
        sizes: list[int | str] = ["n", 3, 7, "w", 5]
        x = g.input("x", dtype, sizes[: 2 + rank])
        pads, strides = [(1, 0)] * rank, (2,) * rank
        y = g.relu(g.conv(x, array(g, dtype, 4, 3, *[2] * rank)))
        return [
            *g.max_pool_with_indices(
                x, (3,) * rank, pads=pads, strides=strides, column_major=column_major
            ),
            *g.max_pool_with_indices(
                y, (2,) * rank, dilations=(2,) * rank, column_major=column_major
            ),
        ]

    native_close(build, {"n": 2, "w": 6}, {"n": 1, "w": 9})


def test_a_window_of_padding_has_no_index_and_the_first_nan_is_largest() -> None:
    x = np.array([1, np.nan, 2, np.nan, -np.inf, -np.inf], np.float32).reshape(1, 1, 6)

    def build(g: Graph) -> tuple[Value, Value]:
        v = g.input("x", "float32", [1, 1, 6])
        return g.max_pool_with_indices(v, (2,), pads=[(2, 2)], strides=(2,))

    values, indices = native(build).eval({"x": x}).values()
    np.testing.assert_array_equal(values[0, 0], [-np.inf, np.nan, np.nan, -np.inf, -np.inf])
    np.testing.assert_array_equal(indices[0, 0], [-1, 1, 3, 4, -1])


@pytest.mark.parametrize("groups", [1, 2])
def test_transposed_convolutions(groups: int) -> None:
    def build(g: Graph) -> tuple[Value, ...]:
        rng = np.random.default_rng(0)
        x = g.input("x", "float32", ["n", 4, "h", 5])
        w, v = (
            g.constant(rng.standard_normal((4, m, 3, 2)).astype(np.float32))
            for m in (6 // groups, 2)
        )
        bias = g.constant(rng.standard_normal(6).astype(np.float32))
        y = g.relu(g.conv_transpose(x, w, bias, strides=(2, 1), groups=groups))
        z = g.conv_transpose(g.slice(y, 1, 1, 4), v, pads=[(1, 0), (0, 1)])
        return y, g.unary("sigmoid", z)

    check(build, {"n": 2, "h": 5}, {"n": 1, "h": 1}, {"n": 1, "h": 40})


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_convolutions_with_computed_weights(groups: int, dtype: str) -> None:
    def build(g: Graph) -> tuple[Value, ...]:
        x, w = g.input("x", dtype, ["n", 4, "h", 9]), g.input("w", dtype, [8, 4 // groups, 3, 3])
        turned = g.permute(g.input("v", dtype, [3, 3, 4 // groups, 8]), [3, 2, 0, 1])
        transposed = g.input("t", dtype, [4, 8 // groups, 2, 3])
        return (
            g.relu(g.conv(x, w, pads=[(1, 1), (1, 1)], groups=groups)),
            g.conv(x, turned, groups=groups),
            g.conv_transpose(x, transposed, groups=groups),
        )

    native_close(build, {"n": 1, "h": 5}, {"n": 2, "h": 12})


def test_weights_that_are_a_view_of_a_constant() -> None:
    def build(g: Graph) -> tuple[Value, ...]:
        x, w = g.input("x", "float32", ["n", 4, "h", 9]), array(g, "float32", 3, 3, 4, 8)
        weights = g.permute(w, [3, 2, 0, 1])
        return g.conv(x, weights), g.conv_transpose(x, g.permute(weights, [1, 0, 2, 3]))

    check(build, {"n": 1, "h": 5}, {"n": 2, "h": 12})


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_convolutions_that_write_uneven_pixels(dtype: str) -> None:
    def build(g: Graph) -> list[Value]:
        x = g.input("x", dtype, ["n", 3, "h", 9])
        y = g.conv(x, array(g, dtype, 6, 3, 3, 3), array(g, dtype, 6))
        z = g.conv(x, array(g, dtype, 5, 3, 3, 3))
        return [g.relu(g.permute(y, [0, 2, 1, 3])), g.permute(z, [0, 2, 1, 3])]

    native_close(build, {"n": 1, "h": 5}, {"n": 2, "h": 12})


# ---- narrow types -------------------------------------------------------------------------------


def convolved(g: Graph, dtype: str) -> tuple[Value, ...]:
    x, w = g.input("x", dtype, ["n", 4, 9, "w"]), array(g, dtype, 6, 4, 3, 3)
    y = g.relu(g.conv(x, w, array(g, dtype, 6), pads=[(1, 1), (1, 1)]))
    depthwise = g.conv(y, array(g, dtype, 6, 1, 3, 3), groups=6)
    return y, depthwise, g.conv_transpose(y, array(g, dtype, 6, 2, 2, 2), strides=(2, 2))


def multiplied(g: Graph, dtype: str) -> tuple[Value, ...]:
    x, y = g.input("x", dtype, ["n", 5, 8]), g.input("y", dtype, [8, "w"])
    y = g.broadcast(g.unsqueeze(y, [0]), (x.shape[0], 8, y.shape[1]))
    left = g.matmul(x, array(g, dtype, 8, 3))
    return g.gelu(g.add(left, g.broadcast(array(g, dtype, 3), left.shape))), g.matmul(x, y)


NARROW_FLOATS: dict[str, Callable[[Graph, str], Any]] = {
    "conv": convolved,
    "matmul": multiplied,
    "norm": lambda g, d: g.norm(g.input("x", d, ["n", "w", 6]), [2], 1e-3),
    "softmax": lambda g, d: g.softmax(g.input("x", d, ["n", "w", 6]), 1),
    "pool": lambda g, d: [
        g.pool(x := g.input("x", d, ["n", 3, 7, "w"]), "max", (2, 3), pads=[(0, 1), (1, 1)]),
        g.pool(x, "mean", (3, 2)),
    ],
    "resize": lambda g, d: g.resize(
        g.input("x", d, ["n", 2, 5, "w"]), [2, 3], [7, 9], mode="linear"
    ),
    "attention": lambda g, d: g.attention(
        *(g.input(name, d, ["n", 2, "w", 8]) for name in "qkv"), scale=0.5
    ),
    "slices": lambda g, d: g.softmax(g.slice(g.input("x", d, ["n", "w", 12]), 2, 3, 5), 2),
    "reductions": lambda g, d: [
        *(g.reduce(fn, g.input(fn, d, ["n", "w", 6]), [0, 2]) for fn in NUMBER_FNS),
        g.arg_reduce(g.input("x", d, ["n", "w", 6]), 2, largest=True),
    ],
}

SIZES = ({"n": 2, "w": 5}, {"n": 1, "w": 3}, {"n": 3, "w": 33})


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", NARROW_FLOATS)
def test_narrow_floats_compute_in_float32(name: str, dtype: str) -> None:
    native_close(lambda g: NARROW_FLOATS[name](g, dtype), *SIZES)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "uint32"])
def test_narrow_integers_wrap(dtype: str) -> None:
    def build(g: Graph) -> list[Value]:
        x = g.input("x", dtype, ["n", 40, "w"])
        found = [g.reduce(fn, x, [1]) for fn in ("sum", "prod", "max", "min")]
        return [*found, g.arg_reduce(x, 1, largest=False, last=True)]

    check(build, *SIZES, high=100)


def test_extremes_of_booleans() -> None:
    fns: tuple[ReduceFn, ...] = ("max", "min", "any", "all")
    check(lambda g: [g.reduce(fn, g.input(fn, "bool", ["n", 3]), [1]) for fn in fns], *N)
