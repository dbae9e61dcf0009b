"""Products of matrices: what a library is asked for, and what surrounds it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kn_cuda import CudaExecutor, CudaOptions
from kn_cuda.calls import Gemm, LibraryCall
from kn_graph import DType, Graph
from tests.cuda.run import check, host_backend, launched, needs_compiler

pytestmark = needs_compiler


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_every_type(dtype: str) -> None:
    def build(g: Graph) -> Any:
        x, y = g.input("x", dtype, ("n", 20)), g.input("y", dtype, (20, 30))
        return g.matmul(x, y)

    check(build, {"n": 5}, {"n": 1}, {"n": 0})


def test_narrow_products_may_stay_wide() -> None:
    def build(g: Graph) -> Any:
        x, y = g.input("x", "float16", ("n", 20)), g.input("y", "float16", (20, 30))
        return g.matmul(x, y, out_dtype=DType.FLOAT32)

    check(build, {"n": 5})


def test_operands_are_turned_without_copies() -> None:
    def build(g: Graph) -> Any:
        x, y = g.input("x", "float32", ("n", 20)), g.input("y", "float32", (30, 20))
        z = g.input("z", "float32", (20, "n"))
        both = g.matmul(g.permute(z, (1, 0)), g.permute(y, (1, 0)))
        return g.matmul(x, g.permute(y, (1, 0))), both

    run = check(build, {"n": 5})
    assert run.proof.kernels == {"gemm": 2}
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
        x = g.input("x", "float32", ("n", 7, 4, 8))
        heads = g.permute(x, (0, 2, 1, 3))
        keys = g.permute(x, (0, 2, 3, 1))
        w = g.broadcast(g.input("w", "float32", (1, 4, 8, 5)), (*x.shape[:1], 4, 8, 5))
        return g.matmul(heads, keys), g.matmul(heads, w)

    run = check(build, {"n": 3}, {"n": 0})
    assert launched(run, "gemm") == 3 + 3  # the outer batch is a loop around the library


def test_rows_that_repeat_are_copied_for_the_library() -> None:
    def build(g: Graph) -> Any:
        x, y = g.input("x", "float32", (1, 20)), g.input("y", "float32", (20, 30))
        return g.matmul(g.broadcast(x, (6, 20)), y)

    assert launched(check(build), "gemm") == 1


def test_a_sum_over_nothing_is_zero() -> None:
    def build(g: Graph) -> Any:
        x, y = g.input("x", "float32", (4, "n")), g.input("y", "float32", ("n", 3))
        return g.matmul(x, y) + 1

    check(build, {"n": 0}, {"n": 2})


@pytest.mark.parametrize("wanted", ["float32", "float16"])
def test_programs_follow_as_one_launch(wanted: str) -> None:
    def build(g: Graph) -> Any:
        x, y = g.input("x", "float32", ("n", 20)), g.input("y", "float32", (20, 30))
        bias, r = g.input("b", "float32", (30,)), g.input("r", "float32", ("n", 30))
        return g.cast(g.relu(g.matmul(x, y) + bias) + r, DType.parse(wanted))

    run = check(build, {"n": 5})
    assert run.proof.launches == {"MatMul": 2}


def test_the_policy_is_part_of_what_is_asked() -> None:
    g = Graph("policy")
    x = g.input("x", "float32", (4, 4))
    g.output("y", g.matmul(x, x))
    run = CudaExecutor(g, host_backend(), CudaOptions(math="tf32"))
    (step,) = run.loaded().skeleton.device_steps
    (call,) = (c.call for c in step.calls)
    assert isinstance(call, LibraryCall)
    assert call.request.math == "tf32"
    assert run.eval({"x": np.eye(4, dtype=np.float32)})["y"].trace() == 4
