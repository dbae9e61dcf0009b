"""What steps cost: operations and bytes over symbolic sizes, and bounds on devices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kn_graph import DType, Graph, Value, load_graph_from_onnx_bytes, optimize_graph
from kn_graph.dim import evaluate
from kn_graph.variants import symbols_by_name
from kn_plan.cost import Cost, plan_costs
from kn_plan.device_spec import CUDA_SPECS, DeviceSpec, cpu_spec
from kn_plan.options import PlanOptions
from kn_plan.planner import plan_graph
from models.generate import model_bytes

MACHINE = DeviceSpec("test", "invented", 1e9, 1e8, 1e-6, {DType.FLOAT16: 4e9})


def costs(build: Callable[[Graph], Value], **dims: int) -> list[Cost]:
    g = Graph("cost")
    g.output("y", build(g))
    plan = plan_graph(g)
    env = symbols_by_name(g, dims)
    return [c.at(env) for c in plan_costs(plan)]


def test_a_product_with_an_epilogue_over_symbolic_sizes() -> None:
    def build(g: Graph) -> Value:
        x, w = g.input("x", "float32", ["n", 64]), g.input("w", "float32", [64, 32])
        return g.unary("exp", g.matmul(x, w))

    (cost,) = costs(build, n=10)
    assert cost.products == 2 * 10 * 64 * 32
    assert cost.scalars == 10 * 32
    assert cost.read == 4 * (10 * 64 + 64 * 32)
    assert cost.written == 4 * 10 * 32


def test_a_grouped_convolution_and_a_pool() -> None:
    def build(g: Graph) -> Value:
        x, w = g.input("x", "float32", [1, 8, 10, 10]), g.input("w", "float32", [16, 4, 3, 3])
        y = g.conv(x, w, pads=[(1, 1), (1, 1)], groups=2)
        return g.pool(y, "max", [2, 2], strides=[2, 2])

    conv, pool = costs(build)
    assert conv.flops == 2 * 16 * 100 * 4 * 9
    assert (pool.products, pool.scalars) == (0, 16 * 25 * 4)
    assert pool.read == 4 * conv.written / 4


def test_elements_that_repeat_are_read_once() -> None:
    def build(g: Graph) -> Value:
        x, b = g.input("x", "float32", [100, 8]), g.input("b", "float32", [8])
        return g.add(x, g.broadcast(g.view(b, (1, 8)), (100, 8)))

    (cost,) = costs(build)
    assert (cost.read, cost.written) == (4 * 808, 4 * 800)


def test_a_gather_reads_what_the_indices_name() -> None:
    def build(g: Graph) -> Value:
        return g.gather(g.input("x", "float32", [30_000, 64]), g.input("i", "int64", [5]), 0)

    (cost,) = costs(build)
    assert cost.read == 4 * 5 * 64 + 8 * 5


def test_the_slower_of_computing_and_moving_is_the_bound() -> None:
    heavy = Cost(4_000_000, 0, 1000, 1000, DType.FLOAT32)
    assert (heavy.bound(MACHINE).limit, heavy.bound(MACHINE).seconds) == ("compute", 4e-3)
    half = Cost(4_000_000, 0, 1000, 1000, DType.FLOAT16)
    assert half.bound(MACHINE).seconds == pytest.approx(1e-3)
    wide = Cost(0, 1000, 900_000, 100_000, None)
    assert (wide.bound(MACHINE).limit, wide.bound(MACHINE).seconds) == ("memory", 1e-2)
    small = Cost(10, 10, 10, 10, DType.FLOAT32)
    assert (small.bound(MACHINE).limit, small.bound(MACHINE).seconds) == ("launch", 1e-6)
    assert Cost(0, 0, 0, 0, None).bound(MACHINE).limit == "nothing"


@pytest.mark.parametrize("name", ["residual_cnn", "transformer_layer", "lstm_gru"])
def test_fusing_changes_bytes_and_no_operations(name: str) -> None:
    def total(options: PlanOptions) -> tuple[int, int]:
        graph = optimize_graph(load_graph_from_onnx_bytes(model_bytes(name)))
        env: Any = {d.as_symbol: 6 for d in graph.symbols.values()}
        found = plan_costs(plan_graph(graph, options=options))
        return tuple(sum(evaluate(n, env) for n in row) for row in  # type: ignore[return-value]
                     ([c.flops for c in found], [c.moved for c in found]))  # fmt: skip

    fused = total(PlanOptions())
    apart = total(PlanOptions(fuse_scalars=False, fuse_epilogues=False))
    assert fused[0] == apart[0]
    assert fused[1] < apart[1]


def test_specs_are_of_different_devices() -> None:
    assert CUDA_SPECS["sm_90"].product_flops(DType.FLOAT16) > 900e12
    assert CUDA_SPECS["sm_90"].product_flops(DType.FLOAT32) == CUDA_SPECS["sm_90"].flops
    assert cpu_spec("avx512", 2).flops == 4 * cpu_spec("avx2", 1).flops
    assert cpu_spec("avx512", 1).name == "cpu (avx512, 1 thread)"
