"""Products of matrices: what a library is asked for, and what surrounds it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from kn_cuda import CudaExecutor, CudaOptions
from kn_cuda.calls import Gemm, LibraryCall
from kn_cuda.program import Skeleton
from kn_cuda.steps import matmul
from kn_cuda.target import CudaTarget
from kn_graph import DType, Graph
from kn_graph.dim import evaluate
from kn_plan.options import PlanOptions
from kn_plan.planner import plan_graph
from tests.cuda.run import check, check_graph, host_backend, launched, needs_compiler

pytestmark = needs_compiler


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_every_type(dtype: str) -> None:
    def build(g: Graph) -> Any:
        x, y = g.input("x", dtype, ("n", 20)), g.input("y", dtype, (20, 30))
        return g.matmul(x, y)

    run = check(build, {"n": 20}, {"n": 5}, {"n": 1}, {"n": 0})
    assert run.proof.kernels == {"gemm": 1, "gemm_few": 2}


def test_narrow_products_may_stay_wide() -> None:
    def build(g: Graph) -> Any:
        x, y = g.input("x", "float16", ("n", 20)), g.input("y", "float16", (20, 30))
        return g.matmul(x, y, out_dtype=DType.FLOAT32)

    check(build, {"n": 20}, {"n": 5})


def test_operands_are_turned_without_copies() -> None:
    def build(g: Graph) -> Any:
        x, y = g.input("x", "float32", ("n", 20)), g.input("y", "float32", (30, 20))
        z = g.input("z", "float32", (20, "n"))
        both = g.matmul(g.permute(z, (1, 0)), g.permute(y, (1, 0)))
        return g.matmul(x, g.permute(y, (1, 0))), both

    run = check(build, {"n": 20}, {"n": 5})
    assert run.proof.kernels == {"gemm": 2, "gemm_few_along": 2}
    asked = [
        c.call.request
        for s in run.loaded().skeleton.device_steps
        for c in s.calls
        if isinstance(c.call, LibraryCall) and isinstance(c.call.request, Gemm)
    ]
    turned = {(r.a_turned, r.b_turned) for r in asked}
    assert turned == {(False, True), (True, True)}


def test_batches_that_repeat_and_heads_that_lie_apart() -> None:
    def build(g: Graph) -> Any:
        x = g.input("x", "float32", ("n", 9, 4, 8))
        heads = g.permute(x, (0, 2, 1, 3))
        keys = g.permute(x, (0, 2, 3, 1))
        w = g.broadcast(g.input("w", "float32", (1, 4, 8, 5)), (*x.shape[:1], 4, 8, 5))
        return g.matmul(heads, keys), g.matmul(heads, w)

    run = check(build, {"n": 3}, {"n": 0})
    assert run.proof.kernels == {"gemm_tiled": 2}  # a library would need a loop around it


def test_rows_that_repeat_need_no_copy() -> None:
    def build(g: Graph) -> Any:
        x, y = g.input("x", "float32", (1, 20)), g.input("y", "float32", (20, 30))
        return g.matmul(g.broadcast(x, (12, 20)), y)

    assert check(build).proof.kernels == {"gemm_tiled": 1}


def test_large_products_are_copied_for_the_library() -> None:
    def build(g: Graph) -> Any:
        x, y = g.input("x", "float32", (1, 900)), g.input("y", "float32", (900, 30))
        return g.matmul(g.broadcast(x, (12, 900)), y) + 1

    assert check(build).proof.kernels == {"gemm": 1, "scalar_map": 2}


def test_a_sum_over_nothing_is_zero() -> None:
    def build(g: Graph) -> Any:
        x, y = g.input("x", "float32", (14, "n")), g.input("y", "float32", ("n", 3))
        return g.matmul(x, y) + 1, g.matmul(x, y), g.matmul(g.slice(x, 0, 0, 2), y)

    check(build, {"n": 0}, {"n": 2})


@pytest.mark.parametrize("rows", [1, 3, 8, 9, 70])
@pytest.mark.parametrize("wanted", ["float32", "float16"])
def test_programs_follow_in_the_same_launch(wanted: str, rows: int) -> None:
    def build(g: Graph) -> Any:
        x, y = g.input("x", "float32", ("n", 40)), g.input("y", "float32", (40, 67))
        bias, r = g.input("b", "float32", (67,)), g.input("r", "float32", ("n", 67))
        return g.cast(g.relu(g.matmul(x, y) + bias) + r, DType.parse(wanted))

    run = check(build, {"n": rows}, ulps=2)
    assert run.proof.kernels == {"gemm_few" if rows <= 8 else "gemm_tiled": 1}


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int8", "int64"])
def test_our_kernels_take_every_type_stride_and_batch(dtype: str) -> None:
    def build(g: Graph) -> Any:
        x, y = g.input("x", dtype, (2, 3, "n", 45)), g.input("y", dtype, (2, 3, 45, 72))
        z = g.input("z", dtype, (3, 72, 45))
        turned = g.permute(z, (0, 2, 1))  # columns lie side by side along k
        wide = g.broadcast(g.unsqueeze(turned, (0,)), (2, 3, 45, 72))
        first = g.permute(g.input("t", dtype, (2, 3, 45, "n")), (0, 1, 3, 2))
        return g.matmul(x, y), g.matmul(x, wide), g.matmul(first, y), g.matmul(first, wide)

    with fixed_choice():
        run = check(build, {"n": 66}, {"n": 7}, {"n": 0}, high=9, ulps=2)
    tiled = "gemm_tiled" if dtype != "int8" else "gemm_bytes"
    own = (tiled, "gemm_few", "gemm_few_along")
    assert [launched(run, entry) for entry in own] == [4, 2, 2]


@contextmanager
def fixed_choice() -> Iterator[None]:
    """Have our kernels compute everything."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(matmul, "TYPES", set())
        yield


