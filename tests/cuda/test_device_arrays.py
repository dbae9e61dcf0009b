"""Arrays that stay on the device: between calls, from and to other libraries, in control flow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from kn_cuda import CudaExecutor, CudaOptions, HostBackend
from kn_cuda.array import DeviceArray, lies_on_gpu
from kn_graph import Graph, cpu_eval_graph
from kn_graph.dtype import DType
from kn_graph.errors import InputDTypeError, InputShapeError
from kn_graph.ops.control import If, Loop
from kn_graph.ops.layout import Concat
from tests.cuda.run import host_backend, needs_compiler

pytestmark = needs_compiler

Array = np.ndarray[Any, Any]


def numbers(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


@dataclass(frozen=True)
class OnGpu:
    """An array that says that it is on a GPU, by `__cuda_array_interface__`."""

    array: Array

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {**self.array.__array_interface__, "version": 3, "stream": 1}


@dataclass(frozen=True)
class OnGpuByDlpack:
    """The same, by DLPack."""

    array: Array

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)


def appended() -> Graph:
    """Return a cache that grows: what is new is doubled, and joins the past along axis 1."""
    g = Graph("cache")
    past = g.input("past", "float32", (2, g.symbol("p", lo=0), 8))
    new = g.input("new", "float32", (2, "s", 8))
    present = g.push(Concat(1), past, new * 2.0)
    g.output("present", present)
    g.output("sums", g.reduce("sum", present, (2,)))
    return g


def executor(graph: Graph, options: CudaOptions | None = None) -> CudaExecutor:
    return CudaExecutor(graph, host_backend(), options)


def test_results_that_stay_are_inputs_of_the_next_call() -> None:
    run, graph = executor(appended()), appended()
    past: Any = np.zeros((2, 0, 8), np.float32)
    want = past
    for turn in range(4):
        new = numbers(2, 1 + turn % 2, 8)
        uploads, downloads = run.proof.uploads, run.proof.downloads
        found = run.eval({"past": past, "new": new}, on_device=True)
        assert run.proof.uploads - uploads == new.nbytes
        assert run.proof.downloads == downloads
        want = cpu_eval_graph(graph, {"past": want, "new": new})["present"]
        past = found["present"]
        assert isinstance(past, DeviceArray)
        np.testing.assert_array_equal(past.numpy(), want)
    assert repr(past) == "DeviceArray(float32[2, 6, 8] on the host in place of a GPU)"


@pytest.mark.parametrize("kind", [OnGpu, OnGpuByDlpack])
def test_arrays_of_other_libraries_are_read_where_they_are(kind: Any) -> None:
    run = executor(appended())
    whole = np.zeros(2 * 3 * 8 + 4, np.float32)
    start = -(whole.ctypes.data // 4) % 4
    past = whole[start:][: 2 * 3 * 8].reshape(2, 3, 8)
    past[...] = numbers(2, 3, 8)
    new = numbers(2, 1, 8)
    found = run.backend.adopt(kind(past))
    assert found is not None
    assert found.memory.address == past.ctypes.data
    before = run.proof.uploads
    got = run.eval({"past": kind(past), "new": new})
    assert run.proof.uploads - before == new.nbytes
    want = cpu_eval_graph(run.graph, {"past": past, "new": new})
    np.testing.assert_array_equal(got["present"], want["present"])


@pytest.mark.parametrize(
    "strange",
    [numbers(2, 8, 3).transpose(0, 2, 1), numbers(2 * 3 * 8 + 1)[1:].reshape(2, 3, 8)],
    ids=["turned", "no multiple of 16 bytes"],
)
def test_other_layouts_are_copied_on_the_device(strange: Array) -> None:
    run, new = executor(appended()), numbers(2, 1, 8)
    found = run.backend.adopt(OnGpu(strange))
    assert found is not None
    assert found.memory.address % 16 == 0
    assert found.memory.address != strange.ctypes.data
    got = run.eval([OnGpu(strange), new])
    want = cpu_eval_graph(run.graph, {"past": strange, "new": new})
    np.testing.assert_array_equal(got["present"], want["present"])


def test_results_are_handed_to_other_libraries_on_the_same_memory() -> None:
    run = executor(appended())
    y = run.eval([numbers(2, 3, 8), numbers(2, 1, 8)], on_device=True)["sums"]
    view = np.from_dlpack(y)
    assert view.ctypes.data == y.memory.address
    np.testing.assert_array_equal(view, y.numpy())
    kept = y.memory.address
    del y
    assert view.ctypes.data == kept  # NumPy keeps the memory
    assert not lies_on_gpu(view)


def test_what_does_not_fit_is_said_of_device_arrays_as_of_others() -> None:
    run, new = executor(appended()), numbers(2, 1, 8)
    with pytest.raises(InputDTypeError, match="'past'"):
        run.eval([OnGpu(np.zeros((2, 1, 8))), new])
    with pytest.raises(InputShapeError, match="'past'"):
        run.eval([OnGpu(numbers(2, 8)), new])
    with pytest.raises(InputShapeError, match="axis 2 has size 9"):
        run.eval([OnGpu(numbers(2, 1, 9)), new])


def test_outputs_that_are_inputs_or_one_another_have_memory_of_their_own() -> None:
    g = Graph("same")
    x = g.input("x", "float32", (2, 3))
    y = x + 1.0
    for name, v in {"x2": x, "turned": g.permute(x, (1, 0)), "y": y, "y2": y}.items():
        g.output(name, v)
    run = executor(g)
    given = run.backend.adopt(OnGpu(numbers(2, 3).copy()))
    found = run.eval([given], on_device=True)
    want = cpu_eval_graph(g, [given.numpy() if given else None])
    for name, a in found.items():
        np.testing.assert_array_equal(a.numpy(), want[name])
    places = [a.memory.address for a in (given, *found.values()) if a is not None]
    assert len(set(places)) == len(places) == 5


def branch(name: str, added: float) -> Graph:
    body = Graph(name)
    x = body.input("x", "float32", (64, 8))
    body.output("y", x + added)
    return body


def test_branches_hand_on_what_lies_on_the_device() -> None:
    g = Graph("branches")
    x, up = g.input("x", "float32", (64, 8)), g.input("up", "bool", ())
    (y,) = g.push_all(If(branch("then", 1.0), branch("else", -1.0)), up, x * 2.0)
    g.output("y", y * 3.0)
    run, given = executor(g), numbers(64, 8)
    for flag in (True, False):
        before = run.proof.downloads
        got = run.eval({"x": given, "up": np.array(flag)})["y"]
        np.testing.assert_array_equal(got, cpu_eval_graph(g, [given, np.array(flag)])["y"])
        assert run.proof.downloads - before == 1 + given.nbytes  # the condition, and the result


def test_branches_get_turned_operands_in_order() -> None:
    g = Graph("turned")
    x, up = g.input("x", "float32", (8, 64)), g.input("up", "bool", ())
    turned = g.permute(x, (1, 0))
    g.output("y", g.push(If(branch("then", 1.0), branch("else", -1.0)), up, turned))
    given = {"x": numbers(8, 64), "up": np.array(True)}
    np.testing.assert_array_equal(executor(g).eval(given)["y"], given["x"].T + 1)


def test_loops_carry_on_the_device() -> None:
    body = Graph("body")
    body.input("i", "int64", ())
    going = body.input("going", "bool", ())
    x = body.input("x", "float32", (64, 8))
    body.output("go", going)
    body.output("x2", x * 1.5)
    body.output("row", g_sum(body, x))
    g = Graph("loop")
    x = g.input("x", "float32", (64, 8))
    trip = g.input("trip", "int64", ())
    y, rows = g.push_all(Loop(body, 1, 1, True, False), trip, x + 1.0)
    g.output("y", y)
    g.output("rows", rows)
    run, given = executor(g), numbers(64, 8)
    for count in (3, 0):
        feeds = {"x": given, "trip": np.array(count)}
        before, got = run.proof.downloads, run.eval(feeds)
        for name, want in cpu_eval_graph(g, feeds).items():
            np.testing.assert_allclose(got[name], want, rtol=1e-6)
        assert run.proof.downloads - before < 2 * given.nbytes


def g_sum(g: Graph, x: Any) -> Any:
    return g.reduce("sum", x, (0, 1))


def test_device_arrays_know_their_bytes() -> None:
    run = executor(appended())
    assert isinstance(run.backend, HostBackend)
    x = DeviceArray(run.backend.allocate(48), DType.FLOAT32, (3, 4), run.backend)
    assert x.nbytes == 48
    assert x.stand_in().shape == (3, 4)
    assert DeviceArray(x.memory, DType.FLOAT32, (0, 4), run.backend).numpy().shape == (0, 4)
