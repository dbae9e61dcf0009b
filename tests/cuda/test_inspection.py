"""What is said of a plan without a GPU, and of what its kernels use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from kn_cuda import inspection
from kn_cuda.inspection import CIRCULAR_STACK, Inspection, inspect_plan, kernel_report
from kn_cuda.nvrtc import Compiled, Usage
from kn_cuda.options import CudaOptions
from kn_cuda.program import Skeleton
from kn_cuda.source import KernelSource
from kn_cuda.target import CudaTarget
from kn_graph import Graph
from kn_graph.errors import CompileError
from kn_plan.numbers import all_numbers
from kn_plan.options import PlanOptions
from kn_plan.planner import plan_graph


def products() -> Graph:
    """Return a product of n rows, with a program that a library leaves to us."""
    g = Graph("products")
    x, w = g.input("x", "float32", ["n", 64]), g.input("w", "float32", [64, 64])
    g.output("y", g.unary("erf", g.matmul(x, w)))
    return g


def inspected(graph: Graph, n: int) -> Inspection:
    env, _ = all_numbers(graph, {"n": n})
    return inspect_plan(plan_graph(graph, CudaTarget()), env, "sm_90")


def test_kernels_are_those_of_all_sizes() -> None:
    graph = products()
    planned = plan_graph(graph, CudaTarget())
    all_sizes = Skeleton(planned, CudaOptions(), PlanOptions()).kernels
    few, many = inspected(graph, 1), inspected(graph, 512)
    assert [c.title for c in few.calls] != [c.title for c in many.calls]
    assert {k.name for k in few.kernels} == {k.name for k in all_sizes}
    assert {k.name for k in many.kernels} == {k.name for k in all_sizes}


def test_wide_indices_are_among_them_where_sizes_need_these() -> None:
    kernels = inspected(products(), 1 << 30).kernels
    assert any(k.wide for k in kernels)
    assert any(not k.wide for k in kernels)


ROOM = Usage(registers=32, spills=0, stack=0, shared=1024)
SPILLS = Usage(registers=255, spills=16, stack=24, shared=0)
STACK = Usage(registers=40, spills=0, stack=CIRCULAR_STACK, shared=0)


def kernel(code: str) -> KernelSource:
    return KernelSource("scalar", "scalar_map", 64, (), (), code=code)


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> dict[str, Usage]:
    """Return what kernels are to use, by their code, as if NVRTC were installed."""
    found: dict[str, Usage] = {}

    class Compiler:
        def __init__(self, arch: str) -> None:
            pass

        def compile(self, kernels: Sequence[KernelSource]) -> Mapping[str, Any]:
            return {k.name: Compiled(b"", found[k.code]) for k in kernels}

    monkeypatch.setattr(inspection, "Compiler", Compiler)
    monkeypatch.setattr(inspection, "unavailable_reason", lambda: None)
    return found


def test_kernels_without_spills_are_clean(used: dict[str, Usage]) -> None:
    used |= {"a": ROOM, "sinf(x)": STACK}
    report = kernel_report([kernel("a"), kernel("sinf(x)")], "sm_90")
    report.require()
    assert (report.kernels, report.registers, report.shared) == (2, 40, 1024)
    assert str(report) == "compiled without spills, at most 40 registers"


@pytest.mark.parametrize("wrong", [SPILLS, STACK])
def test_spills_and_stacks_are_faults_of_kernels_that_are_named(
    wrong: Usage, used: dict[str, Usage]
) -> None:
    used |= {"a": ROOM, "b": wrong}
    report = kernel_report([kernel("a"), kernel("b")], "sm_90")
    assert len(report.faults) == 1
    with pytest.raises(CompileError, match=rf"1 of 2 kernels .* {kernel('b').name} spills"):
        report.require()


def test_without_nvrtc_a_report_says_why_nothing_was_compiled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(inspection, "unavailable_reason", lambda: "no NVRTC here")
    report = kernel_report([kernel("a")], "sm_90")
    report.require()
    assert (report.kernels, str(report)) == (1, "not compiled: no NVRTC here")
