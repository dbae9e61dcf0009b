"""Blocks that go on to further rows: what they share is not written while others still read it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kn_cuda import (
    conv_kernel,
    conv_library,
    copy,
    gemm_kernel,
    recurrent_kernel,
    reduction,
    rows,
    scalar,
)
from kn_cuda.steps import attention as attention_steps
from kn_cuda.steps import index as index_steps
from kn_cuda.steps import layout as layout_steps
from kn_cuda.steps import nms as nms_steps
from kn_cuda.steps import pool as pool_steps
from kn_cuda.steps import recurrent as recurrent_steps
from kn_cuda.steps import reduce as reduce_steps
from kn_cuda.steps import resize as resize_steps
from kn_cuda.steps import roi as roi_steps
from kn_cuda.steps import sample as sample_steps
from kn_cuda.steps import sort as sort_steps
from kn_cuda.steps import source as source_steps
from kn_graph import DType, Graph
from kn_graph.dim import Size, size_min
from kn_graph.ops.attention import Attention
from kn_graph.ops.conv import Conv
from kn_graph.ops.cumulative import Cumulative
from kn_graph.ops.gather import Gather
from kn_graph.ops.layout import Pad
from kn_graph.ops.nms import KeptBoxes
from kn_graph.ops.norm import Norm
from kn_graph.ops.pool import Pool
from kn_graph.ops.reduce import ArgReduce
from kn_graph.ops.resize import Resize
from kn_graph.ops.sample import GridSample
from kn_graph.ops.scatter import ScatterElements
from kn_graph.ops.sort import TopK
from tests.cpu.test_recurrent import layer, operands
from tests.cuda.run import check, check_graph, launched, needs_compiler
from tests.ops.regions import RegionCase

pytestmark = needs_compiler


def test_one_block_computes_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (reduction, rows, reduce_steps, sort_steps):
        monkeypatch.setattr(module, "blocks_for", one_block)

    def build(g: Graph) -> Any:
        x, y = g.input("x", "float32", ("n", 1100)), g.input("y", "float32", (100, "n"))
        made = [g.softmax(x, 1), g.push(Norm((1,), 1e-5), x), g.push(Cumulative("sum", 1), x)]
        made += [g.reduce("sum", g.input("z", "float32", (9, "n", 3)), (2,))]
        made += [g.reduce("sum", x, (1,)), g.reduce("sum", y, (0,)), g.push(ArgReduce(1, True), x)]
        return [*made, *g.push_all(TopK(1, 5), x)]

    run = check(build, {"n": 70}, {"n": 0})
    assert run.proof.total == 8
    assert launched(run, "reduce_each") == 1


def test_one_block_reads_all_long_rows_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "blocks_for", one_block)

    def build(g: Graph) -> Any:
        return g.softmax(g.input("x", "float32", ("n", 9001)), 1)

    run = check(build, {"n": 5})
    assert launched(run, "softmax_online") == 1


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


def test_one_block_multiplies_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gemm_kernel, "blocks_for", one_block)

    def build(g: Graph) -> Any:
        x, y = g.input("x", "int8", ("n", 70, 65)), g.input("y", "int8", (65, 66))
        return g.matmul(x, y, out_dtype=DType.INT32)

    assert launched(check(build, {"n": 2}), "gemm_bytes") == 1


def test_one_block_reads_images_at_other_places(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (resize_steps, sample_steps):
        monkeypatch.setattr(module, "blocks_for", one_block)

    def build(g: Graph) -> Any:
        x, grid = g.input("x", "float32", ("n", 2, 6, 7)), g.input("g", "float32", ("n", 9, 11, 2))
        return g.push(Resize((2, 3), (13, 12), mode="linear"), x), g.push(
            GridSample("linear"), x, grid
        )

    check(build, {"n": 4}, {"n": 0})


def test_one_block_pools_regions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roi_steps, "blocks_for", one_block)
    case = RegionCase("float32", (4, 5), 1.0)
    check_graph(case.graph(), [case.feeds()])


@pytest.mark.parametrize("limit", [9, 1000])
def test_one_block_chooses_boxes_of_all_classes(
    monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    monkeypatch.setattr(nms_steps, "MOST_BLOCKS", 1)
    count = 700  # more than a block has threads
    rng = np.random.default_rng(0)
    low = rng.uniform(0, 10, (2, count, 2))
    feeds = {
        "corners": np.concatenate([low, low + rng.uniform(0, 2, low.shape)], 2, dtype=np.float32),
        "order": rng.permuted(np.tile(np.arange(count), (2, 3, 1)), axis=2),
        "candidates": rng.random((2, 3, count)) < 0.9,
        "limit": np.array(limit),
        "iou": np.array(0.1, np.float32),
    }
    g = Graph("boxes")
    inputs = [g.input(name, str(x.dtype), x.shape) for name, x in feeds.items()]
    g.output("kept", g.push(KeptBoxes(), *inputs))
    assert launched(check_graph(g, [feeds]), "nms_kept") == 1


def test_one_block_sorts_long_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sort_steps, "blocks_for", one_block)

    def build(g: Graph) -> Any:
        return g.push_all(TopK(1, 300), g.input("x", "float32", ("n", 2100)))

    run = check(build, {"n": 2})
    assert launched(run, "sort_take") == 1


def test_one_block_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_steps, "blocks_for", one_block)

    def build(g: Graph) -> Any:
        x = g.input("x", "float32", ("n",))
        return g.iota(x.shape[0], DType.INT64)

    run = check(build, {"n": 700}, {"n": 0})
    assert launched(run, "fill_iota") == 1


def test_one_block_gathers_and_scatters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_steps, "blocks_for", one_block)

    def build(g: Graph) -> Any:
        x, i = g.input("x", "float32", (30, 40)), g.input("i", "int64", ("n", 40))
        updates, rows = g.input("u", "float32", ("n", 40)), g.input("r", "int64", ("n",))
        scatters: tuple[Any, ...] = ("add", "none")
        made = [g.push(ScatterElements(0, how), x, i, updates) for how in scatters]
        return [*made, g.push(Gather(0), x, rows)]

    check(build, {"n": 60}, {"n": 0}, high=30)


def test_one_block_attends_to_all_heads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention_steps, "blocks_for", one_block)

    def build(g: Graph) -> Any:
        k, v = (g.input(name, "float32", ("n", 2, 70, 20)) for name in "kv")
        queries = (g.input(f"q{s}", "float32", ("n", 2, s, 20)) for s in (2, 70))
        return [g.push(Attention(right=0), q, k, v) for q in queries]

    check(build, {"n": 2}, {"n": 0})


def test_one_block_convolves_all_images(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conv_kernel, "blocks_for", one_block)
    monkeypatch.setattr(conv_library, "refusal", lambda graph, arch: "a test")

    def build(g: Graph) -> Any:
        x = g.input("x", "float32", ("n", 18, 11, 12))
        window = ((1, 1), (1, 1), ((1, 1), (1, 1)))
        weights = (g.input(f"w{c}", "float32", (36, 18 // c, 3, 3)) for c in (1, 18))
        return [g.push(Conv(*window, c), x, w) for c, w in zip((1, 18), weights, strict=True)]

    check(build, {"n": 3}, {"n": 0})


def test_one_block_steps_through_all_sequences(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recurrent_kernel, "blocks_for", one_block)
    arrays = operands("gru", ("bias",), directions=2, batch=5, hidden=40, steps=3)
    g = layer("gru", arrays, direction="bidirectional")
    for most, launches in ((recurrent_steps.MOST_WEIGHTS, 1), (-1, 6)):
        monkeypatch.setattr(recurrent_steps, "MOST_WEIGHTS", most)
        run = check_graph(g, [{v.name: arrays[v.name] for v in g.inputs}])
        ours = ("recurrent_steps", "recurrent_reset", "recurrent_cell")
        assert sum(launched(run, entry) for entry in ours) == launches


def one_block(count: Size, threads: int, most: int = 1) -> Size:
    return size_min(count, 1)
