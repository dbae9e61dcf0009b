"""Threads, and arrays that go to and from CuPy, on the stand-in; see `cases.py`."""

from __future__ import annotations

from collections.abc import Callable
from threading import Barrier, Thread
from typing import Any

import numpy as np
import pytest

from kn_cuda import CudaExecutor
from kn_cuda.array import DeviceArray
from kn_cuda.backend import VECTOR_BYTES
from kn_cuda.cupy_backend import CupyBackend
from kn_cuda.device import cuda_device
from kn_graph import DType, Graph, cpu_eval_graph
from kn_graph.ops.control import If
from tests.cuda.standin.cases import close, product
from tests.cuda.test_device_arrays import appended, branch, numbers

Array = np.ndarray[Any, Any]


# ---- threads --------------------------------------------------------------------------------


def in_thread(work: Callable[[], Any]) -> Any:
    """Return what a function returns in a thread that has never called CUDA."""
    found: list[Any] = []
    thread = Thread(target=lambda: found.append(work()))
    thread.start()
    thread.join()
    assert found, "the thread failed"
    return found[0]


def test_a_thread_that_never_called_cuda_may_launch(gpu: CupyBackend) -> None:
    run = CudaExecutor(appended(), gpu)
    given = {"past": numbers(2, 3, 8), "new": numbers(2, 1, 8)}
    there = {name: run.copied(x) for name, x in given.items()}
    run.eval(there, on_device=True)  # and nothing has to be allocated any more
    got = in_thread(lambda: run.eval(there, on_device=True))
    close(got["present"].numpy(), cpu_eval_graph(run.graph, given)["present"])


def test_a_graph_outlives_the_thread_that_captured_it(gpu: CupyBackend) -> None:
    run, x = CudaExecutor(product(), gpu), numbers(64, 256)
    call = in_thread(lambda: run.bind([x]))
    x *= 2
    call.run()
    close(call.outputs["y"], cpu_eval_graph(run.graph, [x])["y"])


