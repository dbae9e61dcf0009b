"""Ensembles of trees against the NumPy reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kn_cpu.executor import CpuExecutor
from kn_cpu.tree import BLOCK
from kn_graph import Graph, cpu_eval_graph
from kn_graph.ops.tree import NODE_MODES, TreeEnsemble
from tests.cpu.steps import KERNELS

pytestmark = pytest.mark.skipif(KERNELS is None, reason="there are no native kernels")

Array = np.ndarray[Any, Any]
FEATURES = 5


def forest(rng: np.random.Generator, trees: int, depth: int, targets: int) -> list[Array]:
    """Return complete trees of random tests, whose leaves have none to three votes each."""
    inner, leaves = (1 << depth) - 1, 1 << depth
    nodes, roots = [], []
    for tree in range(trees):
        first, leaf = tree * inner, tree * leaves
        roots.append(first if inner else -1 - leaf)
        for i in range(inner):
            below = [2 * i + 1, 2 * i + 2]
            children = [first + c if c < inner else -1 - (leaf + c - inner) for c in below]
            mode, nan = rng.integers(len(NODE_MODES)), rng.integers(2)
            nodes.append([rng.integers(FEATURES), mode, *children, nan])
    counts = rng.integers(0, 4, trees * leaves)
    starts = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
    votes = int(starts[-1])
    return [
        np.array(nodes, np.int64).reshape(-1, 5),
        rng.integers(-2, 3, len(nodes)).astype(np.float32),
        np.array(roots, np.int64),
        starts,
        rng.integers(0, targets, votes),
        rng.standard_normal(votes).astype(np.float32),
    ]


def rows(rng: np.random.Generator, count: int) -> Array:
    """Return rows of which many meet thresholds exactly, and some are no numbers."""
    x = rng.integers(-3, 4, (count, FEATURES)).astype(np.float32)
    x[rng.random(x.shape) < 0.1] = np.nan
    x[rng.random(x.shape) < 0.05] = np.inf
    return x


@pytest.mark.parametrize("aggregate", ["sum", "average", "min", "max"])
@pytest.mark.parametrize(
    ("trees", "depth", "targets"), [(1, 0, 1), (1, 3, 2), (9, 5, 3), (BLOCK + 3, 2, 2)]
)
def test_any_forest(trees: int, depth: int, targets: int, aggregate: Any) -> None:
    rng = np.random.default_rng(trees + depth)
    g = Graph("forest")
    x = g.input("x", "float32", ["n", FEATURES])
    op = TreeEnsemble(targets, depth, aggregate)
    tables = forest(rng, trees, depth, targets)
    g.output("y", g.push(op, x, *map(g.constant, tables)))
    turned = g.permute(g.push(op, g.flip(x, 0), *map(g.constant, tables)), (1, 0))
    g.output("turned", turned)
    assert KERNELS is not None
    one, two = (CpuExecutor(g, KERNELS, threads) for threads in (1, 2))
    assert one.skeleton().host_steps == []
    for count in (1, 2, 33):
        feeds = {"x": rows(rng, count)}
        got, want = one.eval(feeds), cpu_eval_graph(g, feeds)
        for name, y in want.items():
            np.testing.assert_allclose(got[name], y, rtol=1e-6, atol=1e-12)
            np.testing.assert_array_equal(got[name], two.eval(feeds)[name])
