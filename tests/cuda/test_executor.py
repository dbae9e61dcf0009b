"""Whole graphs through the executor: stages, control flow, host steps, and what is counted."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from dataclasses import fields
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from kn_cuda import CudaExecutor, CudaOptions, HostBackend
from kn_cuda import bound as bound_module
from kn_cuda.source import unit_text
from kn_graph import Graph, Value, cpu_eval_graph, load_graph_from_onnx_bytes, optimize_graph
from kn_graph.errors import ExecutionError, OutOfMemoryError, SymbolError, UnsupportedOnDeviceError
from kn_graph.ops.reduce import Det
from kn_plan.options import PlanOptions
from models.generate import inputs, model_bytes
from tests.cuda.run import check, check_graph, host_backend, launched, needs_compiler
from tests.ops.example import Example
from tests.ops.test_examples import EXAMPLES, name_of
from tests.plan.test_plan import MODELS, assert_agree

pytestmark = needs_compiler

HOST = CudaOptions(allow_host=True)


def normal(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def mlp(g: Graph) -> Any:
    x = g.input("x", "float32", ("n", 24))
    for given, width in pairwise((24, 48, 48, 10)):
        w = g.constant(normal(given, width) / 5)
        x = g.gelu(g.matmul(x, w) + g.constant(normal(width)))
    return x


def test_an_mlp_at_all_sizes() -> None:
    run = check(mlp, {"n": 5}, {"n": 1}, {"n": 0}, {"n": 33})
    assert run.proof.launches == {"MatMul": 3 * 3}  # with their programs; none for n = 0


def block(g: Graph) -> Any:
    """Return a block of a transformer in primitive operations."""
    x = g.input("x", "float32", ("n", 6, 32))

    def normed(x: Any) -> Any:
        mean = g.unsqueeze(g.reduce("mean", x, (2,)), (2,))
        d = x - mean
        spread = g.unsqueeze(g.reduce("mean", d * d, (2,)), (2,))
        return d * g.unary("rsqrt", spread + 1e-5)

    def linear(x: Any, width: int) -> Any:
        w = g.constant(normal(x.shape[-1], width) / 6)
        flat = g.matmul(g.view(x, (x.shape[0] * 6, x.shape[-1])), w) + g.constant(normal(width))
        return g.view(flat, (x.shape[0], 6, width))

    h = normed(x)
    heads = [g.permute(g.view(linear(h, 32), (x.shape[0], 6, 4, 8)), (0, 2, 1, 3)) for _ in "qkv"]
    q, k, v = heads
    scores = g.matmul(q, g.permute(k, (0, 1, 3, 2))) * 8**-0.5
    shifted = scores - g.unsqueeze(g.reduce("max", scores, (3,)), (3,))
    e = g.exp(shifted)
    p = e / g.unsqueeze(g.reduce("sum", e, (3,)), (3,))
    mixed = g.view(g.permute(g.matmul(p, v), (0, 2, 1, 3)), (x.shape[0], 6, 32))
    x = x + linear(mixed, 32)
    return x + linear(g.gelu(linear(normed(x), 64)), 32)


def test_a_transformer_block_at_all_sizes() -> None:
    run = check(block, {"n": 3}, {"n": 1}, {"n": 0})
    reductions = {"reduce_mean", "reduce_max", "reduce_sum"}
    assert run.proof.launches.keys() == {"MatMul", "scalar", *reductions}
    assert run.proof.host_steps == run.proof.read_backs == {}


@pytest.mark.parametrize("switch", [f.name for f in fields(PlanOptions)])
def test_results_do_not_depend_on_what_the_planner_does(switch: str) -> None:
    g = Graph("block")
    g.output("y", block(g))
    feeds = {"x": normal(2, 6, 32)}
    run = CudaExecutor(g, host_backend(), plan_options=PlanOptions(**{switch: False}))
    assert_agree(cpu_eval_graph(g, feeds), run.eval(feeds))


@pytest.mark.parametrize("example", EXAMPLES, ids=name_of)
def test_every_operation_at_all_sizes(example: Example) -> None:
    check_graph(example.graph(), [example.feeds(sizes) for sizes in example.sizes], HOST)


@pytest.mark.parametrize("optimize", [False, True], ids=["raw", "optimized"])
@pytest.mark.parametrize("name", MODELS)
def test_generated_models(name: str, optimize: bool) -> None:
    graph = load_graph_from_onnx_bytes(model_bytes(name))
    check_graph(optimize_graph(graph) if optimize else graph, [inputs(name)], HOST)


def test_the_second_run_uploads_its_inputs_only() -> None:
    g = Graph("mlp")
    g.output("y", mlp(g))
    backend = HostBackend(folder=host_backend()._cache.folder)
    run = CudaExecutor(g, backend)
    feeds = {"x": normal(7, 24)}
    run.eval(feeds)
    uploads, loaded = run.proof.uploads, set(backend._functions)
    blocks, launches = run.blocks.allocations, run.proof.total
    run.eval(feeds)
    assert run.proof.uploads - uploads == feeds["x"].nbytes
    assert set(backend._functions) == loaded
    assert run.blocks.allocations == blocks == 1
    assert run.proof.total == 2 * launches


def test_large_tensors_get_indices_of_64_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    g = Graph("wide")
    x = g.input("x", "float32", ("n", 40))
    g.output("y", g.gelu(g.permute(x, (1, 0))) + 1)
    g.output("z", g.reduce("sum", x, (1,)))
    feeds = {"x": normal(35, 40)}
    run = CudaExecutor(g, host_backend())
    want = run.eval(feeds)
    monkeypatch.setattr(bound_module, "NARROW", 35 * 40)
    again = CudaExecutor(g, host_backend())
    ready = again.ready(g, dict.fromkeys(g.input_symbols(), 35))
    kernels = [c.kernel for row in ready.first.calls for c in row if hasattr(c, "kernel")]
    assert kernels
    assert all(k.wide for k in kernels)
    for name, y in again.eval(feeds).items():
        assert y.tobytes() == want[name].tobytes()


def test_what_has_no_kernel_is_an_error_that_lists_all() -> None:
    g = Graph("host")
    x = g.input("x", "float32", (5, 5))
    g.output("a", g.push(Det(), x))
    g.output("b", g.push(Det(), g.permute(x, (1, 0))))
    with pytest.raises(UnsupportedOnDeviceError, match=r"2 of 2 steps: .*Det.*allow_host=True"):
        CudaExecutor(g, host_backend())
    run = CudaExecutor(g, host_backend(), HOST)
    run.eval({"x": np.eye(5, dtype=np.float32)})
    assert run.proof.host_steps == {"Det": 2}


def test_sizes_that_kernels_compute_are_read_back_and_counted() -> None:
    g = Graph("sizes")
    x = g.input("x", "int64", (2,))
    rows, columns = g.read_sizes(x + 1)
    y = g.view(g.iota(rows * columns), (rows, columns))
    g.output("y", g.permute(y, (1, 0)) * 2)
    run = check_graph(g, [{"x": np.array([2, 4])}, {"x": np.array([0, 0])}])
    assert run.proof.read_backs == {"ReadSizes": 2}
    assert run.proof.host_steps == {}


def test_repeats_that_do_not_fit_are_an_error() -> None:
    g = Graph("repeat")
    x, y = g.input("x", "float32", ("a",)), g.input("y", "float32", ("b",))
    g.output("z", x + y)
    run = CudaExecutor(g, host_backend())
    with pytest.raises((ExecutionError, SymbolError)):
        run.eval({"x": normal(3), "y": normal(2)})


def test_what_does_not_fit_is_refused_before_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    g = Graph("large")
    x = g.input("x", "float32", ("n", 64))
    g.output("y", g.reduce("sum", g.exp(x) @ g.permute(g.exp(x), (1, 0)), (0, 1)))
    run = CudaExecutor(g, host_backend())
    monkeypatch.setattr(HostBackend, "available_bytes", lambda self: 1 << 12)
    with pytest.raises(OutOfMemoryError, match="bytes of the host in place of a GPU"):
        run.eval({"x": normal(64, 64)})
    assert run.proof.total == 0


def test_texts_of_kernels_are_the_same_each_time() -> None:
    texts = []
    for _ in range(2):
        g = Graph("mlp")
        g.output("y", mlp(g))
        texts.append(unit_text(CudaExecutor(g, host_backend()).loaded().skeleton.kernels))
    assert texts[0] == texts[1]
    assert launched(CudaExecutor(g, host_backend()), "scalar_map") == 0


def test_an_executor_that_nobody_holds_frees_device_memory_at_once() -> None:
    run = CudaExecutor(optimize_graph(load_graph_from_onnx_bytes(model_bytes("if_loop"))),
                       host_backend(), HOST)  # fmt: skip
    run.eval(inputs("if_loop"))
    kept = weakref.ref(run.loaded())
    gc.disable()
    try:
        del run
        assert kept() is None, "a full collection would have to find it"
    finally:
        gc.enable()


def test_a_branch_that_hands_on_its_operand_takes_no_memory() -> None:
    g = Graph()
    c, x = g.input("c", "bool", []), g.input("x", "float32", ["n"])

    def branch(change: Callable[[Graph, Value], Value]) -> Graph:
        made = Graph(parent=g)
        made.output("out", change(made, made.input_of_type("x", x.type)))
        return made.seal()

    kept, halved = branch(lambda g, x: x), branch(lambda g, x: g.mul(x, g.scalar(0.5, x.dtype)))
    (y,) = g.if_else(c, kept, halved, [g.relu(x)])
    g.output("y", y)
    backend = HostBackend(folder=host_backend()._cache.folder)
    run = CudaExecutor(g, backend, HOST)
    taken = {}
    for flag in (False, True, False, True):
        feeds = {"c": np.array(flag), "x": normal(5)}
        before = backend.allocations
        assert_agree(cpu_eval_graph(g, feeds), run.eval(feeds))
        taken[flag] = backend.allocations - before
    assert taken == {True: 3, False: 4}, "c, x, y, and what a branch that computes returns"


def test_a_body_is_bound_once_for_all_iterations() -> None:
    graph, feeds = load_graph_from_onnx_bytes(model_bytes("if_loop")), inputs("if_loop")
    run = CudaExecutor(graph, host_backend(), HOST)
    assert_agree(cpu_eval_graph(graph, feeds), run.eval(feeds))
    hits, misses = run._bodies.hits, run._bodies.misses
    assert_agree(cpu_eval_graph(graph, feeds), run.eval(feeds))
    assert (run._bodies.misses, run._bodies.hits > hits) == (misses, True)
