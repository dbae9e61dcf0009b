"""Blocks that go on to further rows: what they share is not written while others still read it."""

from __future__ import annotations

from typing import Any

import pytest

from kn_cuda import copy, gemm_kernel, reduction, rows, scalar
from kn_cuda.steps import layout as layout_steps
from kn_cuda.steps import pool as pool_steps
from kn_cuda.steps import reduce as reduce_steps
from kn_cuda.steps import sort as sort_steps
from kn_graph import Graph
from kn_graph.dim import Size, size_min
from kn_graph.ops.cumulative import Cumulative
from kn_graph.ops.layout import Pad
from kn_graph.ops.norm import Norm
from kn_graph.ops.pool import Pool
from kn_graph.ops.reduce import ArgReduce
from kn_graph.ops.sort import TopK
from tests.cuda.run import check, needs_compiler

pytestmark = needs_compiler


def test_one_block_computes_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (reduction, rows, reduce_steps, sort_steps):
        monkeypatch.setattr(module, "blocks_for", one_block)

    def build(g: Graph) -> Any:
        x, y = g.input("x", "float32", ("n", 1100)), g.input("y", "float32", (100, "n"))
        made = [g.softmax(x, 1), g.push(Norm((1,), 1e-5), x), g.push(Cumulative("sum", 1), x)]
        made += [g.reduce("sum", x, (1,)), g.reduce("sum", y, (0,)), g.push(ArgReduce(1, True), x)]
        return [*made, *g.push_all(TopK(1, 5), x)]

    run = check(build, {"n": 70}, {"n": 0})
    assert run.proof.total == 7


def test_one_block_moves_all_elements(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (layout_steps, scalar, copy):
        monkeypatch.setattr(module, "blocks_for", one_block)

    def build(g: Graph) -> Any:
        x, y = g.input("x", "float32", ("n", 30)), g.input("y", "float32", ("n", 30))
        padded = g.push(Pad(((1, 2), (0, 5)), "wrap"), x)
        return padded, g.concat([x, y], 1), g.permute(x, (1, 0)) * 1, g.permute(y, (1, 0))

    check(build, {"n": 70}, {"n": 1})


def test_one_block_takes_the_windows_of_three_axes(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (pool_steps, gemm_kernel):
        monkeypatch.setattr(module, "blocks_for", one_block)

    def build(g: Graph) -> Any:
        x, y = g.input("x", "float32", ("n", 6, 5, 7, 7)), g.input("y", "float32", ("n", 60))
        op = Pool("max", (2, 2, 2), (1, 1, 1), (1, 1, 1), ((0, 0),) * 3)
        z, t = g.input("z", "float32", (60, 130)), g.input("t", "float32", (70, 60))
        return g.push(op, x), g.relu(y @ z), g.relu(y @ g.permute(t, (1, 0))), g.relu(t @ z)

    check(build, {"n": 3}, {"n": 0})


def one_block(count: Size, threads: int, most: int = 1) -> Size:
    return size_min(count, 1)
