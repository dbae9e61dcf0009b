"""Random numbers of native kernels: those of the reference, on any number of threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kn_cpu.executor import CpuExecutor
from kn_cpu.native import library
from kn_graph import Graph, cpu_eval_graph
from kn_graph.ops.random import SIGNIFICANT_BITS, Distribution
from kn_graph.random_bits import RandomStreams
from kn_graph.reference import eval_drawing

KERNELS = library()
pytestmark = pytest.mark.skipif(KERNELS is None, reason="there are no native kernels")


def draws(distribution: Distribution, *, key: int | None = None) -> Graph:
    """Return a graph of n numbers of each type, of some behind a program, and in another order."""
    g = Graph("draws")
    n = g.symbol("n", lo=0)
    x = g.input("x", "float32", [n, 3])
    for dtype in SIGNIFICANT_BITS:
        g.output(dtype.text, g.random(distribution, (n, 3), dtype, key=key))
    g.output("scaled", g.random(distribution, (n, 3), key=key) * 2.0 + x)
    g.output("turned", x + g.permute(g.random(distribution, (3, n), key=key), (1, 0)))
    return g


def ones(rows: int) -> dict[str, Any]:
    return {"x": np.ones((rows, 3), np.float32)}


def assert_equal(got: dict[str, Any], want: dict[str, Any]) -> None:
    """Compare bits; but of float64, whose logarithm and cosine libraries round differently."""
    assert got.keys() == want.keys()
    for name, x in want.items():
        if name == "float64":
            np.testing.assert_allclose(got[name], x, rtol=1e-14, atol=1e-15)
        else:
            np.testing.assert_array_equal(got[name], x, err_msg=name)


@pytest.mark.parametrize("distribution", ["uniform", "normal"])
def test_numbers_are_those_of_the_reference(distribution: Distribution) -> None:
    assert KERNELS is not None
    g = draws(distribution)
    runs = [CpuExecutor(g, KERNELS, threads) for threads in (1, 2)]
    assert runs[0].skeleton().host_steps == []
    for rows in (0, 1, 2, 3, 7001):
        for seed in (0, 2**40 + 1, -3):
            want = cpu_eval_graph(g, ones(rows), seed=seed)
            for run in runs:
                assert_equal(run.eval(ones(rows), seed=seed), want)


def test_a_key_of_64_bits_takes_the_place_of_the_seed() -> None:
    assert KERNELS is not None
    g = draws("uniform", key=2**63 + 5)
    run = CpuExecutor(g, KERNELS, 2)
    assert_equal(run.eval(ones(4), seed=3), cpu_eval_graph(g, ones(4)))


def test_runs_of_a_bound_call_go_on_drawing() -> None:
    assert KERNELS is not None
    g, streams = draws("normal"), RandomStreams(4)
    call = CpuExecutor(g, KERNELS, 2).bind(ones(5), seed=4)
    for _ in range(3):
        assert_equal(dict(call.outputs), eval_drawing(g, ones(5), None, streams))
        call.run()
