"""Long chains and wide diamonds: no recursion, and no time that grows faster than the graph."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any

import numpy as np
import pytest

from kn_graph import Graph, Value, cpu_eval_graph, optimize_graph
from kn_graph.liveness import live_nodes
from kn_graph.transform import copy_graph

F32 = np.float32
LONG = 50_000
DOUBLINGS = 60
LIMIT = 10.0
"""Seconds for anything, on a busy machine."""


@contextmanager
def little_stack() -> Iterator[None]:
    """Within the context, a recursion as deep as a graph fails at once."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(500)
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


def chain(length: int) -> Graph:
    """x + 1 - x + 1 - x ..."""
    g = Graph("chain")
    x = g.input("x", "float32", ["n", 2])
    one = g.scalar(1.0, x.dtype)
    ones = g.broadcast(one, x.shape)
    y = x
    for i in range(length):
        with g.origin(f"step{i}"):
            y = g.add(y, ones) if i % 2 else g.sub(y, x)
    g.output("y", y)
    return g


def views(length: int) -> Graph:
    """Nothing but layout."""
    g = Graph("views")
    y = g.input("x", "float32", ["n", 2])
    n = y.shape[0]
    steps: list[Callable[[Value], Value]] = [
        g.transpose,
        lambda v: g.flip(v, 0),
        lambda v: g.view(v, (1, 2, n) if v.rank == 2 else (2, n)),
        lambda v: g.flip(v, 1),
        lambda v: g.view(v, (2, n)),
        g.transpose,
    ]
    for i in range(length):
        y = steps[i % len(steps)](y)
    g.output("y", y)
    return g


def diamonds(count: int) -> Graph:
    """x + x, 60 times: 2**60 paths from the end to the start."""
    g = Graph("diamonds")
    y = g.input("x", "float32", ["n"])
    for _ in range(count):
        y = g.add(g.mul(y, g.broadcast(g.scalar(0.5, y.dtype), y.shape)), y - y * 0.5)
    g.output("y", y)
    return g


def doubled_shapes(count: int) -> Graph:
    """Sizes that double: n, 2n, 4n ... and come back by a slice."""
    g = Graph("shapes")
    x = g.input("x", "float32", ["n"])
    n = x.shape[0]
    size: Any = n
    for _ in range(count):
        size = size + size
    sizes = g.size_tensor(np.array([size, n], object))
    for _ in range(count):
        sizes = g.add(sizes, sizes)
    g.output("sizes", sizes)
    g.output("x", x)
    return g


def nested_extremes(count: int) -> Graph:
    """Sizes that are maxima and halves of each other, nested."""
    g = Graph("extremes")
    x = g.input("x", "float32", ["n", "m"])
    shape = np.empty(2, object)
    shape[:] = x.shape
    sizes = g.size_tensor(shape)
    two, one = (g.constant(np.array([k, k])) for k in (2, 1))
    for _ in range(count):
        sizes = g.maximum(g.add(g.div(sizes, two), g.flip(sizes, 0)), one)
        sizes = g.sub(sizes, g.div(sizes, two))
    g.output("sizes", sizes)
    return g


def seconds(f: Callable[[], Any]) -> tuple[Any, float]:
    start = perf_counter()
    result = f()
    return result, perf_counter() - start


@pytest.mark.parametrize("build", [chain, views], ids=["chain", "views"])
def test_long_graphs_are_built_verified_printed_copied_and_run(
    build: Callable[[int], Graph],
) -> None:
    with little_stack():
        times = work_with(build)  # which also frees the graphs, another place to recurse
    assert max(times.values()) < LIMIT, times


