"""Reductions on the host in place of a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kn_cuda import CudaExecutor, CudaOptions
from kn_graph import DType, Graph
from kn_graph.errors import ExecutionError
from kn_graph.ops.reduce import ArgReduce, ReduceFn, ReduceTo
from tests.cuda.run import check, check_graph, host_backend, launched, needs_compiler

pytestmark = needs_compiler

NUMBERS: tuple[ReduceFn, ...] = ("sum", "mean", "prod", "max", "min")
AXES = [(0,), (1,), (2,), (0, 1), (1, 2), (0, 2), (0, 1, 2)]


@pytest.mark.parametrize("axes", AXES, ids=str)
def test_every_function_over_any_axes(axes: tuple[int, ...]) -> None:
    def build(g: Graph) -> Any:
        x = g.input("x", "float32", ("n", 7, 40))
        return [g.reduce(fn, x, axes) for fn in NUMBERS]

    check(build, {"n": 3}, {"n": 1}, {"n": 0})


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16", "int8", "uint8", "int64"])
def test_every_type(dtype: str) -> None:
    def build(g: Graph) -> Any:
        x = g.input("x", dtype, ("n", 70))
        return [g.reduce(fn, x, (a,)) for fn in NUMBERS for a in (0, 1)]

    check(build, {"n": 5}, {"n": 0}, high=100)


def test_bools() -> None:
    def build(g: Graph) -> Any:
        x = g.input("x", "bool", ("n", 40))
        functions: tuple[ReduceFn, ...] = ("any", "all", "max", "min")
        return [g.reduce(fn, x, (a,)) for fn in functions for a in (0, 1)]

    check(build, {"n": 5}, {"n": 0}, high=2)


@pytest.mark.parametrize("threads", [32, 64, 256])
@pytest.mark.parametrize("length", [16, 17, 31, 33, 1024, 1025, 5000])
def test_rows_are_reduced_by_a_thread_a_warp_or_a_block(length: int, threads: int) -> None:
    def build(g: Graph) -> Any:
        x = g.input("x", "float32", ("n", length))
        return g.reduce("sum", x, (1,)), g.reduce("max", x, (1,))

    run = check(build, {"n": 3}, {"n": 9}, options=CudaOptions(threads=threads))
    assert launched(run, "reduce_each" if length <= 16 else "reduce_rows") == 4


@pytest.mark.parametrize("place", [0, 40, 69])
def test_a_nan_anywhere_is_the_result(place: int) -> None:
    g = Graph("nan")
    x = g.input("x", DType.FLOAT32, (3, 70))
    for fn in NUMBERS:
        g.output(fn, g.reduce(fn, x, (1,)))
    array = np.random.default_rng(0).standard_normal((3, 70)).astype(np.float32)
    array[1, place] = np.nan
    check_graph(g, [{"x": array}])


def test_what_follows_runs_in_the_same_kernel() -> None:
    def build(g: Graph) -> Any:
        x, y = g.input("x", "float32", ("n", 40)), g.input("y", "float32", ("n",))
        total = g.reduce("mean", x * x, (1,))
        return g.sqrt(total + y), g.cast(g.reduce("sum", x, (1,)), DType.FLOAT16)

    run = check(build, {"n": 1}, {"n": 300})
    assert [s.step.kind for s in run.loaded().skeleton.device_steps].count("scalar") == 1


def test_rows_that_do_not_lie_side_by_side() -> None:
    def build(g: Graph) -> Any:
        x = g.input("x", "float32", ("n", 6, 40))
        turned = g.permute(x, (2, 0, 1))
        return g.reduce("sum", turned, (0, 2)), g.reduce("sum", g.slice(x, 2, 3, 20, 1), (2,))

    check(build, {"n": 1}, {"n": 5})


@pytest.mark.parametrize("wanted", NUMBERS)
def test_few_long_rows_are_reduced_in_parts(wanted: ReduceFn) -> None:
    def build(g: Graph) -> Any:
        x = g.input("x", "float32", (3, 20001))
        y = g.input("y", "float16", (5000, 3))
        return g.reduce(wanted, x, (1,)) + 1, g.reduce(wanted, x, (0, 1)), g.reduce(wanted, y, (0,))

    run = check(build, ulps=1)
    assert run.proof.kernels == {"reduce_rows": 3, "reduce_columns": 2, "reduce_each": 1}


def test_columns_are_reduced_side_by_side() -> None:
    def build(g: Graph) -> Any:
        x = g.input("x", "float32", ("n", 100, 70))
        turned = g.permute(x, (2, 0, 1))
        return g.reduce("sum", x, (1,)), g.reduce("max", turned, (2,)), g.reduce("mean", x, (0, 1))

    run = check(build, {"n": 2}, {"n": 0}, {"n": 70})
    assert launched(run, "reduce_columns") == 3 * 3 - 2  # nothing is stored for n = 0


def test_a_sum_of_many_is_as_exact_as_one_of_few() -> None:
    g = Graph("exact")
    x = g.input("x", DType.FLOAT32, (500_000, 1))
    g.output("total", g.reduce("sum", x, (0,)))
    run = CudaExecutor(g, host_backend(), CudaOptions(threads=32))
    array = np.full((500_000, 1), 0.1, np.float32)
    (total,) = run.eval({"x": array})["total"]
    assert abs(total / array.astype(np.float64).sum() - 1) < 1e-6


@pytest.mark.parametrize("shape", [(3, 1, 1), (1, 7, 1), (3, 7, 40), (1, 1, 1)], ids=str)
def test_to_shapes_that_show_at_run_time(shape: tuple[int, ...]) -> None:
    g = Graph("to")
    x, sizes = g.input("x", DType.FLOAT32, (3, 7, 40)), g.input("s", DType.INT64, (3,))
    wanted = g.read_sizes(sizes)
    for fn in NUMBERS:
        g.output(fn, g.push(ReduceTo(fn, tuple(wanted)), x) + 1)
    array = np.random.default_rng(0).standard_normal((3, 7, 40)).astype(np.float32)
    check_graph(g, [{"x": array, "s": np.array(shape)}])
    run = CudaExecutor(g, host_backend())
    with pytest.raises(ExecutionError, match=r"cannot reduce \[3, 7, 40\] to \[3, 5, 1\]"):
        run.eval({"x": array, "s": np.array([3, 5, 1])})


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int8", "uint64"])
def test_places_of_extremes(dtype: str) -> None:
    def build(g: Graph) -> Any:
        x = g.input("x", dtype, ("n", 7, 40))
        ways = [(largest, last) for largest in (True, False) for last in (True, False)]
        return [g.push(ArgReduce(a, *way), x) for a in (1, 2) for way in ways]

    check(build, {"n": 3}, {"n": 0}, high=4)


@pytest.mark.parametrize("places", [(), (5,), (0, 299), (40, 41, 250)], ids=str)
def test_places_of_nans_and_of_equal_extremes(places: tuple[int, ...]) -> None:
    g = Graph("places")
    x = g.input("x", DType.FLOAT32, (2, 300))
    for largest in (True, False):
        for last in (True, False):
            g.output(f"{largest}{last}", g.push(ArgReduce(1, largest, last), x))
    array = np.random.default_rng(0).integers(-2, 3, (2, 300)).astype(np.float32)
    array[0, list(places)] = np.nan
    array[1, [3, 200]] = np.inf
    array[1, [7, 100]] = -np.inf
    check_graph(g, [{"x": array}])
