"""Planned graphs on native kernels give what the reference gives."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from kn_cpu.executor import CpuExecutor
from kn_cpu.native import library
from kn_graph import (
    DType,
    Graph,
    TensorType,
    cpu_eval_graph,
    load_graph_from_onnx_bytes,
    optimize_graph,
)
from kn_graph.errors import ExecutionError, OutOfMemoryError
from models.generate import inputs, model_bytes
from tests.ops.example import Example
from tests.ops.test_examples import EXAMPLES, name_of
from tests.plan.test_plan import MODELS, assert_agree

KERNELS = library()
pytestmark = pytest.mark.skipif(KERNELS is None, reason="there are no native kernels")


def executor(graph: Graph, threads: int = 2) -> CpuExecutor:
    assert KERNELS is not None
    return CpuExecutor(graph, KERNELS, threads)


@pytest.mark.parametrize("example", EXAMPLES, ids=name_of)
def test_every_operation_at_all_sizes(example: Example) -> None:
    graph = example.graph()
    run = executor(graph)
    for sizes in example.sizes:
        feeds = example.feeds(sizes)
        assert_agree(cpu_eval_graph(graph, feeds), run.eval(feeds))


@pytest.mark.parametrize("optimize", [False, True], ids=["raw", "optimized"])
@pytest.mark.parametrize("name", MODELS)
def test_generated_models(name: str, optimize: bool) -> None:
    graph = load_graph_from_onnx_bytes(model_bytes(name))
    graph = optimize_graph(graph) if optimize else graph
    feeds = inputs(name)
    assert_agree(cpu_eval_graph(graph, feeds), executor(graph).eval(feeds))


def bad_index(g: Graph) -> dict[str, Any]:
    g.output("y", g.gather(g.input("x", "float32", ["n"]), g.input("i", "int64", [2])))
    return {"x": np.zeros(3, np.float32), "i": np.array([0, 7])}


def bad_length(g: Graph) -> dict[str, Any]:
    x, lengths = g.input("x", "float32", ["n", 1, 2]), g.input("lengths", "int32", [1])
    w, r = (g.constant(np.ones((1, 3, k), np.float32)) for k in (2, 3))
    g.output("y", g.recurrent("rnn", x, w, r, lengths=lengths)[0])
    return {"x": np.zeros((4, 1, 2), np.float32), "lengths": np.array([9], np.int32)}


def bad_reduction(g: Graph) -> dict[str, Any]:
    x, shape = g.input("x", "float32", ["n"]), g.input("shape", "int64", [1])
    g.output("y", g.reduce_to("sum", x, g.read_sizes(shape)))
    return {"x": np.zeros(4, np.float32), "shape": np.array([3])}


@pytest.mark.parametrize("build", [bad_index, bad_length, bad_reduction])
def test_what_kernels_find_wrong_reads_as_the_reference_has_it(
    build: Callable[[Graph], dict[str, Any]],
) -> None:
    graph = Graph()
    feeds = build(graph)
    with pytest.raises(ExecutionError) as expected:
        cpu_eval_graph(graph, feeds)
    run = executor(graph)
    assert all(s.reads_sizes for s in run.skeleton().host_steps)
    with pytest.raises(ExecutionError) as found:
        run.eval(feeds)
    assert str(found.value) == str(expected.value)


@pytest.mark.parametrize("name", ["residual_cnn", "transformer_layer", "unet_block"])
def test_results_do_not_depend_on_the_number_of_threads(name: str) -> None:
    graph = optimize_graph(load_graph_from_onnx_bytes(model_bytes(name)))
    feeds = inputs(name)
    one, two = (executor(graph, n).eval(feeds) for n in (1, 2))
    for key, x in one.items():
        np.testing.assert_array_equal(x, two[key])


def test_threads_may_call_at_once() -> None:
    graph = optimize_graph(load_graph_from_onnx_bytes(model_bytes("transformer_layer")))
    run = executor(graph)
    many = [inputs("transformer_layer", seed) for seed in range(8)]
    want = [run.eval(feeds) for feeds in many]
    with ThreadPoolExecutor(4) as pool:
        got = list(pool.map(run.eval, many * 4))
    for i, outputs in enumerate(got):
        for key, x in want[i % 8].items():
            np.testing.assert_array_equal(outputs[key], x)


def test_convolutions_and_products_have_kernels() -> None:
    for name in ("residual_cnn", "transformer_layer"):
        graph = optimize_graph(load_graph_from_onnx_bytes(model_bytes(name)))
        kinds = {h.step.kind for h in executor(graph).skeleton().host_steps}
        assert not kinds & {"Conv", "MatMul", "Attention", "Norm", "Softmax", "Pool", "scalar"}


def test_what_runs_on_the_host_says_why() -> None:
    g = Graph("determinant")
    g.output("y", g.det(g.input("x", "float32", [5, 5])))
    (host,) = executor(g).skeleton().host_steps
    assert host.step.kind == "Det"
    assert "no kernel" in host.reason


def test_outputs_belong_to_the_caller() -> None:
    g = Graph("two")
    x = g.input("x", "float32", [3])
    y = g.unary("neg", x)
    for name, v in (("y", y), ("again", y), ("x_too", x), ("z", g.unary("abs", y))):
        g.output(name, v)
    feeds = {"x": np.arange(3, dtype=np.float32)}
    outputs = executor(g).eval(feeds)
    for name in outputs:
        others = {k: v.copy() for k, v in outputs.items() if k != name}
        outputs[name][...] = 99
        for k, v in others.items():
            np.testing.assert_array_equal(outputs[k], v, err_msg=f"{name} shares memory with {k}")
    np.testing.assert_array_equal(feeds["x"], [0, 1, 2])


def test_what_does_not_fit_into_memory_is_refused_before_it_runs() -> None:
    g = Graph("large")
    n = g.symbol("n")
    x = g.broadcast(g.scalar(1, DType.FLOAT32), (n, 1 << 20))
    g.output("y", g.unary("exp", x))
    with pytest.raises(OutOfMemoryError, match="are available"):
        executor(g).eval({}, {"n": 1 << 30})


def test_sizes_go_up_and_down() -> None:
    g = Graph("sizes")
    x = g.input("x", "float32", ["n", "m"])
    g.output("y", g.softmax(g.unary("exp", x), 1))
    run = executor(g)
    rng = np.random.default_rng(0)
    for n, m in [(1, 1), (70, 33), (3, 5), (70, 33), (2, 900), (1, 1)]:
        feeds: dict[str, Any] = {"x": rng.standard_normal((n, m)).astype(np.float32)}
        assert_agree(cpu_eval_graph(g, feeds), run.eval(feeds))


def test_sizes_that_nodes_find_go_up_and_down() -> None:
    g = Graph("found")
    x = g.input("x", "float32", ["n"])
    places = g.nonzero(x)  # a host step, whose result is as large as it finds
    g.output("places", places)
    taken = g.gather(x, g.view(places, (places.shape[1],)), 0)
    g.output("y", g.concat([g.unary("exp", taken), x], 0))
    g.output("again", g.gather(x, g.view(g.nonzero(taken), (g.nonzero(taken).shape[1],)), 0))
    run = executor(g)
    for zeros in (0, 3, 7, 3, 0, 7):
        feeds = {"x": np.arange(7, dtype=np.float32) + 1}
        feeds["x"][:zeros] = 0
        assert_agree(cpu_eval_graph(g, feeds), run.eval(feeds))


@pytest.mark.parametrize("other", ["m", 5], ids=["symbol", "number"])
@pytest.mark.parametrize("sizes", [(3, 5), (2, 5), (5, 5), (1, 5)])
def test_sizes_that_cannot_be_repeated_are_refused(other: Any, sizes: tuple[int, int]) -> None:
    """A layout of other sizes would read behind the end of an input."""
    g = Graph("repeats")
    x, y = g.input("x", "float32", ["n"]), g.input("y", "float32", [other])
    g.output("z", g.add(x, y))
    run = executor(g)
    feeds = {k: np.ones(n, np.float32) for k, n in zip("xy", sizes, strict=True)}
    for _ in range(2):  # the second call may take another way
        if sizes[0] in (1, sizes[1]):
            np.testing.assert_array_equal(run.eval(feeds)["z"], np.full(5, 2))
        else:
            text = rf"Broadcast.*cannot broadcast \[{sizes[0]}\] to \[5\]"
            with pytest.raises(ExecutionError, match=text):
                run.eval(feeds)
            with pytest.raises(ExecutionError, match=text):
                run.bind(feeds)


def test_sizes_that_a_node_finds_are_looked_at_before_they_are_repeated() -> None:
    g = Graph("found")
    x, y = g.input("x", "float32", ["n"]), g.input("y", "float32", [4])
    found = g.view(g.cast(g.nonzero(x), DType.FLOAT32), (g.nonzero(x).shape[1],))
    g.output("z", g.add(found, y))
    run = executor(g)
    feeds = {"x": np.ones(4, np.float32), "y": np.ones(4, np.float32)}
    np.testing.assert_array_equal(run.eval(feeds)["z"], [1, 2, 3, 4])
    feeds["x"][:2] = 0
    with pytest.raises(ExecutionError, match=r"cannot broadcast \[2\] to \[4\]"):
        run.eval(feeds)


def test_bodies_follow_sizes_that_only_the_graph_around_shows() -> None:
    g = Graph("around")
    c, x = g.input("c", "bool", []), g.input("x", "float32", ["n"])
    (n,) = x.shape

    def drawn(low: float) -> Graph:
        made = Graph("body", parent=g)
        first = made.input_of_type("first", TensorType(DType.FLOAT32, ()))
        noise = made.random("uniform", (n,), DType.FLOAT32, key=1)
        made.output("out", noise + first + low)
        return made.seal()

    (y,) = g.if_else(c, drawn(0.0), drawn(10.0), [g.reduce("sum", x, [0])])
    g.output("y", y)
    run = executor(g)
    for size in (3, 5, 3, 2):
        for flag in (True, False):
            feeds: dict[str, Any] = {"c": np.array(flag), "x": np.ones(size, np.float32)}
            assert_agree(cpu_eval_graph(g, feeds), run.eval(feeds))


def test_an_executor_that_nobody_holds_frees_its_weights_at_once() -> None:
    graph = optimize_graph(load_graph_from_onnx_bytes(model_bytes("if_loop")))
    run = executor(graph)
    run.eval(inputs("if_loop"))
    kept = weakref.ref(run.skeleton())
    gc.disable()
    try:
        del run
        assert kept() is None, "a full collection would have to find it"
    finally:
        gc.enable()
