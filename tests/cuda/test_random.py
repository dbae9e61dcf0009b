"""Random numbers on the host in place of a GPU: those of the reference, and others in each run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kn_cuda.steps.random as random_steps
from kn_cuda import ARCHITECTURES, CudaExecutor, CudaOptions
from kn_graph import Graph, Value, cpu_eval_graph, load_graph_from_onnx_bytes
from kn_graph.dim import Size, size_min
from kn_graph.dtype import DType
from kn_graph.ops.random import Distribution
from kn_graph.random_bits import RandomStreams
from kn_graph.reference import eval_drawing
from kn_graph.types import TensorType, ValueType
from tests.cpu.test_random import assert_equal, draws, ones
from tests.cuda.run import SEEDS, assert_clean, host_backend, launched, needs_compiler
from tests.ops.examples_control import body
from tests.ops.single_node import node_model

pytestmark = needs_compiler

Array = np.ndarray[Any, Any]


@pytest.mark.parametrize("distribution", ["uniform", "normal"])
def test_numbers_are_those_of_the_reference(distribution: Distribution) -> None:
    g = draws(distribution)
    runs = [CudaExecutor(g, host_backend(order)) for order in SEEDS]
    for rows in (0, 1, 2, 3, 700):
        for seed in (0, 2**40 + 1):
            want = cpu_eval_graph(g, ones(rows), seed=seed)
            for run in runs:
                assert_equal(run.eval(ones(rows), seed=seed), want)
    assert runs[0].proof.host_steps == {}
    assert launched(runs[0], "random_numbers") == runs[0].proof.total  # programs run in it
    kernels = runs[0].loaded().skeleton.kernels
    assert_clean([*kernels, *(k.widened for k in kernels)], ARCHITECTURES)


def test_a_key_of_64_bits_takes_the_place_of_the_seed() -> None:
    g = draws("uniform", key=2**63 + 5)
    run = CudaExecutor(g, host_backend())
    assert_equal(run.eval(ones(4), seed=3), cpu_eval_graph(g, ones(4)))


def test_one_block_draws_all_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    def one_block(count: Size, threads: int) -> Size:
        return size_min(count, 1)

    monkeypatch.setattr(random_steps, "blocks_for", one_block)
    g = draws("normal")
    assert_equal(CudaExecutor(g, host_backend()).eval(ones(1000)), cpu_eval_graph(g, ones(1000)))


def test_runs_of_a_bound_call_go_on_drawing() -> None:
    g = draws("normal")
    run, streams = CudaExecutor(g, host_backend()), RandomStreams(4)
    call = run.bind(ones(5), seed=4)
    for _ in range(3):
        assert_equal(dict(call.outputs), eval_drawing(g, ones(5), None, streams))
        call.run()
    assert run.proof.replays == 3  # it is recorded


def test_a_bound_call_that_is_evaluated_anew_goes_on_too() -> None:
    g = Graph("stages")
    x = g.input("x", "float32", [50])
    drawn = g.random("uniform", (50,))
    g.output("many", g.nonzero(g.compare("lt", drawn, x)))  # its size is that of another stage
    g.output("drawn", drawn)
    run = CudaExecutor(g, host_backend(), CudaOptions(allow_host=True))
    given, streams = {"x": np.full(50, 2, np.float32)}, RandomStreams(0)
    call = run.bind(given)
    for _ in range(2):
        want = eval_drawing(g, given, None, streams)
        np.testing.assert_array_equal(call.outputs["drawn"], want["drawn"])
        call.run()


def test_iterations_of_a_loop_draw_other_numbers() -> None:
    g = Graph("loop")
    count = g.input("count", "int64", [])
    types: list[ValueType] = [
        TensorType(DType.INT64, ()),
        TensorType(DType.BOOL, ()),
        TensorType(DType.FLOAT32, (6,)),
    ]

    def step(b: Graph, i: Value, going: Value, so_far: Value) -> list[Value]:
        numbers = b.random("uniform", (6,))
        return [going, so_far + numbers, numbers]

    total, rows = g.loop(body(g, types, step), [g.constant(np.zeros(6, np.float32))], trip=count)
    g.output("total", total)
    g.output("rows", rows)
    run = CudaExecutor(g, host_backend())
    want = cpu_eval_graph(g, [np.array(4)], seed=2)
    got = run.eval([np.array(4)], seed=2)
    np.testing.assert_array_equal(got["rows"], want["rows"])
    assert len(np.unique(got["rows"])) == 24
    assert run.proof.host_steps == {}


def logits() -> Array:
    return np.log(np.array([[0.2, 1e-9, 0.5, 0.3], [0.1, 0.1, 0.1, 0.7]], np.float32))


@pytest.mark.parametrize(
    ("operator", "inputs", "attributes"),
    [
        ("RandomNormal", {}, {"shape": [7, 3], "mean": 2.0, "scale": 0.5}),
        ("RandomUniform", {}, {"shape": [7, 3], "low": -1.0, "seed": 3.0, "dtype": 10}),
        ("RandomNormalLike", {"x": np.zeros((5, 4), np.float16)}, {"mean": 1.0}),
        ("RandomUniformLike", {"x": np.zeros((5, 4), np.float64)}, {"high": 8.0}),
        ("Bernoulli", {"x": np.linspace(0, 1, 300, dtype=np.float32)}, {}),
        ("Multinomial", {"x": logits()}, {"sample_size": 40}),
        ("Dropout", {"x": np.ones(300, np.float32), "r": np.float32(0.3), "t": np.array(True)}, {}),
    ],
)
def test_operators_that_draw_run_on_the_device(
    operator: str, inputs: dict[str, Array], attributes: dict[str, Any]
) -> None:
    constant = [n for n in inputs if n != "x"]
    model = node_model(operator, inputs, constant=constant, **attributes)
    graph = load_graph_from_onnx_bytes(model)
    given = {n: x for n, x in inputs.items() if n == "x"}
    run = CudaExecutor(graph, host_backend())
    want, got = cpu_eval_graph(graph, given, seed=6)["y"], run.eval(given, seed=6)["y"]
    np.testing.assert_allclose(got, want, rtol=2e-7)  # the sum of a row may be in another order
    assert got.dtype == want.dtype
    assert run.proof.host_steps == {}
    assert launched(run, "random_numbers") == 1
