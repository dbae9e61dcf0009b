"""Bound calls: what they upload, allocate and compile, recorded runs, state."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kn_cuda import CudaExecutor, HostBackend
from kn_cuda.repeated import RepeatedCall
from kn_graph import Graph, cpu_eval_graph
from kn_graph.errors import ExecutionError, UsageError
from kn_graph.ops.layout import Concat
from tests.cuda.run import host_backend, needs_compiler
from tests.cuda.test_device_arrays import OnGpu, numbers

pytestmark = needs_compiler

Array = np.ndarray[Any, Any]


def counted() -> Graph:
    """Return a state that goes on: state' = state @ w + x; and a mask that nothing changes."""
    g = Graph("state")
    state, x = g.input("state", "float32", (4, 16)), g.input("x", "float32", (4, 16))
    mask = g.input("mask", "float32", (16,))
    w = g.constant(numbers(16, 16) / 8)
    after = g.matmul(state, w) + x
    g.output("after", after)
    g.output("seen", g.reduce("sum", after * g.broadcast(mask, (4, 16)), (1,)))
    return g


def feeds() -> dict[str, Array]:
    return {"state": numbers(4, 16), "x": numbers(4, 16) * 2, "mask": numbers(16)}


def fresh() -> HostBackend:
    return HostBackend(folder=host_backend()._cache.folder)


def repeated(call: Any) -> RepeatedCall:
    found = call.run.__self__
    assert isinstance(found, RepeatedCall)
    return found


def test_the_second_run_compiles_allocates_and_uploads_nothing() -> None:
    backend, given = fresh(), feeds()
    run = CudaExecutor(counted(), backend)
    call = run.bind(given)
    loaded, allocations = set(backend._functions), backend.allocations
    proof, launches = run.proof, run.proof.total
    uploads, blocks = proof.uploads, run.blocks.allocations
    call.run()
    assert repeated(call).is_recorded
    assert proof.uploads == uploads
    assert (set(backend._functions), backend.allocations) == (loaded, allocations)
    assert run.blocks.allocations == blocks == 1
    assert (proof.total, proof.replays) == (2 * launches, 1)
    backend.check_guards()


def test_what_changed_is_uploaded_in_one_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    given = feeds()
    writes: list[int] = []
    run = CudaExecutor(counted(), host_backend())
    call = run.bind(given)
    write = HostBackend.write

    def noted(backend: HostBackend, address: int, data: Array) -> None:
        writes.append(data.nbytes)
        write(backend, address, data)

    monkeypatch.setattr(HostBackend, "write", noted)
    for changed in (["x"], [], ["mask"], ["x", "mask"], ["state", "x", "mask"]):
        writes.clear()
        for name in changed:
            given[name] += 1
        call.run()
        assert len(writes) == bool(changed)
        assert sum(writes) >= sum(given[n].nbytes for n in changed)
        for name, want in cpu_eval_graph(run.graph, given).items():
            np.testing.assert_allclose(call.outputs[name], want, rtol=1e-5, atol=1e-6)
    given["x"][...] = np.nan
    call.run()
    writes.clear()
    call.run()
    assert writes == []  # a NaN that stays is no change


def test_outputs_stay_in_their_place() -> None:
    given = feeds()
    call = CudaExecutor(counted(), host_backend()).bind(given)
    kept = dict(call.outputs)
    before = kept["after"].copy()
    given["state"] += 1
    call.run()
    assert all(call.outputs[n] is x for n, x in kept.items())
    assert not np.array_equal(kept["after"], before)


def test_state_goes_on_without_leaving_the_device() -> None:
    given = feeds()
    run = CudaExecutor(counted(), host_backend())
    call = run.bind(given, state={"after": "state"}, on_device=True)
    want = given["state"]
    uploads, downloads = run.proof.uploads, run.proof.downloads
    for turn in range(4):
        if turn:
            call.run()
        want = cpu_eval_graph(run.graph, {**given, "state": want})["after"]
        np.testing.assert_allclose(call.outputs["after"].numpy(), want, rtol=1e-4, atol=1e-5)
    assert (run.proof.uploads, run.proof.downloads) == (uploads, downloads)
    repeated(call).write("state", given["state"])
    call.run()
    want = cpu_eval_graph(run.graph, given)["after"]
    np.testing.assert_allclose(call.outputs["after"].numpy(), want, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(given["state"], feeds()["state"])  # the caller's is not written


def test_state_has_memory_of_its_own() -> None:
    given = feeds()
    run = CudaExecutor(counted(), host_backend())
    state = run.backend.adopt(OnGpu(given["state"].copy()))
    assert state is not None
    call = run.bind({**given, "state": state}, state={"after": "state"}, on_device=True)
    call.run()
    np.testing.assert_array_equal(state.numpy(), given["state"])


def test_inputs_on_the_device_are_read_where_they_are() -> None:
    given = feeds()
    run = CudaExecutor(counted(), host_backend())
    x = run.backend.adopt(OnGpu(given["x"]))
    assert x is not None
    call = run.bind({**given, "x": x}, on_device=True)
    assert repeated(call).inputs["x"].memory.address == x.memory.address
    run.backend.write(x.memory.address, np.zeros((4, 16), np.float32))
    uploads = run.proof.uploads
    call.run()
    assert run.proof.uploads == uploads
    want = cpu_eval_graph(run.graph, {**given, "x": np.zeros((4, 16), np.float32)})
    np.testing.assert_allclose(call.outputs["seen"].numpy(), want["seen"], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("state", "said"),
    [({"seen": "state"}, "is not float32"), ({"after": "y"}, "no such"), ({"z": "x"}, "no such")],
)
def test_state_that_does_not_fit_is_refused(state: dict[str, str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        CudaExecutor(counted(), host_backend()).bind(feeds(), state=state)


def test_a_device_without_graphs_makes_the_calls_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(HostBackend, "capture", lambda self, calls: None)
    given = feeds()
    call = CudaExecutor(counted(), host_backend()).bind(given)
    given["x"] -= 3
    call.run()
    want = cpu_eval_graph(counted(), given)["after"]
    np.testing.assert_allclose(call.outputs["after"], want, rtol=1e-5, atol=1e-6)


def test_what_cannot_be_recorded_runs_in_the_ordinary_way() -> None:
    """Sizes are read back, an output is an input, or one that grows with what is in the data."""
    g = Graph("sizes")
    x = g.input("x", "int64", (1,))
    (rows,) = g.read_sizes(x + 1)
    g.output("x2", x)
    g.output("y", g.push(Concat(0), g.iota(rows), g.iota(3)))
    given = np.array([2])
    call = CudaExecutor(g, host_backend()).bind([given])
    assert not repeated(call).is_recorded
    call.run()
    np.testing.assert_array_equal(call.outputs["y"], [0, 1, 2, 0, 1, 2])
    given[0] = 4
    with pytest.raises(ExecutionError, match=r"has shape \[8\] now, and had \[6\]"):
        call.run()


def test_what_kernels_find_in_the_data_shows_in_each_run() -> None:
    g = Graph("checked")
    x, i = g.input("x", "float32", (5, 3)), g.input("i", "int64", (2,))
    g.output("y", g.gather(x, i, 0))
    given = {"x": numbers(5, 3), "i": np.array([4, 0])}
    call = CudaExecutor(g, host_backend()).bind(given)
    given["i"][0] = 9
    for _ in range(2):
        with pytest.raises(ExecutionError, match="9"):
            call.run()
    given["i"][0] = 1
    call.run()
    np.testing.assert_array_equal(call.outputs["y"], given["x"][[1, 0]])
