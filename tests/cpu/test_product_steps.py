"""Products of matrices as steps of a plan: packed weights, and what follows in finished blocks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kn_cpu.gemm import gemm_call
from kn_cpu.product import REGISTERS
from kn_graph import Graph, Value
from kn_graph.dim import evaluate, symbol
from kn_plan.layout import StridedLayout
from tests.cpu.steps import Build, check, native

SIZES = ({"n": 1}, {"n": 3}, {"n": 70})


def weights(g: Graph, *shape: int) -> Value:
    return g.constant(np.random.default_rng(1).standard_normal(shape).astype(np.float32))


def calls(build: Build) -> int:
    """Return how many kernels run."""
    (stage,) = native(build).skeleton().stages
    (run,) = stage.segments
    return len(run.kernels)  # type: ignore[union-attr]


def gelu(g: Graph) -> Value:
    return g.gelu(
        g.matmul(g.input("x", "float32", ["n", 40]), weights(g, 40, 150)) + weights(g, 150)
    )


def gate(g: Graph) -> Value:
    x = g.input("x", "float32", ["n", 3, 40])
    return g.input("y", "float32", ["n", 3, 70]) * g.unary("silu", g.matmul(x, weights(g, 40, 70)))


def two_results(g: Graph) -> tuple[Value, ...]:
    y = g.unary("sigmoid", g.matmul(g.input("x", "float32", ["n", 9]), weights(g, 9, 33)))
    return y, y * y


def narrow(g: Graph) -> Value:  # computed as the transpose
    return g.gelu(g.matmul(g.input("x", "float32", ["n", 50]), g.input("w", "float32", [50, 3])))


@pytest.mark.parametrize("build", [gelu, gate, two_results, narrow])
def test_programs_run_on_finished_blocks(build: Build) -> None:
    assert calls(build) == 1
    check(build, *SIZES)


def test_a_program_whose_operands_no_block_has_runs_behind() -> None:
    def build(g: Graph) -> Value:  # the transpose of a batch of products, and what is added to it
        x = g.matmul(g.input("x", "float32", [2, 50, "n"]), g.input("w", "float32", [2, "n", 3]))
        return g.gelu(x)

    check(build, *SIZES)


@pytest.mark.parametrize("shape", [(4, 40, 33), (4, 1, 40, 33), (2, 3, 40, 33), (1, 3, 40, 33)])
def test_constant_matrices_of_a_batch_are_packed(shape: tuple[int, ...]) -> None:
    def build(g: Graph) -> Value:
        left: list[Any] = [*(1 if n == 1 else n for n in shape[:-2]), "n", 40]
        return g.matmul(g.input("x", "float32", left), weights(g, *shape))

    assert len(native(build).skeleton().packed) == 1
    check(build, *SIZES)


@pytest.mark.parametrize("rows", [1, 5, 64, 700])
@pytest.mark.parametrize("isa", REGISTERS)
def test_symbolic_rows_give_as_many_units_as_known_ones(rows: int, isa: str) -> None:
    n = symbol("n")

    def made(rows: Any) -> Any:
        shapes = (rows, 256), (rows, 768), (768, 256)
        return gemm_call(REGISTERS[isa], *map(StridedLayout.contiguous, shapes))

    known, open_ = made(rows), made(n)
    env: dict[Any, int] = {n.as_symbol: rows}
    assert evaluate(open_.units, env) == known.units
    assert evaluate(open_.scratch, env) >= known.scratch
