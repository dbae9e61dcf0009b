"""The generated models as whole plans on the host in place of a GPU, without a step of the host."""

from __future__ import annotations

from functools import cache

import pytest

from kn_cuda import CudaExecutor
from kn_graph import Graph, cpu_eval_graph, load_graph_from_onnx_bytes, optimize_graph
from kn_graph.variants import open_call
from models.generate import inputs, model_bytes
from tests.cuda.run import SEEDS, host_backend, needs_compiler
from tests.plan.test_plan import MODELS, assert_agree

pytestmark = needs_compiler


@cache
def optimized(name: str) -> Graph:
    """Return a generated model as it runs."""
    return optimize_graph(load_graph_from_onnx_bytes(model_bytes(name)))


@pytest.mark.parametrize("name", MODELS)
def test_whole_plans_agree_in_two_orders_of_threads(name: str) -> None:
    graph, feeds = optimized(name), inputs(name)
    want = cpu_eval_graph(graph, feeds)
    for seed in SEEDS:
        run = CudaExecutor(graph, host_backend(seed))
        assert_agree(want, run.eval(feeds))
        assert not run.proof.host_steps


def test_a_layer_of_a_decoder_needs_at_most_twelve_launches() -> None:
    name = "gqa_decoder_step"
    run = CudaExecutor(optimized(name), host_backend())
    call = open_call(run.graph, inputs(name))
    ready = run.ready(call.graph, call.env)
    steps = ready.loaded.skeleton.device_steps
    launches = [
        len(calls)
        for step, calls in zip(steps, ready.first.calls, strict=True)
        if "/layers.1/" in step.step.label
    ]
    assert 0 < sum(launches) <= 12
