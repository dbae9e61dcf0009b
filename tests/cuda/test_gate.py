"""What must have happened on a device, and that each way to avoid it is found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from kn_cuda import CudaExecutor, CudaOptions, HostBackend
from kn_cuda.backend import Memory
from kn_cuda.calls import Request
from kn_cuda.evaluation import Evaluation
from kn_cuda.gate import required_kinds, shortfall
from kn_cuda.lower import WRITERS
from kn_cuda.lowering import Calls
from kn_cuda.source import KernelSource
from kn_graph import Graph
from kn_graph.dim import Symbol
from kn_graph.errors import KnError, UnsupportedOnDeviceError
from kn_graph.op import Op
from kn_plan.calls import UnsupportedError
from kn_plan.plan import Step
from tests.cuda.run import host_backend, needs_compiler
from tests.cuda.test_executor import block, normal
from tests.ops.example import Example
from tests.ops.test_examples import EXAMPLES

pytestmark = needs_compiler

HOST = CudaOptions(allow_host=True)


class Idle(HostBackend):
    """Counts what it is asked for, and does nothing: results are wrong, counts are not."""

    def allocate(self, nbytes: int) -> Memory:
        """Return zeros, which the host can compute with."""
        memory = super().allocate(nbytes)
        self.zero(memory.address, nbytes)
        return memory

    def prepare(self, kernels: Sequence[KernelSource]) -> int:
        """Compile nothing."""
        return 0

    def launch(self, *arguments: Any) -> None:
        """Launch nothing."""

    def library(self, request: Request, pointers: Any, numbers: Any) -> int:
        """Call nothing."""
        return 1


def numbers_of(graph: Graph, sizes: Mapping[str, int]) -> dict[Symbol, int]:
    return {s: sizes[s.name] for s in graph.input_symbols()}


def proven(graph: Graph, sizes: Mapping[str, int], feeds: Mapping[str, Any]) -> list[str]:
    """Return what is missing behind one run that may use the host."""
    run = CudaExecutor(graph, Idle(), HOST)
    run.eval(feeds)
    return shortfall(graph, numbers_of(graph, sizes), run.proof)


def _supported() -> dict[type[Op], Example]:
    """Return an example of each kind that has a kernel, all of whose steps do."""
    found: dict[type[Op], Example] = {}
    for e in EXAMPLES:
        if e.op not in WRITERS or e.op in found:
            continue
        graph = e.graph()
        try:
            CudaExecutor(graph, Idle())
        except UnsupportedOnDeviceError:
            continue
        if required_kinds(graph, numbers_of(graph, e.sizes[0])):
            found[e.op] = e
    return found


SUPPORTED = _supported()
IDS = [op.__name__ for op in SUPPORTED]


def test_nearly_every_kind_is_controlled() -> None:
    assert len(SUPPORTED) >= len(WRITERS) - 3, set(WRITERS) - set(SUPPORTED)


@pytest.mark.parametrize("op", SUPPORTED, ids=IDS)
def test_a_kind_that_falls_back_to_the_host_is_found(
    op: type[Op], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(low: object, step: object, op: object) -> Calls:
        raise UnsupportedError("taken away")

    example, sizes = SUPPORTED[op], SUPPORTED[op].sizes[0]
    graph, feeds = example.graph(), example.feeds(sizes)
    assert proven(graph, sizes, feeds) == []
    monkeypatch.setitem(WRITERS, op, refuse)
    found = proven(graph, sizes, feeds)
    kinds = required_kinds(graph, numbers_of(graph, sizes))
    assert any(text.split(":")[0] in kinds and "on the host" in text for text in found)
    with pytest.raises(UnsupportedOnDeviceError, match="taken away"):
        CudaExecutor(graph, Idle())


@pytest.mark.parametrize("op", SUPPORTED, ids=IDS)
def test_a_kind_without_launches_is_found(op: type[Op], monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(low: object, step: object, op: object) -> Calls:
        return []

    example, sizes = SUPPORTED[op], SUPPORTED[op].sizes[0]
    graph = example.graph()
    monkeypatch.setitem(WRITERS, op, nothing)
    found = proven(graph, sizes, example.feeds(sizes))
    assert any(text.endswith("nothing was launched") for text in found)


def test_an_executor_that_computes_on_the_host_in_silence_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    g = Graph("block")
    g.symbol("n", lo=0)
    g.output("y", block(g))
    feeds = {"x": normal(2, 6, 32)}
    assert proven(g, {"n": 2}, feeds) == []
    done: set[int] = set()

    def on_the_host(self: Evaluation, call: object, step: Step) -> None:
        if id(step) not in done:  # right, and not counted
            done.add(id(step))
            self._host(step)

    monkeypatch.setattr(Evaluation, "_carry_out", on_the_host)
    found = proven(g, {"n": 2}, feeds)
    assert "MatMul: nothing was launched" in found


def test_nothing_is_asked_for_where_nothing_is_computed() -> None:
    g = Graph("block")
    g.symbol("n", lo=0)
    g.output("y", block(g))
    assert required_kinds(g, dict.fromkeys(g.input_symbols(), 0)) == set()
    assert "MatMul" in required_kinds(g, dict.fromkeys(g.input_symbols(), 1))


def decoder() -> Graph:
    """Return a layer that reads what it has kept, and keeps one row more."""
    g = Graph("decoder")
    g.symbol("past", lo=0)
    x, keys = g.input("x", "float32", (1, 16)), g.input("keys", "float32", ("past", 16))
    made = g.matmul(x, g.constant(normal(16, 32)))
    q, k = (g.slice(made, 1, start, 16) for start in (0, 16))
    kept = g.concat([keys, k], 0)
    scores = g.softmax(g.matmul(q, g.permute(kept, (1, 0))) * 0.25, 1)
    g.output("y", g.relu(g.matmul(g.matmul(scores, kept), g.constant(normal(16, 16))) + x))
    g.output("kept", kept)
    return g


def test_fifty_decode_steps_compile_nothing_after_the_second() -> None:
    backend = HostBackend(folder=host_backend()._cache.folder)
    run = CudaExecutor(decoder(), backend)
    x, kept = normal(1, 16), np.zeros((0, 16), np.float32)
    kernels: list[int] = []
    for _ in range(50):
        out = run.eval({"x": x, "keys": kept})
        x, kept = out["y"] / 4, out["kept"]
        kernels.append(len(backend._functions))
    assert kept.shape == (50, 16)
    assert kernels[1:] == [kernels[1]] * 49
    assert run.blocks.allocations <= 8  # most steps find a block that is large enough
    assert run.proof.host_steps == run.proof.read_backs == {}
    assert shortfall(run.graph, dict.fromkeys(run.graph.input_symbols(), 49), run.proof) == []


def test_errors_of_a_kernel_are_not_taken_for_a_reason_to_use_the_host() -> None:
    class Broken(Idle):
        """Fails."""

        def launch(self, *arguments: Any) -> None:
            """Fail."""
            raise KnError("the device is gone")

    g = Graph("broken")
    g.output("y", g.softmax(g.input("x", "float32", (3, 4)), 1))
    with pytest.raises(KnError, match="the device is gone"):
        CudaExecutor(g, Broken(), HOST).eval({"x": normal(3, 4)})
