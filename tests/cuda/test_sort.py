"""Sorting, selecting, and running totals on the host in place of a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kn_cuda import CudaOptions
from kn_graph import DType, Graph
from kn_graph.ops.cumulative import Cumulative, CumulativeFn
from kn_graph.ops.sort import TopK
from tests.cuda.run import assert_clean, check, check_graph, launched, needs_compiler

pytestmark = needs_compiler

TYPES = ["float32", "float64", "float16", "bfloat16", "int8", "int32", "uint8", "int64"]
FUNCTIONS: tuple[CumulativeFn, ...] = ("sum", "prod")
WAYS = [(exclusive, reverse) for exclusive in (False, True) for reverse in (False, True)]


@pytest.mark.parametrize("dtype", TYPES)
def test_elements_in_order_along_any_axis(dtype: str) -> None:
    def build(g: Graph) -> Any:
        x = g.input("x", dtype, ("n", 5, 70))
        made = [g.push_all(TopK(2, k, largest), x) for k in (70, 9) for largest in (True, False)]
        made += [g.push_all(TopK(1, 3), x)]
        return [v for pair in made for v in pair]

    check(build, {"n": 2}, {"n": 0}, high=10)


@pytest.mark.parametrize("k", [1, 40, 3000, 5000])
def test_long_rows_are_sorted_in_tiles_and_merged(k: int) -> None:
    def build(g: Graph) -> Any:
        x = g.input("x", "int32", (2, 5000))
        return [v for largest in (True, False) for v in g.push_all(TopK(1, k, largest), x)]

    run = check(build, high=700)  # many are equal
    assert run.proof.kernels == {"sort_tiles": 2, "sort_merge": 4, "sort_take": 2}


def test_a_tile_ends_with_its_row() -> None:
    # one that wrote further would do so behind the tile of the next row, in one order or the other
    check(lambda g: g.push_all(TopK(1, 2100), g.input("x", "int32", (4, 2100))), high=700)


@pytest.mark.parametrize("length", [1, 2048, 2049, 4097, 9000])
def test_rows_whose_length_is_a_symbol(length: int) -> None:
    def build(g: Graph) -> Any:
        x = g.input("x", "float32", ("n",))
        return g.push_all(TopK(0, x.shape[0]), x)

    run = check(build, {"n": length}, {"n": 0})
    merges = {1: 0, 2048: 0, 2049: 1, 4097: 2, 9000: 3}[length]
    assert launched(run, "sort_merge") == merges
    assert launched(run, "sort_rows") == (length <= 2048)
    assert_clean([k.widened for k in run.loaded().skeleton.kernels])


@pytest.mark.parametrize("length", [60, 4500])
@pytest.mark.parametrize("largest", [True, False])
def test_nans_are_larger_than_all_and_zeros_are_equal(length: int, *, largest: bool) -> None:
    g = Graph("special")
    x = g.input("x", DType.FLOAT32, (2, length))
    g.output("values", (made := g.push_all(TopK(1, length, largest), x))[0])
    g.output("places", made[1])
    array = np.random.default_rng(0).integers(-3, 3, (2, length)).astype(np.float32)
    array[0, [0, 7, length - 1]] = np.nan
    array[0, [3, 30]] = np.inf
    array[1, ::2] = -0.0
    array[1, 1::2] = 0.0
    check_graph(g, [{"x": array}])


@pytest.mark.parametrize("threads", [32, 256])
@pytest.mark.parametrize("length", [1, 31, 33, 127, 128, 129, 1024, 1025, 3000])
def test_running_totals_of_rows(length: int, threads: int) -> None:
    def build(g: Graph) -> Any:
        x, y = g.input("x", "int32", ("n", length)), g.input("y", "float32", ("n", length))
        return [g.push(Cumulative("sum", 1, *way), v) for way in WAYS for v in (x, y)]

    options = CudaOptions(threads=threads)
    run = check(build, {"n": 3}, {"n": 0}, high=1 << 30, options=options)
    assert launched(run, "scan_each" if length <= 32 else "scan_rows") == 8


@pytest.mark.parametrize("dtype", [t for t in TYPES if t != "bfloat16"])
def test_running_totals_of_every_type_along_any_axis(dtype: str) -> None:
    def build(g: Graph) -> Any:
        x = g.input("x", dtype, ("n", 5, 40))
        return [
            g.push(Cumulative(fn, a, *way), x) for fn in FUNCTIONS for a in (1, 2) for way in WAYS
        ]

    check(build, {"n": 2}, {"n": 0}, high=100, ulps=1)


@pytest.mark.parametrize("special", [np.nan, np.inf])
def test_running_totals_of_special_values(special: float) -> None:
    g = Graph("special")
    x = g.input("x", DType.FLOAT32, (2, 300))
    for i, way in enumerate(WAYS):
        g.output(f"y{i}", g.push(Cumulative("sum", 1, *way), x))
    array = np.random.default_rng(0).standard_normal((2, 300)).astype(np.float32)
    array[0, 140] = special
    array[1, [20, 200]] = np.inf, -np.inf
    check_graph(g, [{"x": array}])
