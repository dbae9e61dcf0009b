"""Constants of planned graphs: what is kept, and how often."""

import numpy as np
import pytest

from kn_cpu.executor import CpuExecutor
from kn_cpu.native import library
from kn_graph.graph import Graph
from kn_graph.reference import cpu_eval_graph

kernels = library()
pytestmark = pytest.mark.skipif(kernels is None, reason="no native kernels")

WEIGHTS = np.random.default_rng(0).standard_normal((64, 48)).astype(np.float32)


def odd(x: np.ndarray) -> np.ndarray:
    """Return a copy at an odd address, as in a file."""
    memory = np.zeros(x.nbytes + 1, np.uint8)
    placed = memory[1:].view(x.dtype).reshape(x.shape)
    placed[...] = x
    assert not placed.flags.aligned
    return placed


@pytest.mark.parametrize("place", [np.array, odd])
def test_weights_that_are_packed_are_not_kept_as_they_were(place):
    graph = Graph()
    x = graph.input("x", "float32", [5, 64])
    graph.output("y", graph.matmul(x, graph.constant(place(WEIGHTS))))
    executor = CpuExecutor(graph, kernels)
    assert executor.skeleton().packed
    assert not executor.skeleton().constants
    feeds = {"x": WEIGHTS.T[:5] @ (WEIGHTS @ WEIGHTS.T)}
    np.testing.assert_allclose(
        executor.eval(feeds)["y"], cpu_eval_graph(graph, feeds)["y"], rtol=1e-4, atol=1e-2
    )


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(("depth", "cols"), [(1, 1), (3, 7), (16, 33), (64, 48), (67, 95)])
def test_weights_are_packed_from_where_they_lie(depth, cols, turned):
    rng = np.random.default_rng(depth)
    weights = rng.standard_normal((cols, depth) if turned else (depth, cols)).astype(np.float32)
    x = rng.standard_normal((5, depth)).astype(np.float32)
    results = []
    for place in (np.array, odd):
        graph = Graph()
        w = graph.constant(place(weights))
        right = graph.transpose(w) if turned else w
        graph.output("y", graph.matmul(graph.input("x", "float32", [5, depth]), right))
        results.append(CpuExecutor(graph, kernels).eval({"x": x})["y"])
    np.testing.assert_array_equal(results[0], results[1])
    right = weights.T if turned else weights
    np.testing.assert_allclose(results[0], x @ right, rtol=1e-5, atol=1e-5)


def test_constants_that_steps_and_outputs_read_are_kept():
    graph = Graph()
    x = graph.input("x", "float32", [64, 48])
    graph.output("y", graph.relu(x) + graph.constant(WEIGHTS))
    graph.output("w", graph.constant(odd(WEIGHTS)))
    outputs = CpuExecutor(graph, kernels).eval({"x": -WEIGHTS})
    np.testing.assert_array_equal(outputs["w"], WEIGHTS)
    np.testing.assert_array_equal(outputs["y"], np.maximum(-WEIGHTS, 0) + WEIGHTS)