def test_threads_evaluate_while_others_capture(gpu: CupyBackend) -> None:
    run, together, wrong = CudaExecutor(product(), gpu), Barrier(4), []

    def work(number: int) -> None:
        x = numbers(64, 256) * (1 + number)
        want = cpu_eval_graph(run.graph, [x])["y"]
        together.wait()
        for _ in range(3):
            got = run.eval([x])["y"] if number % 2 else run.bind([x]).outputs["y"]
            if not np.allclose(got, want, rtol=1e-4, atol=1e-4):
                wrong.append(number)

    threads = [Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


# ---- arrays of CuPy -------------------------------------------------------------------------


def pinned(cupy: Any, x: Array) -> Array:
    """Return a copy in pinned memory, from where copies need not happen at once."""
    memory = cupy.cuda.alloc_pinned_memory(x.nbytes)
    made = np.frombuffer(memory, x.dtype, x.size).reshape(x.shape)
    made[...] = x
    return made


@pytest.mark.parametrize("blocking", [False, True])
def test_arrays_that_are_still_being_written_are_waited_for(
    blocking: bool, gpu: CupyBackend, cupy: Any
) -> None:
    run, given = CudaExecutor(appended(), gpu), pinned(cupy, numbers(2, 3, 8))
    new = numbers(2, 1, 8)
    want = cpu_eval_graph(run.graph, {"past": given, "new": new})
    with cupy.cuda.Stream(non_blocking=not blocking) as stream:
        past = cupy.empty(given.shape, np.float32)
        past.set(given, stream=stream)
        uploads = run.proof.uploads
        got = run.eval({"past": past, "new": new}, on_device=True)
        assert run.proof.uploads - uploads == new.nbytes
    close(got["present"].numpy(), want["present"])
    close(got["sums"].numpy(), want["sums"])


def test_arrays_are_not_used_again_while_they_are_read(gpu: CupyBackend, cupy: Any) -> None:
    """An array is given up as soon as the call returns, and its memory written by the next one."""
    run, new = CudaExecutor(appended(), gpu), numbers(2, 1, 8)
    results = []
    with cupy.cuda.Stream(non_blocking=True) as stream:
        for turn in range(3):
            given = pinned(cupy, numbers(2, 3, 8) * (turn + 1))
            past = cupy.empty(given.shape, np.float32)
            past.set(given, stream=stream)
            stream.synchronize()
            results.append(run.eval({"past": past, "new": new}, on_device=True)["present"])
            del past
        stream.synchronize()
        for turn, found in enumerate(results):
            past = numbers(2, 3, 8) * (turn + 1)
            close(found.numpy(), cpu_eval_graph(run.graph, [past, new])["present"])


@pytest.mark.parametrize("way", ["from_dlpack", "asarray"])
def test_results_are_waited_for_by_who_takes_them(way: str, gpu: CupyBackend, cupy: Any) -> None:
    run = CudaExecutor(appended(), gpu)
    given = [numbers(2, 3, 8), numbers(2, 1, 8)]
    found = run.eval(given, on_device=True)["present"]
    with cupy.cuda.Stream(non_blocking=True):
        taken = getattr(cupy, way)(found)
        assert taken.data.ptr == found.memory.address
        close(taken.get(), cpu_eval_graph(run.graph, given)["present"])


def test_memory_at_no_multiple_of_16_bytes_is_copied(gpu: CupyBackend, cupy: Any) -> None:
    run, x, new = CudaExecutor(appended(), gpu), numbers(2 * 3 * 8 + 1), numbers(2, 1, 8)
    whole = cupy.empty(x.shape, np.float32)
    whole.set(x)
    past = whole[1:].reshape(2, 3, 8)
    adopted = gpu.adopt(past)
    assert adopted is not None
    assert adopted.memory.address % VECTOR_BYTES == 0
    want = cpu_eval_graph(run.graph, [x[1:].reshape(2, 3, 8), new])
    close(run.eval([past, new])["present"], want["present"])


def test_empty_arrays_go_both_ways(gpu: CupyBackend, cupy: Any) -> None:
    run, new = CudaExecutor(appended(), gpu), numbers(2, 1, 8)
    past = cupy.empty((2, 0, 8), np.float32)
    close(run.eval([past, new])["present"], new * 2)
    empty = DeviceArray(gpu.allocate(0), DType.FLOAT32, (2, 0, 8), gpu)
    for taken in (cupy.from_dlpack(empty), cupy.asarray(empty)):
        assert taken.shape == (2, 0, 8)
        close(run.eval([taken, new])["present"], new * 2)


def test_models_hand_arrays_to_one_another(gpu: CupyBackend) -> None:
    """Each has a stream of its own, and nobody waits on the host."""
    first, second = CudaExecutor(appended(), gpu), CudaExecutor(appended(), cuda_device())
    past, new = numbers(2, 3, 8), numbers(2, 1, 8)
    want: Any = past
    there: Any = past
    for turn in range(4):
        run = second if turn % 2 else first
        there = run.eval({"past": there, "new": new}, on_device=True)["present"]
        want = cpu_eval_graph(run.graph, {"past": want, "new": new})["present"]
    close(there.numpy(), want)


def test_caches_grow_on_the_device(gpu: CupyBackend) -> None:
    run = CudaExecutor(appended(), gpu)
    past: Any = np.zeros((2, 0, 8), np.float32)
    want = past
    for turn in range(5):
        new = numbers(2, 1 + turn % 2, 8)
        past = run.eval({"past": past, "new": new}, on_device=True)["present"]
        want = cpu_eval_graph(run.graph, {"past": want, "new": new})["present"]
    close(past.numpy(), want)


def test_branches_run_where_their_operands_are(gpu: CupyBackend) -> None:
    g = Graph("branches")
    x, up = g.input("x", "float32", (64, 8)), g.input("up", "bool", ())
    (y,) = g.push_all(If(branch("then", 1.0), branch("else", -1.0)), up, x * 2.0)
    g.output("y", y * 3.0)
    run = CudaExecutor(g, gpu)
    for flag in (True, False):
        given = {"x": numbers(64, 8), "up": np.array(flag)}
        close(run.eval(given)["y"], cpu_eval_graph(g, given)["y"])
