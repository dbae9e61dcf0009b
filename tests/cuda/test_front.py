"""Programs that run in the kernel which reads their result, on the host in place of a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kn_cuda import CudaExecutor, CudaOptions
from kn_graph import DType, Graph
from kn_graph.ops.norm import Norm
from kn_plan.options import PlanOptions
from tests.cuda.run import check, host_backend, needs_compiler

pytestmark = needs_compiler


def weights(g: Graph, *shape: int, dtype: str = "float32") -> Any:
    values = np.random.default_rng(sum(shape)).standard_normal(shape) / 8
    return g.constant(values.astype(DType.parse(dtype).numpy))


def test_bias_and_residual_run_in_the_norm_behind_a_product() -> None:
    def build(g: Graph) -> Any:
        x = g.input("x", "float32", ("n", 5, 64))
        for _ in range(3):
            flat = g.matmul(g.view(x, (x.shape[0] * 5, 64)), weights(g, 64, 64))
            y = g.view(flat + weights(g, 64), x.shape) + x
            x = g.push(Norm((2,), 1e-5), y) * weights(g, 64)
        return x

    run = check(build, {"n": 3}, {"n": 1}, {"n": 0})
    assert run.proof.launches == {"MatMul": 6, "Norm": 6}
    counts = [len(k.pointers) for k in run.loaded().skeleton.kernels if k.family == "norm"]
    assert counts == [5]  # product, bias, residual, scale and result: the sum is not stored


def test_a_sum_that_others_read_is_stored_by_the_norm() -> None:
    def build(g: Graph) -> Any:
        x, r = g.input("x", "float32", ("n", 64)), g.input("r", "float32", ("n", 64))
        y = g.matmul(x, weights(g, 64, 64)) + r
        z = g.matmul(g.push(Norm((1,), 1e-5), y), weights(g, 64, 32))
        return g.matmul(z, weights(g, 32, 64)) + y, y

    run = check(build, {"n": 7}, {"n": 0})
    assert run.proof.launches == {"MatMul": 3, "Norm": 1}


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_every_type_is_rounded_as_if_it_were_stored(dtype: str) -> None:
    def build(g: Graph) -> Any:
        x, r = g.input("x", dtype, ("n", 40)), g.input("r", dtype, ("n", 40))
        y = g.relu(g.matmul(x, weights(g, 40, 40, dtype=dtype)) * 3 + r)
        return g.push(Norm((1,), 1e-5), y), y * 2

    check(build, {"n": 7}, ulps=2)


@pytest.mark.parametrize("length", [8, 200, 700])
def test_scale_and_mask_run_in_the_softmax(length: int) -> None:
    def build(g: Graph) -> Any:
        x, m = g.input("x", "float32", (2, 3, "n")), g.input("m", "float32", (1, 1, "n"))
        return g.softmax(x * 0.125 + m, 2), g.softmax(x * 0.5, 1) + 1

    run = check(build, {"n": length}, {"n": 0})
    assert run.proof.launches == {"Softmax": 2}


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_rotated_halves_are_one_launch(dtype: str) -> None:
    def build(g: Graph) -> Any:
        x = g.input("x", dtype, (2, "n", 3, 10))
        heads = g.permute(x, (0, 2, 1, 3))
        angles = [g.broadcast(g.input(v, dtype, (1, 1, "n", 10)), heads.shape) for v in "cs"]
        low, high = (g.slice(heads, 3, a, 5) for a in (0, 5))
        return heads * angles[0] + g.concat([-high, low], 3) * angles[1]

    run = check(build, {"n": 7}, {"n": 1}, {"n": 0}, ulps=1)
    assert run.proof.launches == {"Concat": 2}


def test_parts_that_others_read_are_made_by_themselves() -> None:
    def build(g: Graph) -> Any:
        x = g.input("x", "float32", ("n", 4))
        y = g.exp(x)
        both = g.concat([x * 3, g.relu(x) * 4], 1)
        return g.concat([y, y, x], 1) + 1, y, g.concat([x * 2, x] * 6, 1) + 1, both

    run = check(build, {"n": 3})
    assert run.proof.launches["Concat"] == 1 + 2 + 1
    assert run.proof.launches["scalar"] >= 3


def test_what_is_stored_in_front_of_rows_that_are_read_again_keeps_its_launch() -> None:
    def build(g: Graph) -> Any:
        x = g.input("x", "float32", (2, 9000))
        y = g.exp(x) + 1
        return g.push(Norm((1,), 1e-5), y), y

    assert check(build).proof.launches == {"scalar": 1, "Norm": 1}


def test_programs_stay_where_the_planner_puts_them_if_nothing_is_to_be_fused() -> None:
    g = Graph("apart")
    x = g.input("x", DType.FLOAT32, (3, 64))
    g.output("y", g.softmax(x * 2, 1))
    apart = CudaExecutor(g, host_backend(), plan_options=PlanOptions(fuse_epilogues=False))
    together = CudaExecutor(g, host_backend(), CudaOptions())
    feeds = {"x": np.random.default_rng(0).standard_normal((3, 64)).astype(np.float32)}
    assert apart.eval(feeds)["y"].tobytes() == together.eval(feeds)["y"].tobytes()
    assert (apart.proof.total, together.proof.total) == (2, 1)


@pytest.mark.parametrize("length", [5, 40, 20001])
def test_squares_run_in_the_reduction_behind_them(length: int) -> None:
    def build(g: Graph) -> Any:
        x, y = g.input("x", "float32", ("n", 3, length)), g.input("y", "float16", (length, 3))
        z = g.input("z", "float32", (length,))
        d = x - z
        last, first = g.reduce("mean", x * x, (2,)), g.reduce("sum", g.unary("abs", y) + 1, (0,))
        return g.sqrt(last), first, g.reduce("max", d, (1, 2)), d

    run = check(build, {"n": 2}, {"n": 0}, ulps=1)
    assert "scalar" not in run.proof.launches
