"""Native products of integer matrices are exactly those of the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kn_graph import DType, Graph
from kn_graph.dim import symbol
from tests.cpu.integers import BEHIND, PAIRS, Behind, assert_exact, executor, integers, nothing

Array = np.ndarray[Any, Any]

SHAPES = [
    (1, 1, 1), (1, 300, 70), (2, 7, 16), (3, 5, 17), (4, 64, 33), (6, 8, 31), (7, 1, 48),
    (13, 63, 32), (25, 130, 65), (64, 256, 100), (130, 36, 257), (0, 4, 5), (5, 0, 4), (3, 4, 0),
]  # fmt: skip
"""Rows, depth, columns: tails around tiles, groups and vectors, and blocks of several."""


def product(
    a: Array, b: Array, *, constant: bool = True, behind: Behind = nothing
) -> tuple[Graph, dict[str, Array]]:
    """Return a product of matrices as a graph, and its inputs."""
    g = Graph("product")
    left = g.input("a", str(a.dtype), list(a.shape))
    right = g.constant(b) if constant else g.input("b", str(b.dtype), list(b.shape))
    feeds = {"a": a} if constant else {"a": a, "b": b}
    g.output("y", behind(g, g.matmul(left, right, out_dtype=DType.INT32), a.ndim - 1))
    for v in g.inputs:
        if v.name == "other":
            feeds["other"] = integers(np.random.default_rng(2), "uint8", *map(int, v.shape))
    return g, feeds


@pytest.mark.parametrize("constant", [True, False], ids=["packed", "computed"])
@pytest.mark.parametrize("types", PAIRS, ids="-".join)
def test_all_types_and_odd_sizes(types: tuple[str, str], constant: bool) -> None:
    rng = np.random.default_rng(0)
    for rows, depth, cols in SHAPES:
        a, b = integers(rng, types[0], rows, depth), integers(rng, types[1], depth, cols)
        assert_exact(*product(a, b, constant=constant))


@pytest.mark.parametrize("span", [(-100, 100), (0, 255), (-129, 126), (-300, -45), (-200, 100)])
def test_wide_weights_take_8_bits_where_they_fit(span: tuple[int, int]) -> None:
    rng = np.random.default_rng(0)
    for left in ("uint8", "int8"):
        for rows, depth, cols in SHAPES:
            b = rng.integers(span[0], span[1] + 1, (depth, cols)).astype(np.int16)
            assert_exact(*product(integers(rng, left, rows, depth), b))


@pytest.mark.parametrize("behind", BEHIND, ids=lambda f: f.__name__)
@pytest.mark.parametrize("types", PAIRS, ids="-".join)
def test_programs_behind_sums(types: tuple[str, str], behind: Behind) -> None:
    rng = np.random.default_rng(0)
    for rows, depth, cols in ((5, 40, 33), (130, 36, 150)):
        a, b = integers(rng, types[0], rows, depth), integers(rng, types[1], depth, cols)
        assert_exact(*product(a, b, behind=behind))


@settings(max_examples=40, deadline=None)
@given(
    sizes=st.tuples(*(st.integers(1, n) for n in (4, 3, 40, 90, 70))),
    types=st.sampled_from([*PAIRS, ("int16", "int8"), ("int16", "int16")]),
    turn=st.tuples(st.booleans(), st.booleans()),
    repeat=st.booleans(),
    behind=st.sampled_from(BEHIND[:-1]),
)
def test_batches_strides_and_programs(
    sizes: tuple[int, ...],
    types: tuple[str, str],
    turn: tuple[bool, bool],
    repeat: bool,
    behind: Behind,
) -> None:
    rng = np.random.default_rng(0)
    *batch, rows, depth, cols = sizes
    g = Graph("product")

    def operand(name: str, dtype: str, *shape: int, turned: bool) -> Any:
        order = (0, 1, 3, 2) if turned else (0, 1, 2, 3)
        feeds[name] = integers(rng, dtype, *(shape[a] for a in order))
        return g.permute(g.input(name, dtype, list(feeds[name].shape)), order)

    feeds: dict[str, Array] = {}
    a = operand("a", types[0], *batch, rows, depth, turned=turn[0])
    b = operand("b", types[1], batch[0], 1 if repeat else batch[1], depth, cols, turned=turn[1])
    b = g.broadcast(b, [*batch, depth, cols])
    g.output("y", behind(g, g.matmul(a, b, out_dtype=DType.INT32), 3))
    if any(v.name == "other" for v in g.inputs):
        feeds["other"] = integers(rng, "uint8", *batch, rows, cols)
    assert_exact(g, feeds)


@pytest.mark.parametrize("dtype", [DType.UINT8, DType.INT8])
def test_scales_that_are_no_numbers(dtype: DType) -> None:
    rng = np.random.default_rng(0)
    g = Graph("scales")
    x = g.input("x", "uint8", [5, 7])
    sums = g.matmul(x, g.constant(integers(rng, "int8", 7, 6)), out_dtype=DType.INT32)
    scale = g.broadcast(g.input("scale", "float32", [1, 6]), [5, 6])
    g.output("y", g.requantize(sums, scale, None, dtype=dtype))
    scales = np.array([[np.nan, np.inf, -np.inf, 1e30, 0, 1e-2]], np.float32)
    values = integers(rng, "uint8", 5, 7)
    values[2] = 0
    assert_exact(g, {"x": values, "scale": scales})


def test_symbolic_sizes() -> None:
    rng = np.random.default_rng(0)
    g = Graph("symbolic")
    a = g.input("a", "uint8", [symbol("n"), 20])
    g.output("y", g.matmul(a, g.constant(integers(rng, "int8", 20, 50)), out_dtype=DType.INT32))
    for n in (1, 11, 12, 13, 400):
        assert_exact(g, {"a": integers(rng, "uint8", n, 20)})


def test_weights_are_packed_once() -> None:
    rng = np.random.default_rng(0)
    g = Graph("twice")
    weights = g.constant(integers(rng, "int8", 16, 16))
    for name in "ab":
        x = g.input(name, "uint8", [3, 16])
        g.output(f"y{name}", g.matmul(x, weights, out_dtype=DType.INT32))
    assert len(executor(g).skeleton().packed) == 2
