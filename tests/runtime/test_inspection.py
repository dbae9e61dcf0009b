"""What a prepared graph tells of its plan."""

from __future__ import annotations

import numpy as np
import pytest

from kn_cpu.native import library
from kn_cpu.profile import Profile
from kn_graph import Graph, load_graph_from_onnx_bytes
from kn_graph.errors import SymbolError, UsageError
from kn_runtime import Device, PreparedGraph
from models.generate import inputs, model_bytes

PLANNED = pytest.mark.skipif(library() is None, reason="there are no native kernels")


def prepared(device: str = "cpu") -> PreparedGraph:
    graph = load_graph_from_onnx_bytes(model_bytes("transformer_layer"))
    return Device.parse(device).prepare(graph)


@PLANNED
def test_the_plan_is_what_runs() -> None:
    plan = prepared().plan
    assert plan is not None
    assert [s.kind for s in plan.steps].count("MatMul") == 4


@PLANNED
def test_memory_grows_with_sizes() -> None:
    small, large = (prepared().memory({"batch": 1, "seq": n}) for n in (16, 128))
    assert small.arena < large.arena
    assert small.constants == large.constants
    assert large.lower_bound <= large.arena <= large.without_reuse
    with pytest.raises(SymbolError, match="'seq' has no number"):
        prepared().memory({"batch": 1})


@PLANNED
def test_a_profile_has_the_steps_of_the_plan() -> None:
    ready = prepared()
    found = ready.profile(inputs("transformer_layer"), runs=2)
    assert ready.plan is not None
    assert [s.label for s in found.steps] == [s.label for s in ready.plan.steps]
    assert found.runs == 2
    assert isinstance(found, Profile)
    assert found.peak.flops > 0


def test_the_reference_has_no_plan() -> None:
    ready = prepared("reference")
    assert ready.plan is None
    with pytest.raises(UsageError, match="has no memory: the reference runs it, without a plan"):
        ready.memory({"batch": 1, "seq": 1})
    with pytest.raises(UsageError, match="has no profile"):
        ready.profile(inputs("transformer_layer"))


def test_a_closed_graph_tells_nothing() -> None:
    g = Graph("closed")
    g.output("y", g.unary("neg", g.input("x", "float32", ["n"])))
    ready = Device.cpu().prepare(g)
    ready.close()
    with pytest.raises(UsageError, match="is closed"):
        ready.profile({"x": np.zeros(1, np.float32)})
    assert ready.plan is None
