"""The whole stack on the stand-in: `tests/cuda/test_standin.py` runs this in its own process."""

from __future__ import annotations

import gc
import sys
from functools import partial
from typing import Any

import numpy as np
import pytest

from kn_cuda import CudaExecutor, selftest
from kn_cuda.calls import Gemm
from kn_cuda.cublas_backend import Cublas
from kn_cuda.cupy_backend import CupyBackend
from kn_cuda.device import cuda_unavailable_reasons
from kn_cuda.profile import Profile
from kn_cuda.repeated import RepeatedCall
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
from tests.cuda.run import host_backend
from tests.cuda.standin.process import StandIn
from tests.cuda.test_device_arrays import numbers
from tests.cuda.test_networks import LAUNCHES, resnet18
from tests.cuda.test_repeated import counted, feeds

Array = np.ndarray[Any, Any]


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


@pytest.mark.parametrize("out", ["float16", "float32"])
@pytest.mark.parametrize(
    "numbers_of_call",
    [
        # m, n, k, steps between lines of a, b and c, then each batch: size, steps in a, b and c
        (5, 7, 3, 4, 9, 8, 2, 130, 200, 330, 3, 40, 60, 100),
        (1, 7, 3, 0, 7, 7, 1, 0, 0, 0, 2, 3, 21, 7),  # a line alone, and one column: no step
        (5, 7, 1, 1, 0, 7, 2, 5, 7, 35, 1, 0, 0, 0),
    ],
)
def test_a_library_reads_steps_as_numpy_does(
    numbers_of_call: tuple[int, ...], out: str, gpu: CupyBackend
) -> None:
    request = Gemm(DType.FLOAT16, DType.parse(out), False, False)
    rng = np.random.default_rng(0)
    data = [rng.standard_normal(700).astype(np.float16) for _ in range(2)]
    found = []
    for backend in (gpu, host_backend()):
        memory = [backend.allocate(x.nbytes) for x in data]
        for place, x in zip(memory, data, strict=True):
            backend.write(place.address, x)
        memory.append(backend.allocate(700 * 4))
        backend.zero(memory[2].address, 700 * 4)
        pointers = np.array([m.address for m in memory])
        backend.library(request, pointers, np.array(numbers_of_call))
        found.append(backend.read(memory[2].address, 700 * 4).view(request.out.numpy))
    assert np.count_nonzero(found[1]) > 10
    np.testing.assert_allclose(found[0], found[1], rtol=2e-3, atol=2e-3)


def test_uploads_wait_for_the_last_one(gpu: CupyBackend) -> None:
    """Runs are started one behind another; what they read is not overwritten before they do."""
    given, run = feeds(), CudaExecutor(counted(), gpu)
    call = RepeatedCall(run, run.open(given, None), {"after": "state"})
    want = given["state"]
    for turn in range(4):
        given["x"][...] = numbers(4, 16) * turn if turn else given["x"]
        want = cpu_eval_graph(run.graph, {**given, "state": want})["after"]
        if turn:
            call.start()
    call.finish()
    close(call.outputs["after"].numpy(), want)


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