def test_what_is_not_finite_spreads_as_it_should() -> None:
    x = np.ones((20, 18), np.float32)
    x[3, 17], x[5, 0], x[7, 2] = np.nan, np.inf, -np.inf
    g = Graph("nan")
    product = g.matmul(g.input("x", "float32", ("n", 18)), g.input("y", "float32", (18, 5)))
    g.output("out", g.relu(product) + 1)
    y = np.eye(18, 5, dtype=np.float32)
    check_graph(g, [{"x": x, "y": y}, {"x": x[:8], "y": y}])


@pytest.mark.parametrize(
    ("dtype", "rows", "depth", "cols", "own"),
    [
        ("float32", 128, 64, 256, True),  # a launch costs more than the library gains
        ("float32", 4096, 64, 4096, True),  # the way of results through memory does
        ("float32", 4096, 4096, 4096, False),
        ("float32", 128, 1024, 256, False),  # few tiles, each of which takes long
        ("float16", 128, 64, 256, True),
        ("float16", 4096, 4096, 4096, False),
        ("float64", 128, 64, 256, True),
    ],
)
def test_the_rule_weighs_a_launch_against_speed(
    dtype: str, rows: int, depth: int, cols: int, own: bool
) -> None:
    g = Graph("rule")
    x, y = g.input("x", dtype, ("n", depth)), g.input("y", dtype, (depth, cols))
    g.output("z", g.matmul(x, y) + 1)
    g.output("bare", g.matmul(x, g.input("other", dtype, (depth, cols))))
    skeleton = Skeleton(plan_graph(g, CudaTarget()), CudaOptions(), PlanOptions())
    env = dict.fromkeys(g.input_symbols(), rows)
    made = [
        [c.call.title for c in s.calls if evaluate(c.call.guard, env)]
        for s in skeleton.device_steps
    ]
    assert sorted(made) == sorted([["gemm_tiled"] if own else ["gemm", "scalar_map"], ["gemm"]])


def test_the_policy_is_part_of_what_is_asked() -> None:
    g = Graph("policy")
    x = g.input("x", "float32", (14, 14))
    g.output("y", g.matmul(x, x))
    run = CudaExecutor(g, host_backend(), CudaOptions(math="tf32"))
    (step,) = run.loaded().skeleton.device_steps
    (call,) = (c.call for c in step.calls)
    assert isinstance(call, LibraryCall)
    assert call.request.math == "tf32"
    assert run.eval({"x": np.eye(14, dtype=np.float32)})["y"].trace() == 14


@pytest.mark.parametrize("left", ["int8", "uint8"])
@pytest.mark.parametrize("right", ["int8", "uint8"])
def test_products_of_bytes(left: str, right: str) -> None:
    g, rng, arrays = Graph("bytes"), np.random.default_rng(0), {}
    n = g.symbol("n", lo=0)
    for i, (rows, depth, turned) in enumerate(
        ((9, 40, False), (70, 64, True), (130, 67, False), (20, 1, True))
    ):
        operands = []
        for name, dtype, shape in (("x", left, (rows, depth)), ("y", right, (depth, 66))):
            held = (4, *(shape[::-1] if turned else shape))
            info = np.iinfo(dtype)
            arrays[f"{name}{i}"] = rng.integers(info.min, info.max + 1, held).astype(dtype)
            v = g.input(f"{name}{i}", dtype, (n, *held[1:]))
            operands.append(g.permute(v, (0, 2, 1)) if turned else v)
        g.output(f"out{i}", g.matmul(*operands, out_dtype=DType.INT32) * 3)
    run = check_graph(g, [arrays, {name: x[:0] for name, x in arrays.items()}])
    assert run.proof.kernels == {"gemm_bytes": 4}
