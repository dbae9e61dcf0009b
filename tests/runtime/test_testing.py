"""`assert_devices_agree`: what users call in their own tests."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest

from kn_graph import Graph, cpu_eval_graph
from kn_runtime import PreparedGraph, testing
from kn_runtime.testing import assert_devices_agree

HERE = ("reference", "cpu")
X = np.random.default_rng(0).standard_normal((3, 8)).astype(np.float32)


def softened() -> Graph:
    g = Graph("softened")
    g.output("y", g.softmax(g.input("x", "float32", ("n", 8)) * 2.0, 1))
    return g


@pytest.fixture
def wrong_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(self: PreparedGraph, inputs: Any, dims: Any = None, *, seed: int = 0) -> dict[str, Any]:
        out = cpu_eval_graph(self.graph, inputs, dims, seed=seed)
        return {n: v + (self.device.kind == "cpu") * np.float32(1e-3) for n, v in out.items()}

    monkeypatch.setattr(PreparedGraph, "eval", run)


def test_four_ways() -> None:
    reports = assert_devices_agree(softened(), {"x": X}, HERE)
    assert list(reports) == ["reference", "reference optimized", "cpu", "cpu optimized"]
    assert all(r.ok for r in reports.values())


def test_inputs_by_position_and_sizes() -> None:
    g = softened()
    g.output("z", g.iota(g.symbol("m")))
    assert_devices_agree(g, [X], HERE, dims={"m": 4})


def test_all_differences_are_named(wrong_cpu: None) -> None:
    with pytest.raises(AssertionError, match=r"'softened' does not agree") as caught:
        assert_devices_agree(softened(), {"x": X}, HERE)
    text = str(caught.value)
    assert "\ncpu:\ny float32[3, 8]: differs" in text
    assert "\ncpu optimized:\n" in text
    assert "\nreference" not in text


def test_the_optimizer_is_checked_on_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    def worse(graph: Graph) -> Graph:
        g = Graph("worse")
        g.output("y", g.softmax(g.input("x", "float32", ("n", 8)) * 2.001, 1))
        return g

    monkeypatch.setattr("kn_graph.optimizer.optimize_graph", worse)
    with pytest.raises(AssertionError, match="\nreference optimized:\n"):
        assert_devices_agree(softened(), {"x": X}, ("reference",))


ABSENT = ("reference", "cpu", "cuda:99")


def test_an_absent_device_skips_after_all_others_agree() -> None:
    with pytest.raises(pytest.skip.Exception) as caught:
        assert_devices_agree(softened(), {"x": X}, ABSENT, optimize=(True,))
    text = str(caught.value)
    assert text.startswith("cuda:99 was not compared: ")
    assert text.endswith("Compared: reference optimized, cpu optimized.")


def test_an_absent_device_does_not_hide_a_difference(wrong_cpu: None) -> None:
    with pytest.raises(AssertionError, match="does not agree"):
        assert_devices_agree(softened(), {"x": X}, ABSENT)


@pytest.mark.parametrize("required", ["cuda", "cpu, cuda", "cuda:99"])
def test_a_required_device_has_to_be_there(required: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(testing.REQUIRED, required)
    with pytest.raises(AssertionError, match="cuda:99 is required by KN_REQUIRE_DEVICE: device"):
        assert_devices_agree(softened(), {"x": X}, ABSENT)


def test_outside_of_pytest_a_skip_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("PYTEST_CURRENT_TEST")
    with caplog.at_level(logging.WARNING):
        reports = assert_devices_agree(softened(), {"x": X}, ABSENT)
    assert len(reports) == 4
    assert "cuda:99 was not compared" in caplog.text
