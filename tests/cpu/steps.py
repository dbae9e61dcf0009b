"""Graphs that run on native kernels without a host step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from kn_cpu.executor import CpuExecutor
from kn_cpu.native import library
from kn_graph import DType, Graph, Value, cpu_eval_graph
from tests.plan.test_plan import assert_agree

__all__ = ["KERNELS", "Build", "N", "agree", "at_ties", "check", "drawn", "native"]

KERNELS = library()
N = ({"n": 5}, {"n": 1}, {"n": 0}, {"n": 70})
"""Sizes of a symbol."""

Build = Callable[[Graph], Value | Sequence[Value]]


def native(build: Build) -> CpuExecutor:
    """Return an executor of a graph, which has no host steps."""
    g = Graph("steps")
    g.symbol("n", lo=0)
    made = build(g)
    for i, v in enumerate((made,) if isinstance(made, Value) else made):
        g.output(f"out{i}", v)
    assert KERNELS is not None
    run = CpuExecutor(g, KERNELS, 2)
    assert [(h.step.kind, h.reason) for h in run.skeleton().host_steps] == []
    return run


def drawn(
    graph: Graph, numbers: dict[str, int], rng: np.random.Generator, high: int = 3
) -> dict[str, np.ndarray[Any, Any]]:
    """Return random inputs."""
    feeds = {}
    for v in graph.inputs:
        shape = [n if isinstance(n, int) else numbers[str(n)] for n in v.shape]
        normal = v.dtype.is_float
        made = rng.standard_normal(shape) if normal else rng.integers(0, high, shape)
        feeds[v.name] = made.astype(v.dtype.numpy)
    return feeds


def agree(want: dict[str, Any], got: dict[str, Any]) -> None:
    """Compare; of the types that NumPy does not know, as what they stand for."""
    for name, x in want.items():
        assert x.dtype == got[name].dtype
    assert_agree(*({k: x.astype(_known(x.dtype)) for k, x in d.items()} for d in (want, got)))


def at_ties(want: dict[str, Any], got: Mapping[str, Any], ulps: int) -> dict[str, Any]:
    """Return what is wanted, with floats of 16 bits taken as they are where they are close."""
    chosen = dict(want)
    for name, x in want.items():
        if ulps and DType.from_numpy(x.dtype) in (DType.FLOAT16, DType.BFLOAT16):
            bits, found = (a.view(np.int16).astype(np.int32) for a in (x, got[name]))
            chosen[name] = np.where(np.abs(bits - found) <= ulps, got[name], x)
    return chosen


def _known(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(np.float32) if DType.from_numpy(dtype).is_float and dtype.kind == "V" else dtype


def check(build: Build, *sizes: dict[str, int], high: int = 3) -> None:
    """Compare one and two threads with each other and with the reference.

    Args:
        build: makes inputs and outputs.
        sizes: numbers of the symbols, one mapping a run.
        high: integers are drawn from 0 to this, exclusive.
    """
    run = native(build)
    rng = np.random.default_rng(0)
    for numbers in sizes or ({},):
        feeds = drawn(run.graph, numbers, rng, high)
        got = run.eval(feeds)
        agree(cpu_eval_graph(run.graph, feeds), got)
        run.threads = 1
        for name, x in run.eval(feeds).items():
            np.testing.assert_array_equal(x, got[name])
        run.threads = 2