def work_with(build: Callable[[int], Graph]) -> dict[str, float]:
    """Do everything there is to do with a long graph, and return the times."""
    g, built = seconds(lambda: build(LONG))
    assert len(g.nodes) >= LONG
    x = np.arange(6, dtype=F32).reshape(3, 2)
    steps: dict[str, Callable[[], Any]] = {
        "verify": g.verify,
        "print": lambda: str(g),
        "live": lambda: live_nodes(g, g.outputs.values()),
        "copy": lambda: copy_graph(g, {}),
        "specialize": lambda: g.specialize({"n": 3}),
        "extract": lambda: g.extract(["x"], ["y"]),
        "inline": lambda: inlined(g),
        "find": lambda: g.find(f"%{LONG - 1}"),
        "run": lambda: cpu_eval_graph(g, {"x": x}),
    }
    results: dict[str, Any] = {}
    times = {"build": built}
    for name, step in steps.items():
        results[name], times[name] = seconds(step)
    want = results["run"]["y"]
    for name in ("copy", "specialize", "extract", "inline"):
        np.testing.assert_array_equal(cpu_eval_graph(results[name], {"x": x})["y"], want)
    assert results["print"].count("\n") >= LONG
    return times


@pytest.mark.slow
@pytest.mark.parametrize("build", [chain, views], ids=["chain", "views"])
def test_long_graphs_are_optimized(build: Callable[[int], Graph]) -> None:
    with little_stack():
        g = build(LONG)
        optimized, taken = seconds(lambda: optimize_graph(g))
        feeds = {"x": np.arange(6, dtype=F32).reshape(3, 2)}
        got, want = (cpu_eval_graph(each, feeds)["y"] for each in (optimized, g))
    np.testing.assert_array_equal(got, want)
    assert taken < LIMIT


def inlined(g: Graph) -> Graph:
    outer = Graph()
    outer.output("y", outer.inline(g, {"x": outer.input("x", "float32", ["k", 2])})["y"])
    return outer


@pytest.mark.parametrize(
    "build", [diamonds, doubled_shapes, nested_extremes], ids=lambda f: f.__name__
)
def test_doubling_graphs_take_no_doubling_time(build: Callable[[int], Graph]) -> None:
    def everything() -> None:
        g = build(DOUBLINGS)
        g.verify()
        assert len(str(g)) < 300_000
        x = np.ones((5, 3) if g.inputs[0].rank == 2 else 5, F32)
        want = cpu_eval_graph(g, {"x": x})
        dims = dict(zip(g.symbols, x.shape, strict=True))
        for other in (copy_graph(g, {}), g.specialize(dims), optimize_graph(g)):
            for name, value in cpu_eval_graph(other, {"x": x}).items():
                np.testing.assert_allclose(value, want[name])

    with little_stack():
        _, taken = seconds(everything)
    assert taken < LIMIT


def test_time_grows_as_the_graph_does() -> None:
    def cost(length: int) -> float:
        def once() -> None:
            g = chain(length)
            g.verify()
            str(g)
            cpu_eval_graph(copy_graph(g, {}), {"x": np.ones((3, 2), F32)})

        return min(seconds(once)[1] for _ in range(3))

    assert cost(8000) < 8 * cost(2000)  # 4 times, if linear


def test_wide_graphs() -> None:
    """One value read by many, one operation with many operands."""
    with little_stack():
        g = Graph()
        x = g.input("x", "float32", ["n"])
        parts = [x * float(i) for i in range(5000)]
        g.output("y", g.concat(parts, 0))

        def everything() -> Any:
            g.verify()
            return cpu_eval_graph(optimize_graph(g), {"x": np.ones(2, F32)})["y"]

        y, taken = seconds(everything)
        assert y.shape == (10_000,)
        assert taken < LIMIT


def test_a_long_graph_runs_in_a_thread_with_a_small_stack() -> None:
    g = chain(LONG // 5)
    failed: list[BaseException] = []

    def work() -> None:
        try:
            cpu_eval_graph(copy_graph(g, {}), {"x": np.ones((3, 2), F32)})
        except BaseException as error:
            failed.append(error)

    before = threading.stack_size(256 * 1024)
    try:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    finally:
        threading.stack_size(before)
    assert not failed
