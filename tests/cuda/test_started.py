"""Runs that nobody waits for, on a device that does nothing before somebody does."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

import kn_cuda.device
import kn_runtime.device
from kn_cuda import CudaOptions, HostBackend
from kn_cuda.backend import DeviceCall
from kn_cuda.executor import CudaExecutor
from kn_graph import Graph, cpu_eval_graph
from kn_graph.errors import ExecutionError, InputError
from kn_graph.ops.gather import Gather
from kn_runtime import Device, PreparedGraph
from tests.cuda.run import host_backend, needs_compiler

pytestmark = needs_compiler

Array = np.ndarray[Any, Any]


class LateBackend(HostBackend):
    """A device with a queue: what it is asked for happens when somebody waits.

    Pinned memory is read then; of other memory there is a copy, as a driver makes one.

    Attributes:
        queue: what is still to do.
        done: how many calls have happened.
    """

    def __init__(self) -> None:
        super().__init__(folder=host_backend()._cache.folder)
        self.queue: list[DeviceCall] = []
        self.done = 0
        self._pinned: list[Array] = []

    def _later(self, call: DeviceCall) -> None:
        with self._lock:
            self.queue.append(call)

    def _catch_up(self, end: int) -> None:
        with self._lock:
            due = self.queue[: max(0, end - self.done)]
            for call in due:
                call()
            del self.queue[: len(due)]
            self.done += len(due)

    def pinned(self, nbytes: int) -> Array:
        """Return memory, and remember it."""
        self._pinned.append(super().pinned(nbytes))
        return self._pinned[-1]

    def launch(self, *arguments: Any) -> None:
        """Launch later."""
        self._later(partial(super().launch, *arguments))

    def library(self, *arguments: Any) -> int:
        """Call later."""
        self._later(partial(super().library, *arguments))
        return 1

    def write(self, address: int, data: Array) -> None:
        """Copy later: what is in pinned memory by then, or what is in other memory now."""
        is_pinned = any(np.shares_memory(data, x) for x in self._pinned)
        self._later(partial(super().write, address, data if is_pinned else data.copy()))

    def zero(self, address: int, nbytes: int) -> None:
        """Clear later."""
        self._later(partial(super().zero, address, nbytes))

    def copy(self, to: int, source: int, nbytes: int) -> None:
        """Copy later."""
        self._later(partial(super().copy, to, source, nbytes))

    def fetch(self, address: int, into: Array) -> None:
        """Copy later."""
        self._later(partial(super().fetch, address, into))

    def read(self, address: int, nbytes: int) -> Array:
        """Wait for everything."""
        self.synchronize()
        return super().read(address, nbytes)

    def mark(self) -> float:
        """Return how much has happened by then."""
        return self.done + len(self.queue)

    def wait(self, mark: float) -> None:
        """Do what there was when the mark was made."""
        self._catch_up(int(mark))

    def synchronize(self) -> None:
        """Do everything."""
        self._catch_up(self.done + len(self.queue))


def network() -> Graph:
    """Return a product, rows of it that an input chooses, and random numbers."""
    g = Graph("network")
    n = g.symbol("n", lo=0)
    x, rows = g.input("x", "float32", [n, 8]), g.input("rows", "int64", [2])
    w = g.constant(np.arange(48, dtype=np.float32).reshape(8, 6) / 10)
    product = g.relu(x @ w)
    g.output("chosen", g.push(Gather(0), product, rows))
    g.output("drawn", product + g.random("uniform", (n, 6)))
    return g


def feeds(rows: int, first: int = 0) -> dict[str, Array]:
    x = np.random.default_rng(rows).standard_normal((rows, 8)).astype(np.float32)
    return {"x": x, "rows": np.array([first, rows - 1])}


def assert_same(got: dict[str, Any], want: dict[str, Any]) -> None:
    assert got.keys() == want.keys()
    for name, x in want.items():
        np.testing.assert_allclose(got[name], x, rtol=1e-5, err_msg=name)


def test_several_runs_are_asked_for_before_any_has_happened() -> None:
    g, backend = network(), LateBackend()
    run = CudaExecutor(g, backend)
    backend.synchronize()
    backend.done = 0
    pending, wanted = [], []
    for rows in (3, 7, 2):
        given = feeds(rows)
        wanted.append(cpu_eval_graph(g, given, seed=rows))
        pending.append(run.start(given, seed=rows))
        given["x"][:] = np.nan  # it was read
    assert backend.done == 0
    first = pending[0]()
    assert backend.queue  # the others are on their way still
    assert_same(first, wanted[0])
    for finish, want in zip(pending[1:], wanted[1:], strict=True):
        assert_same(finish(), want)
    backend.check_guards()


def test_what_a_kernel_finds_in_the_data_shows_when_it_is_waited_for() -> None:
    run = CudaExecutor(network(), LateBackend())
    wrong, right = run.start(feeds(3, first=9)), run.start(feeds(3))
    with pytest.raises(ExecutionError, match="9"):
        wrong()
    assert_same(right(), cpu_eval_graph(network(), feeds(3)))


def test_what_the_host_takes_part_in_is_run_when_it_is_waited_for() -> None:
    g = Graph("stages")
    x = g.input("x", "float32", [5])
    g.output("places", g.nonzero(x))
    run = CudaExecutor(g, LateBackend(), CudaOptions(allow_host=True))
    given = {"x": np.array([0, 1, 0, 2, 0], np.float32)}
    np.testing.assert_array_equal(run.start(given)()["places"], [[1, 3]])


@pytest.fixture
def prepared(monkeypatch: pytest.MonkeyPatch) -> Iterator[PreparedGraph]:
    """The network on such a device."""
    backend = LateBackend()
    monkeypatch.setattr(kn_runtime.device, "_cuda_reasons", lambda index: ())
    monkeypatch.setattr(kn_cuda.device, "cuda_device", lambda index: backend)
    with Device.cuda(0).prepare(network()) as made:
        yield made


def test_eval_async_gives_futures(prepared: PreparedGraph) -> None:
    pending = [prepared.eval_async(feeds(rows), seed=1) for rows in (4, 5)]
    for rows, future in zip((4, 5), pending, strict=True):
        assert_same(future.result(60), cpu_eval_graph(network(), feeds(rows), seed=1))
    with pytest.raises(InputError, match="rows"):
        prepared.eval_async({"x": np.zeros((2, 8), np.float32)}).result(60)
