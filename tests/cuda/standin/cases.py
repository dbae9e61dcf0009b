"""The whole stack on the stand-in: `tests/cuda/test_standin.py` runs this in its own process."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from functools import partial
from threading import Barrier, Thread
from typing import Any

import numpy as np
import pytest

from kn_cuda import CudaExecutor, selftest
from kn_cuda.array import DeviceArray
from kn_cuda.backend import VECTOR_BYTES
from kn_cuda.calls import Gemm
from kn_cuda.cublas_backend import Cublas
from kn_cuda.cupy_backend import CupyBackend
from kn_cuda.device import cuda_device, cuda_unavailable_reasons
from kn_cuda.profile import Profile
from kn_cuda.selftest import ITEMS, checked
from kn_graph import DType, Graph, cpu_eval_graph
from kn_graph.errors import (
    DeviceUnavailableError,
    ExecutionError,
    InternalError,
    OutOfMemoryError,
    UsageError,
)
from kn_runtime import Device
from tests.cuda.standin.process import StandIn
from tests.cuda.test_device_arrays import appended, branch, numbers
from tests.cuda.test_networks import LAUNCHES, resnet18
from tests.cuda.test_repeated import counted, feeds

Array = np.ndarray[Any, Any]


@pytest.fixture(scope="module")
def gpu() -> CupyBackend:
    """Return the GPU."""
    return cuda_device()


@pytest.fixture
def cupy(gpu: CupyBackend) -> Any:
    """Return CuPy."""
    return gpu._cupy


def close(got: Any, want: Array) -> None:
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def product(rows: int = 64) -> Graph:
    """Return y = relu(x w + 1) w, which cuBLAS multiplies."""
    g = Graph("product")
    x = g.input("x", "float32", (rows, 256))
    w = g.constant(numbers(256, 256) / 16)
    g.output("y", g.matmul(g.relu(g.matmul(x, w) + 1.0), w))
    return g


# ---- all of it ------------------------------------------------------------------------------


def test_there_is_one_gpu(gpu: CupyBackend) -> None:
    assert gpu.arch == "sm_90"
    assert cuda_unavailable_reasons(0) == ()
    assert "there are 1 GPUs, and 1 is not one of them" in cuda_unavailable_reasons(1)
    assert next(str(d) for d in Device.available()) == "cuda:0"


@pytest.mark.parametrize("item", ITEMS.values(), ids=list(ITEMS))
def test_the_selftest_holds(item: selftest.Item, gpu: CupyBackend) -> None:
    checked(item, gpu)


def test_the_selftest_is_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert selftest.main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + len(ITEMS)
    assert lines[0].split() == ["ok", "device", "GPU", "0", "(sm_90),", "sm_90"]


@pytest.mark.parametrize("dtype", LAUNCHES)
def test_a_network_gives_the_same_at_once_and_from_a_graph(
    dtype: str, gpu: CupyBackend, standin: StandIn
) -> None:
    g = resnet18(dtype)
    x = np.random.default_rng(1).standard_normal((2, 3, 64, 64)).astype(DType.parse(dtype).numpy)
    run = CudaExecutor(g, gpu)
    first = run.eval({"x": x})["y"]
    assert run.proof.total == LAUNCHES[dtype]
    given = {"x": np.zeros_like(x)}
    call, before = run.bind(given), standin.graph_launches
    given["x"][...] = x
    for turn in range(3):
        call.run()
        assert call.outputs["y"].tobytes() == first.tobytes()
        assert standin.graph_launches == before + turn + 1
    want = cpu_eval_graph(g, {"x": x})["y"].astype(np.float64)
    digits = 2.0**-9 if dtype == "float16" else 2.0**-20
    assert np.abs(first - want).max() <= 4 * digits * np.abs(want).max()


def test_the_runtime_prepares_profiles_and_evaluates_beside_others() -> None:
    g, x = product(), numbers(64, 256)
    want = cpu_eval_graph(g, {"x": x})["y"]
    with Device.cuda().prepare(g) as prepared:
        close(prepared.eval([x])["y"], want)
        futures = [prepared.eval_async([x * k]) for k in (0, 1)]
        close(futures[1].result()["y"], want)
        found = prepared.profile([x], runs=3)
        assert isinstance(found, Profile)
        assert found.clock == "events of the GPU"
        assert all(step.time_us >= 0 for step in found.steps)


# ---- recorded runs --------------------------------------------------------------------------


def test_a_graph_is_one_launch_that_runs_what_was_captured(
    gpu: CupyBackend, standin: StandIn
) -> None:
    given, run = feeds(), CudaExecutor(counted(), gpu)
    call = run.bind(given)
    for name in ("x", "mask", "state"):
        given[name] += 1
        graphs, kernels = standin.graph_launches, standin.launches
        call.run()
        assert standin.graph_launches == graphs + 1
        assert standin.launches > kernels
        for output, want in cpu_eval_graph(run.graph, given).items():
            close(call.outputs[output], want)


def test_state_goes_on_in_graphs(gpu: CupyBackend) -> None:
    given, run = feeds(), CudaExecutor(counted(), gpu)
    call, want = run.bind(given, state={"after": "state"}, on_device=True), given["state"]
    for turn in range(4):
        if turn:
            call.run()
        want = cpu_eval_graph(run.graph, {**given, "state": want})["after"]
        close(call.outputs["after"].numpy(), want)


def test_what_a_graph_reads_outlives_all_but_the_call(gpu: CupyBackend) -> None:
    x, graphs = numbers(64, 256), (product(), counted())
    calls = [CudaExecutor(graphs[0], gpu).bind([x]), CudaExecutor(graphs[1], gpu).bind(feeds())]
    gc.collect()
    spoilt = [gpu.allocate(n) for n in (1 << k for k in range(9, 20)) for _ in range(4)]
    for memory in spoilt:
        gpu.write(memory.address, np.full(memory.nbytes, 0xFF, np.uint8))
    for graph, call, given in zip(graphs, calls, ({"x": x}, feeds()), strict=True):
        call.run()
        for name, want in cpu_eval_graph(graph, given).items():
            close(call.outputs[name], want)


def test_libraries_are_captured_too(gpu: CupyBackend, standin: StandIn) -> None:
    run, x = CudaExecutor(product(), gpu), np.zeros((64, 256), np.float32)
    call = run.bind([x])
    assert run.proof.kernels["gemm"] == 2
    for turn in (1, 2):
        x[...] = numbers(64, 256) * turn
        call.run()
        close(call.outputs["y"], cpu_eval_graph(run.graph, [x])["y"])


def test_what_kernels_find_in_the_data_is_an_error_each_time(gpu: CupyBackend) -> None:
    g = Graph("checked")
    x, i = g.input("x", "float32", (5, 3)), g.input("i", "int64", (2,))
    g.output("y", g.gather(x, i, 0))
    given = {"x": numbers(5, 3), "i": np.array([4, 0])}
    run = CudaExecutor(g, gpu)
    call = run.bind(given)

    def bound() -> Array:
        call.run()
        return call.outputs["y"]

    for index in (9, 1, 9):
        given["i"][0] = index
        for again in (lambda: run.eval(given)["y"], bound):
            if index == 9:
                with pytest.raises(ExecutionError, match="9"):
                    again()
            else:
                np.testing.assert_array_equal(again(), given["x"][[1, 0]])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_cublas_gets_every_kind_of_product(dtype: str, gpu: CupyBackend) -> None:
    """Operands that are turned, of two batches, one of which is repeated; odd sizes."""
    g = Graph("products")
    a, b = g.input("a", dtype, (3, 2, 130, 50)), g.input("b", dtype, (2, 50, 131))
    turned = g.permute(g.input("c", dtype, (131, 50)), (1, 0))
    g.output("batches", g.matmul(a, b))
    g.output("turned", g.matmul(a, turned))
    run, rng = CudaExecutor(g, gpu), np.random.default_rng(0)
    given = {v.name: rng.standard_normal(v.shape).astype(v.dtype.numpy) for v in g.inputs}
    got, want = run.eval(given), cpu_eval_graph(g, given)
    assert run.proof.kernels["gemm"] >= 1
    digits = {"float16": 2.0**-10, "bfloat16": 2.0**-7}.get(dtype, 2.0**-19)
    for name, x in want.items():
        error = np.abs(got[name].astype(np.float64) - x.astype(np.float64)).max()
        assert error <= digits * np.abs(x.astype(np.float64)).max()


def test_a_capture_that_fails_leaves_the_stream_as_it_was(gpu: CupyBackend) -> None:
    def fail() -> None:
        raise UsageError("this one")

    with pytest.raises(UsageError, match="this one"):
        gpu.capture([fail])
    checked(ITEMS["products, by cuBLAS"], gpu)


def test_leave_is_asked_for_more_shared_memory(
    gpu: CupyBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    launch = gpu.launch

    def hungry(nbytes: int, kernel: Any, grid: Any, block: Any, _: int, *rest: Any) -> None:
        launch(kernel, grid, block, nbytes, *rest)

    for nbytes in (100 << 10, 200 << 10, 0):
        monkeypatch.setattr(gpu, "launch", partial(hungry, nbytes))
        checked(ITEMS["joins"], gpu)
    monkeypatch.setattr(gpu, "launch", partial(hungry, 228 << 10))
    with pytest.raises(RuntimeError, match="more shared memory than a block may have"):
        checked(ITEMS["joins"], gpu)


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
    from kn_graph.ops.control import If

    g = Graph("branches")
    x, up = g.input("x", "float32", (64, 8)), g.input("up", "bool", ())
    (y,) = g.push_all(If(branch("then", 1.0), branch("else", -1.0)), up, x * 2.0)
    g.output("y", y * 3.0)
    run = CudaExecutor(g, gpu)
    for flag in (True, False):
        given = {"x": numbers(64, 8), "up": np.array(flag)}
        close(run.eval(given)["y"], cpu_eval_graph(g, given)["y"])


# ---- what goes wrong ------------------------------------------------------------------------


def test_memory_that_is_not_there_is_said_and_the_device_goes_on(
    gpu: CupyBackend, standin: StandIn
) -> None:
    left = standin.memory
    try:
        standin.memory = 1 << 20
        with pytest.raises(OutOfMemoryError, match="GPU 0"):
            gpu.allocate(1 << 30)
        assert gpu.available_bytes() < 1 << 30
    finally:
        standin.memory = left
    checked(ITEMS["softmax"], gpu)


@pytest.mark.parametrize(
    ("module", "item", "said"),
    [
        ("cupy_backends.cuda.libs.cublas", "products, by cuBLAS", "products need cuBLAS"),
        ("cudnn", "convolutions", "convolutions need cuDNN"),
    ],
)
def test_a_library_that_is_not_installed_is_named(
    module: str, item: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.delattr(sys.modules["cupy_backends.cuda.libs"], "cublas", raising=False)
    with pytest.raises(DeviceUnavailableError, match=rf"{said}.*install 'kn-engine\[cuda12\]'"):
        checked(ITEMS[item], CupyBackend())


def test_a_refusal_of_cublas_says_what_was_asked(gpu: CupyBackend) -> None:
    request = Gemm(DType.FLOAT32, DType.FLOAT32, False, False)
    with pytest.raises(InternalError, match=r"cuBLAS refuses .* with status 7"):
        gpu._cublas.gemm(request, [0, 0, 0], [-1, 2, 2, 2, 2, 2, 1, 0, 0, 0, 1, 0, 0, 0])


def test_a_library_in_another_stream_shows(
    gpu: CupyBackend, standin: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the stand-in is for: nothing orders this but the stream."""
    if standin.is_eager:
        pytest.skip("work that is done at once is in order whatever stream it is in")
    elsewhere = Cublas(gpu._cupy.cuda.Stream.null.ptr, gpu.arch, gpu.allocate)
    monkeypatch.setattr(gpu, "_cublas", elsewhere)
    with pytest.raises(InternalError):
        checked(ITEMS["products, by cuBLAS"], gpu)
