"""Extremes of whole tensors, which are found in parts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kn_cpu.program import NativeRun
from kn_graph import Graph, cpu_eval_graph
from kn_graph.dim import symbol
from tests.cpu.integers import assert_exact, executor

SIZES = [1, 17, (1 << 16) - 1, 1 << 16, (1 << 16) + 1, 300_007]


def extremes(shape: list[Any], *, last: bool = False) -> Graph:
    """Return a graph with both, of an input whose axis 1 is the densest one or not."""
    g = Graph("extremes")
    x = g.input("x", "float32", shape)
    x = g.permute(x, (0, 3, 1, 2)) if last else x
    for fn in ("min", "max"):
        g.output(fn, g.reduce(fn, g.unary("neg", x), tuple(range(x.rank))))
    return g


@pytest.mark.parametrize("known", [True, False], ids=["known", "symbolic"])
@pytest.mark.parametrize("n", SIZES)
def test_any_size(n: int, known: bool) -> None:
    x = np.random.default_rng(n).standard_normal(n).astype(np.float32)
    graph = extremes([n if known else symbol("n")])
    run, one = executor(graph), executor(graph, 1)
    for place in (0, n // 3, n - 1):
        for value in (1e6, -1e6, np.nan, np.inf):
            x[place] = value
            want = cpu_eval_graph(graph, {"x": x})
            for got in (run.eval({"x": x}), one.eval({"x": x})):
                for name, extreme in want.items():
                    np.testing.assert_array_equal(got[name], extreme)
            x[place] = 0


@pytest.mark.parametrize("last", [True, False])
def test_orders_of_axes(last: bool) -> None:
    x = np.random.default_rng(0).standard_normal((3, 40, 41, 33)).astype(np.float32)
    assert_exact(extremes(list(x.shape), last=last), {"x": x})


def test_large_tensors_are_cut_into_parts() -> None:
    (run,) = executor(extremes([1 << 20])).skeleton().stages[0].segments
    assert isinstance(run, NativeRun)
    assert len(run.kernels) == 1 + 2 * 3
