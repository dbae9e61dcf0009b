"""Kernels that are chosen by timing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kn_cpu import tune
from kn_cpu.executor import CpuExecutor
from kn_graph import Graph, cpu_eval_graph
from tests.cpu.steps import KERNELS

pytestmark = pytest.mark.skipif(KERNELS is None, reason="there are no native kernels")


def convolutions() -> Graph:
    """Two convolutions of the same weights, that Winograd's kernel can do."""
    rng = np.random.default_rng(0)
    g = Graph("convolutions")
    x = g.input("x", "float32", [1, 32, 20, 20])
    w = g.constant(rng.standard_normal((32, 32, 3, 3)).astype(np.float32))
    y = g.conv(g.conv(x, w, pads=((1, 1), (1, 1))), w)
    g.output("y", g.reduce("mean", y, (2, 3)))
    return g


def families(run: CpuExecutor) -> set[str]:
    stages: Any = run.skeleton().stages
    return {c.family for s in stages for segment in s.segments for c in segment.calls}


@pytest.mark.parametrize("fastest", [0, 1])
def test_the_fastest_runs_and_the_other_is_forgotten(
    fastest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tune, "quickest", lambda times: fastest)
    assert KERNELS is not None
    graph = convolutions()
    run = CpuExecutor(graph, KERNELS, 2, tune=True)
    assert ("winograd" in families(run)) == (fastest == 1)
    held = [a for a in run.skeleton().packed if a.size]
    assert len(held) == 1
    feeds = {"x": np.random.default_rng(1).standard_normal((1, 32, 20, 20)).astype(np.float32)}
    want, got = cpu_eval_graph(graph, feeds)["y"], run.eval(feeds)["y"]
    np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-3 * np.abs(want).max())


def test_both_are_timed() -> None:
    assert KERNELS is not None
    run = CpuExecutor(convolutions(), KERNELS, 1, tune=True)
    assert families(run) & {"conv", "winograd"}


def test_strict_leaves_nothing_to_choose(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tune, "quickest", lambda times: 1)
    assert KERNELS is not None
    run = CpuExecutor(convolutions(), KERNELS, 1, tune=True, strict=True)
    assert "winograd" not in families(run)
