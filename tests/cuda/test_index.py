"""Gathering and scattering on the host in place of a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from kn_cuda import CudaExecutor
from kn_graph import DType, Graph
from kn_graph.errors import ExecutionError
from kn_graph.op import Op
from kn_graph.ops.gather import Gather, GatherElements, GatherND
from kn_graph.ops.scatter import ScatterElements, ScatterFn, ScatterND
from tests.cuda.run import (
    SEEDS,
    assert_clean,
    check,
    check_graph,
    host_backend,
    launched,
    needs_compiler,
)

pytestmark = needs_compiler

Array = np.ndarray[Any, Any]

TYPES = ["float32", "float64", "float16", "bfloat16", "bool", "int8", "uint16", "int64"]
INDEX_TYPES = ["int8", "uint8", "int32", "uint32", "int64", "uint64"]
REDUCTIONS: tuple[ScatterFn, ...] = ("add", "mul", "max", "min")


def places(shape: Any, n: int, dtype: str = "int64") -> Array:
    """Return indices into an axis of size n, negative ones where the type has them."""
    low = 0 if dtype.startswith("u") else -n
    return np.random.default_rng(0).integers(low, n, shape).astype(dtype)


def numbers(shape: Sequence[int], dtype: str) -> Array:
    """Return elements that are all kinds of numbers."""
    normal = np.random.default_rng(1).standard_normal(shape) * 20
    with np.errstate(all="ignore"):
        return normal.astype(DType.parse(dtype).numpy)


def run(*cases: tuple[Op, Sequence[Array]]) -> CudaExecutor:
    """Compare operations, each with what it reads, with the reference."""
    g, given = Graph("index"), {}
    for k, (op, arrays) in enumerate(cases):
        named = {f"x{k}_{i}": a for i, a in enumerate(arrays)}
        made = [g.input(n, DType.from_numpy(a.dtype), a.shape) for n, a in named.items()]
        g.output(f"y{k}", g.push(op, *made))
        given.update(named)
    return check_graph(g, [given])


@pytest.mark.parametrize("dtype", TYPES)
def test_slices_of_every_type_along_any_axis(dtype: str) -> None:
    def build(g: Graph) -> Any:
        x, i = g.input("x", dtype, (3, 4, "n")), g.input("i", "int64", (2, 3))
        turned = g.permute(x, (2, 0, 1))
        wide = g.push(Gather(2), g.slice(turned, 1, 1, 2, 1), i)
        return [*(g.push(Gather(a), x, i) for a in (0, 1)), wide, g.push(Gather(2), turned, i)]

    ran = check(build, {"n": 33}, {"n": 0})
    assert launched(ran, "gather_each") == 4
    assert_clean([k.widened for k in ran.loaded().skeleton.kernels])


@pytest.mark.parametrize("dtype", INDEX_TYPES)
def test_indices_of_every_type(dtype: str) -> None:
    x = numbers((7, 40), "float32")
    shapes = ((), (5,), (0,), (2, 9))
    axes = ((0, 7), (1, 40))
    run(*((Gather(a), (x, places(shape, n, dtype))) for shape in shapes for a, n in axes))


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
def test_an_element_for_each_index(dtype: str) -> None:
    x = numbers((5, 6, 17), dtype)
    shapes = ((0, (9, 6, 17)), (1, (5, 2, 3)), (2, (1, 6, 40)), (2, (5, 0, 1)))
    run(*((GatherElements(axis), (x, places(shape, x.shape[axis]))) for axis, shape in shapes))


def test_slices_by_tuples() -> None:
    shapes = ((0, (7, 1)), (0, (2, 3, 2)), (0, (8, 4)), (1, (4, 5, 1)), (2, (4, 4, 3, 1)))
    x = numbers((4, 4, 4, 9), "float32")
    run(*((GatherND(batch), (x, places(shape, 4))) for batch, shape in shapes))


def test_what_follows_runs_in_the_same_kernel() -> None:
    def build(g: Graph) -> Any:
        table = g.input("table", "float16", (20, 8))
        i, bias = g.input("i", "int64", ("n",)), g.input("bias", "float32", ("n", 1))
        rows = g.cast(g.push(Gather(0), table, i), DType.FLOAT32)
        return rows * 2 + bias

    ran = check(build, {"n": 1}, {"n": 300}, {"n": 0}, high=20)
    assert ran.proof.kernels == {"gather_each": 2}


# ---- writing ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", TYPES)
def test_of_updates_with_one_index_the_last_one_stays(dtype: str) -> None:
    x = numbers((6, 5, 7), dtype)
    shapes = ((0, (20, 5, 7)), (1, (6, 30, 3)), (2, (4, 5, 1)))
    each = [
        (ScatterElements(axis), (x, places(shape, x.shape[axis]), numbers(shape, dtype)))
        for axis, shape in shapes
    ]
    slices = [
        (ScatterND(), (x, places((40, depth), 5), numbers((40, *x.shape[depth:]), dtype)))
        for depth in (1, 2, 3)
    ]
    assert run(*each, *slices).proof.total == 3 * 6


@pytest.mark.parametrize("dtype", [t for t in TYPES if t != "bool"])
def test_updates_with_one_index_are_combined_in_order(dtype: str) -> None:
    x = numbers((3, 5), dtype)
    each = (x, places((3, 200), 5), numbers((3, 200), dtype))
    slices = (x, places((50, 1), 3), numbers((50, 5), dtype))
    ran = run(
        *((ScatterElements(1, fn), each) for fn in REDUCTIONS),
        *((ScatterND(fn), slices) for fn in REDUCTIONS),
    )
    assert launched(ran, "scatter_sort") == 8 * DType.parse(dtype).is_float


def test_any_number_of_updates_of_one_element() -> None:
    def build(g: Graph) -> Any:
        x, u = g.input("x", "float32", (1,)), g.input("u", "float32", ("n",))
        i = g.input("i", "int64", ("n",))
        tuples = g.reshape(i, (u.shape[0], 1))
        return g.push(ScatterElements(0, "add"), x, i, u), g.push(ScatterND(), x, tuples, u)

    check(build, *({"n": n} for n in (0, 1, 2, 3, 5, 64, 65, 1000)), high=1)


def test_sums_are_those_of_updates_in_order() -> None:
    rng = np.random.default_rng(0)
    updates = (10.0 ** rng.integers(-3, 3, 900) * rng.standard_normal(900)).astype(np.float32)
    arrays = (np.zeros(3, np.float32), places((900,), 3), updates)
    op = ScatterElements(0, "add")
    ran = run((op, arrays))
    got = ran.eval({f"x0_{i}": a for i, a in enumerate(arrays)})["y0"]
    want = np.zeros(3, np.float32)
    np.add.at(want, arrays[1], updates)
    np.testing.assert_array_equal(got, want)
    assert launched(ran, "scatter_sort") == 2


def test_symbols_and_strides() -> None:
    def build(g: Graph) -> Any:
        x, u = g.input("x", "float32", ("n", 4, 6)), g.input("u", "float32", (2, 6, "n"))
        i = g.input("i", "int32", (2, 2))
        turned = g.permute(u, (0, 2, 1))
        rows = g.push(ScatterND("add"), g.permute(x, (1, 0, 2)), g.slice(i, 1, 0, 1, 1), turned)
        return rows, g.push(ScatterND(), g.permute(x, (1, 2, 0)), i, g.slice(u, 1, 1, 1, 1)[:, 0])

    check(build, {"n": 3}, {"n": 0}, {"n": 40}, high=4)


def test_nans_are_passed_on() -> None:
    x, updates = numbers((4, 9), "float32"), numbers((30, 9), "float32")
    x[1, 2], updates[3, 4], updates[5] = np.nan, np.nan, np.inf
    run(*((ScatterND(fn), (x, places((30, 1), 4), updates)) for fn in REDUCTIONS))


# ---- indices that do not exist ------------------------------------------------------------------


@pytest.mark.parametrize("bad", [4, -5, 1 << 40])
@pytest.mark.parametrize(
    ("op", "shape", "axis"),
    [
        (Gather(1), (2,), 1),
        (GatherElements(1), (3, 2), 1),
        (GatherND(), (2, 2), 1),
        (ScatterElements(1, "add"), (3, 2), 1),
        (ScatterND(), (2, 2), 1),
    ],
)
def test_an_index_that_does_not_exist_is_an_error(
    op: Op, shape: tuple[int, ...], axis: int, bad: int
) -> None:
    g = Graph("bad")
    x, i = g.input("x", "float32", (3, 4)), g.input("i", "int64", shape)
    given = {"x": numbers((3, 4), "float32"), "i": np.zeros(shape, np.int64)}
    operands = [x, i]
    if isinstance(op, (ScatterElements, ScatterND)):
        size = shape if isinstance(op, ScatterElements) else shape[:1]
        operands.append(g.input("u", "float32", size))
        given["u"] = np.zeros(size, np.float32)
    g.output("y", g.push(op, *operands))
    given["i"].flat[-1] = bad
    for seed in SEEDS:
        ran = CudaExecutor(g, host_backend(seed))
        with pytest.raises(ExecutionError, match=f"index {bad} .* axis {axis} of size 4"):
            ran.eval(given)
        ran.eval({**given, "i": np.zeros(shape, np.int64)})
