"""A GPU as `kn_runtime` sees it, with the host in its place."""

from collections.abc import Iterator

import numpy as np
import pytest

import kn_cuda.device
import kn_runtime.device
from kn_cuda import HostBackend
from kn_cuda.profile import Profile
from kn_graph import Graph
from kn_graph.dtype import DType
from kn_graph.errors import DeviceUnavailableError, UsageError
from kn_runtime import Device, PreparedGraph

X = np.arange(6, dtype=np.float32).reshape(3, 2)


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> HostBackend:
    """One GPU, which is the host."""
    backend = HostBackend()
    none = ("there is one GPU, and {} is not it",)
    monkeypatch.setattr(
        kn_runtime.device,
        "_cuda_reasons",
        lambda index: () if index == 0 else tuple(r.format(index) for r in none),
    )
    monkeypatch.setattr(kn_cuda.device, "cuda_device", lambda index: backend)
    return backend


@pytest.fixture
def prepared(host: HostBackend) -> Iterator[PreparedGraph]:
    """A graph of one program, on it."""
    graph = Graph("doubled")
    x = graph.input("x", DType.FLOAT32, [graph.symbol("n"), 2])
    graph.output("y", x * 2.0 + 1.0)
    with Device.cuda().prepare(graph) as made:
        yield made


def test_a_gpu_is_the_best_device(host: HostBackend) -> None:
    assert Device.best() == Device.parse("cuda") == Device("cuda", 0)
    assert [str(d) for d in Device.available()] == ["cuda:0", "cpu", "reference"]
    with pytest.raises(DeviceUnavailableError, match="cuda:1 is not available: there is one GPU"):
        Device.cuda(1)


def test_graphs_are_prepared_for_it(prepared: PreparedGraph) -> None:
    for n in (3, 1, 2):
        np.testing.assert_array_equal(prepared.eval([X[:n]])["y"], X[:n] * 2 + 1)
    assert prepared.plan is not None
    assert len(prepared.plan.steps) == 1
    assert prepared.memory({"n": 3}).arena == 0


def test_bound_calls_see_what_is_in_their_arrays(prepared: PreparedGraph) -> None:
    x = X.copy()
    call = prepared.bind([x])
    for added in (1, 3):
        call.run()
        np.testing.assert_array_equal(call.outputs["y"], X * 2 + added)
        x += 1


def test_results_stay_there_where_that_is_asked_for(prepared: PreparedGraph) -> None:
    once = prepared.eval([X], on_device=True)["y"]
    twice = prepared.eval([once])["y"]
    np.testing.assert_array_equal(twice, (X * 2 + 1) * 2 + 1)
    call = prepared.bind([X.copy()], state={"y": "x"}, on_device=True)
    call.run()
    np.testing.assert_array_equal(call.outputs["y"].numpy(), twice)


def test_profiles_say_what_clock_they_are_by(prepared: PreparedGraph) -> None:
    found = prepared.profile([X], runs=3)
    assert isinstance(found, Profile)
    (step,) = found.steps
    assert found.clock == "time on the host, which stands in for a GPU"
    assert (found.spec.name, found.sizes, found.runs) == ("sm_90 (H100 SXM)", {"n": 3}, 3)
    assert (step.kind, step.launches, step.shape, step.host) == ("scalar", 1, [3, 2], None)
    assert (step.moved_bytes, step.limit) == (2 * X.nbytes, "launch")
    assert step.time_us > 0
    assert step.bound_us == found.bound_us == 2.5
    assert found.launches == 1


def test_what_only_a_gpu_has_is_said() -> None:
    graph = Graph("doubled")
    graph.output("y", graph.input("x", DType.FLOAT32, [3, 2]) * 2.0)
    with Device.cpu().prepare(graph) as cpu:
        assert isinstance(cpu.eval([X], on_device=True)["y"], np.ndarray)
        with pytest.raises(UsageError, match="state of bound calls needs a GPU"):
            cpu.bind([X], state={"y": "x"})
