"""Steps of a run, timed one by one."""

from __future__ import annotations

import numpy as np
import pytest

from kn_cpu.executor import CpuExecutor
from kn_cpu.native import library
from kn_cpu.peak import MachinePeak, measure_peak
from kn_cpu.profile import Profile, profile
from kn_graph import Graph, load_graph_from_onnx_bytes, optimize_graph
from models.generate import inputs, model_bytes

KERNELS = library()
pytestmark = pytest.mark.skipif(KERNELS is None, reason="there are no native kernels")

PEAK = MachinePeak("test", 1e11, ((1 << 20, 1e11), (1 << 30, 1e10)))


def profiled(graph: Graph, feeds: dict[str, np.ndarray], threads: int = 2) -> Profile:
    assert KERNELS is not None
    return profile(CpuExecutor(graph, KERNELS, threads), feeds, PEAK, runs=3)


@pytest.mark.parametrize("name", ["residual_cnn", "transformer_layer", "lstm_gru", "if_loop"])
def test_each_step_of_a_model_has_a_time(name: str) -> None:
    graph = optimize_graph(load_graph_from_onnx_bytes(model_bytes(name)))
    found = profiled(graph, inputs(name))
    assert found.runs == 3
    assert [s.number for s in found.steps] == list(range(len(found.steps)))
    assert all(s.time_us > 0 for s in found.steps)
    assert sum(s.share for s in found.steps) == pytest.approx(1, abs=1e-2)
    assert found.steps_us == pytest.approx(sum(s.time_us for s in found.steps), rel=1e-3)
    for s in found.steps:
        assert bool(s.kernels) != (s.host is not None or s.kind in ("If", "Loop", "Scan")), s


def test_a_large_product_takes_the_time() -> None:
    g = Graph("uneven")
    x = g.input("x", "float32", ["n", 512])
    w = g.input("w", "float32", [512, 512])
    g.output("y", g.softmax(g.slice(g.matmul(x, w), 1, 0, 4), 1))
    rng = np.random.default_rng(0)
    feeds = {
        k: rng.standard_normal(s, np.float32) for k, s in (("x", (400, 512)), ("w", (512,) * 2))
    }
    product, softmax = profiled(g, feeds).steps[:2]
    assert product.flops == 2 * 400 * 512 * 512
    assert product.kernels == ["gemm.gemm_f32"]
    assert product.share > softmax.share
    assert product.shape == [400, 512]
    assert product.bound_us == pytest.approx(product.flops / 1e11 * 1e6)
    assert product.reached == pytest.approx(product.bound_us / product.time_us, rel=1e-2)


def test_host_steps_say_why() -> None:
    g = Graph("found")
    x = g.input("x", "float32", ["n"])
    g.output("y", g.unary("neg", g.gather(x, g.nonzero(x), 0)))
    found = profiled(g, {"x": np.array([0, 1, 2], np.float32)})
    (host,) = [s for s in found.steps if s.host]
    assert host.kind == "NonZero"
    assert host.time_us > 0
    assert 2 in found.sizes.values()


def test_bodies_are_timed_beside_the_step_that_runs_them() -> None:
    graph = optimize_graph(load_graph_from_onnx_bytes(model_bytes("if_loop")))
    found = profiled(graph, inputs("if_loop"))
    bodies = {b.path: b for b in found.bodies}
    branches = [b for b in found.bodies if b.step == 2 and b.path.startswith("2.")]
    assert [b.name for b in branches[:1]] == ["then_body"]
    ran = [b for b in branches if b.name.endswith("_body") and b.calls]
    assert [b.calls for b in ran] == [1]
    trace = bodies["3.body"]
    assert trace.calls >= 1
    assert all(s.time_us > 0 for s in trace.steps)
    assert trace.time_us == pytest.approx(sum(s.time_us for s in trace.steps), rel=1e-3)
    inner = [b for b in found.bodies if b.path.startswith("3.body.")]
    assert {b.name for b in inner} == {"then_body", "else_body"}
    assert sum(b.calls for b in inner) == trace.calls
    assert all(b.steps == [] and b.time_us == 0 for b in found.bodies if not b.calls)
    paths = [b.path for b in found.bodies]
    assert paths.index("3.body") < paths.index(inner[0].path)


def test_profiling_changes_no_result() -> None:
    graph = optimize_graph(load_graph_from_onnx_bytes(model_bytes("residual_cnn")))
    feeds = inputs("residual_cnn")
    assert KERNELS is not None
    executor = CpuExecutor(graph, KERNELS, 2)
    before = executor.eval(feeds)
    profile(executor, feeds, PEAK, runs=1)
    for name, x in executor.eval(feeds).items():
        np.testing.assert_array_equal(x, before[name])


def test_memory_is_as_fast_as_the_level_that_holds_it() -> None:
    assert PEAK.bandwidth(1000) == 1e11
    assert PEAK.bandwidth(1 << 21) == PEAK.bandwidth(1 << 40) == 1e10


def test_the_machine_is_measured() -> None:
    assert KERNELS is not None
    peak = measure_peak(KERNELS, 1)
    assert peak.name == f"cpu ({KERNELS.isa}, 1 thread)"
    assert 1e8 < peak.flops < 1e14
    assert [size for size, _ in peak.streams] == sorted(size for size, _ in peak.streams)
    assert all(1e8 < rate < 1e13 for _, rate in peak.streams)
