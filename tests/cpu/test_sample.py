"""Sampling at positions that are data, on native kernels."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from kn_graph import Graph, Value, cpu_eval_graph
from kn_graph.ops.resize import ResizeMode
from kn_graph.ops.sample import GridPadding
from tests.cpu.steps import KERNELS, agree, native

pytestmark = pytest.mark.skipif(KERNELS is None, reason="there are no native kernels")

Array = np.ndarray[Any, Any]
MODES: tuple[ResizeMode, ...] = ("nearest", "linear", "cubic")
PADDINGS: tuple[GridPadding, ...] = ("zeros", "border", "reflection")
SIZES = (4, 5, 8)
SPECIAL = [np.nan, np.inf, -np.inf, 1e30, -1e30, 3e9, -0.0, 1.0, -1.0, 0.5, -0.5, 7.25]


def positions(rng: np.random.Generator, *shape: int) -> Array:
    """Return positions of which many lie exactly between two elements, and some far outside."""
    made = rng.integers(-24, 25, shape) / np.float32(8)
    chosen = rng.random(shape) < 0.3
    made = np.where(chosen, rng.uniform(-2, 2, shape), made).astype(np.float32)
    made.reshape(-1)[: len(SPECIAL)] = SPECIAL
    return made


def check(op: dict[str, Any], rank: int, n: int) -> None:
    def build(g: Graph) -> list[Value]:
        x = g.input("x", "float32", ["n", 3, *SIZES[:rank]])
        points: list[int | str] = [26, "w", 3]
        grid = g.input("grid", "float32", ["n", *points[:rank], rank])
        w = g.constant(np.random.default_rng(0).standard_normal((19, 3, *[1] * rank)) * 0.5)
        last = g.conv(x, g.cast(w, x.dtype))  # its channels lie side by side
        return [g.grid_sample(x, grid, **op), g.grid_sample(last, grid, **op)]

    run, rng = native(build), np.random.default_rng(n)
    x = rng.standard_normal((n, 3, *SIZES[:rank])).astype(np.float32)
    feeds = {"x": x, "grid": positions(rng, n, *[26, 4, 3][:rank], rank)}
    agree(cpu_eval_graph(run.graph, feeds), run.eval(feeds))


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize(("mode", "padding"), list(product(MODES, PADDINGS)))
def test_every_rule(mode: ResizeMode, padding: GridPadding, align: bool, rank: int) -> None:
    op = {"mode": mode, "padding": padding, "align_corners": align}
    for n in (1, 2):
        check(op, rank, n)


@pytest.mark.parametrize(("mode", "padding"), list(product(MODES, PADDINGS)))
def test_positions_counted_in_elements(mode: ResizeMode, padding: GridPadding) -> None:
    for rank in (1, 2, 3):
        check({"mode": mode, "padding": padding, "in_elements": True}, rank, 2)


@pytest.mark.parametrize("mode", MODES)
def test_elements_that_are_no_numbers(mode: ResizeMode) -> None:
    """They spread to the samples that are made of them; the nearest one is taken as it is."""
    run = native(
        lambda g: g.grid_sample(
            g.input("x", "float32", [1, 2, 3, 3]), g.input("g", "float32", [1, 9, 9, 2]), mode=mode
        )
    )
    x = np.arange(18, dtype=np.float32).reshape(1, 2, 3, 3)
    x[0, 0, 1, 1], x[0, 1, 0, 0] = np.nan, np.inf
    at = np.linspace(-1.25, 1.25, 9, dtype=np.float32)
    grid = np.stack(np.broadcast_arrays(at[None, :, None], at[None, None, :]), -1)
    feeds = {"x": x, "g": np.ascontiguousarray(grid)}
    agree(cpu_eval_graph(run.graph, feeds), run.eval(feeds))


def test_nothing_to_sample() -> None:
    def build(g: Graph) -> Value:
        x, grid = g.input("x", "float32", ["n", 2, 3, 3]), g.input("g", "float32", ["n", 4, 5, 2])
        return g.grid_sample(x, grid)

    run = native(build)
    feeds = {"x": np.zeros((0, 2, 3, 3), np.float32), "g": np.zeros((0, 4, 5, 2), np.float32)}
    assert run.eval(feeds)["out0"].shape == (0, 2, 4, 5)
