"""Memory is estimated before it is taken."""

from __future__ import annotations

import numpy as np
import pytest

from kn_graph import DType, Graph, cpu_eval_graph
from kn_graph import reference as reference_module
from kn_graph.errors import ExecutionError, OutOfMemoryError
from kn_graph.memory import available_bytes

X = np.ones(1000, np.float32)  # 4,000 bytes


@pytest.fixture
def limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference_module, "available_bytes", lambda: 10_000)


def chain(length: int, *, keep: bool = False) -> Graph:
    """Return a graph of additions of 4,000 bytes each, of which at most two live at a time."""
    graph = Graph()
    x = graph.input("x", "float32", ["n"])
    steps = [x]
    for _ in range(length):
        steps.append(steps[-1] + x)
    graph.output("y", graph.concat(steps[1:], 0) if keep else steps[-1])
    return graph


def test_what_is_available_is_plausible() -> None:
    assert 2**20 < available_bytes() < 2**50


def test_what_is_freed_in_time_counts_no_more(limit: None) -> None:
    np.testing.assert_array_equal(cpu_eval_graph(chain(50), {"x": X})["y"], 51 * X)


def test_what_lives_at_the_same_time_adds_up(limit: None) -> None:
    with pytest.raises(OutOfMemoryError, match=r"at node .*, 12,000 bytes would be in use; 10,000"):
        cpu_eval_graph(chain(3, keep=True), {"x": X})
    assert cpu_eval_graph(chain(3, keep=True), {"x": X[:100]})["y"].shape == (300,)


def test_views_cost_nothing(limit: None) -> None:
    graph = Graph()
    x = graph.input("x", "float32", ["n"])
    for i in range(9):
        graph.output(f"y{i}", graph.flip(graph.view(x, (1, *x.shape)), 1)[0])
    assert cpu_eval_graph(graph, {"x": X})["y8"].shape == (1000,)


def test_nothing_runs_before_the_check(limit: None) -> None:
    graph = Graph()
    x, index = graph.input("x", "float32", ["n"]), graph.input("i", "int64", [1])
    graph.output("y", graph.gather(x, index))
    bad = {"x": X, "i": np.array([10**6])}
    with pytest.raises(ExecutionError, match="out of range"):
        cpu_eval_graph(graph, bad)
    graph.output("z", graph.broadcast(x[:1], (10**9,)))
    with pytest.raises(OutOfMemoryError):
        cpu_eval_graph(graph, bad)


def test_sizes_known_at_run_time_are_checked_then(limit: None) -> None:
    graph = Graph()
    sizes = graph.read_sizes(graph.input("s", "int64", [2]))
    graph.output("y", graph.broadcast(graph.scalar(1, DType.FLOAT32), sizes))
    assert cpu_eval_graph(graph, {"s": np.array([2, 3])})["y"].shape == (2, 3)
    with pytest.raises(OutOfMemoryError, match="400,000,000 bytes; 10,000 are available"):
        cpu_eval_graph(graph, {"s": np.array([10**4, 10**4])})
    with pytest.raises(ExecutionError, match="expected at least 0"):
        cpu_eval_graph(graph, {"s": np.array([-1, 3])})


def test_requirements_about_run_time_sizes_are_checked_when_they_are_known() -> None:
    graph = Graph()
    (n,) = graph.read_sizes(graph.input("s", "int64", [1]))
    graph.output("y", graph.view(graph.input("x", "float32", [6]), (n, 2)))
    x = np.arange(6, dtype=np.float32)
    assert cpu_eval_graph(graph, {"s": np.array([3]), "x": x})["y"].shape == (3, 2)
    with pytest.raises(ExecutionError, match=r"does not allow these sizes .*view"):
        cpu_eval_graph(graph, {"s": np.array([4]), "x": x})
