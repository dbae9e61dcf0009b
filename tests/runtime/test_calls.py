"""Ways of calling a prepared graph: threads, futures, batches, warm plans, a limit of memory."""

from __future__ import annotations

import asyncio
import sys
from concurrent.futures import CancelledError, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from threading import Event
from types import ModuleType
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto

import kn_runtime
from kn_cpu.native import library
from kn_graph import load_graph_from_onnx_bytes
from kn_graph.errors import (
    InputDTypeError,
    InputShapeError,
    MissingInputError,
    OutOfMemoryError,
    SymbolError,
    UsageError,
)
from kn_plan.recent import KEPT, Recent
from kn_runtime import Device, PreparedGraph, PrepareOptions
from models.architectures import ARCHITECTURES
from models.generate import NAMES, inputs, model_bytes
from tests.small_models import info, model, node

PLANNED = pytest.mark.skipif(library() is None, reason="there are no native kernels")

F32 = np.float32


def network(name: str, **options: Any) -> PreparedGraph:
    graph = load_graph_from_onnx_bytes(model_bytes(name))
    return Device.cpu().prepare(graph, options=PrepareOptions(**options))


def doubled(device: str = "cpu", **options: Any) -> PreparedGraph:
    proto = model([node("Add", "x x", "y")], [info("x", ["n", 3])])
    return kn_runtime.load(proto, device, options=PrepareOptions(**options))


def rows(count: int) -> dict[str, Any]:
    return {"x": np.arange(3 * count, dtype=F32).reshape(count, 3)}


# ---- threads -------------------------------------------------------------------------------


def sized(name: str, batch: int) -> dict[str, Any]:
    """Return inputs of a generated model for another batch, of other elements."""
    return inputs(name, batch, **({"batch": batch} if "batch" in ARCHITECTURES[name].dims else {}))


@pytest.mark.parametrize("name", NAMES)
def test_eight_threads_with_different_sizes_get_the_bits_of_one(name: str) -> None:
    calls = [sized(name, 1 + k % 5) for k in range(10)]
    alone = [network(name).eval(call) for call in calls]
    shared = network(name)
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(shared.eval, calls * 2))
    for a, b in zip(together, alone * 2, strict=True):
        assert {n: x.tobytes() for n, x in a.items()} == {n: x.tobytes() for n, x in b.items()}


# ---- futures -------------------------------------------------------------------------------


@pytest.mark.parametrize("device", ["reference", "cpu"])
def test_an_asynchronous_call_returns_what_eval_returns(device: str) -> None:
    prepared = doubled(device)
    pending = [prepared.eval_async(rows(k)) for k in range(1, 9)]
    assert not wait_for(pending, timeout=60).not_done
    for k, p in enumerate(pending, 1):
        np.testing.assert_array_equal(p.result()["y"], 2 * rows(k)["x"])


def test_asynchronous_calls_are_awaited() -> None:
    prepared = doubled()

    async def both() -> list[Any]:
        first = await prepared.eval_async(rows(2))
        rest = await asyncio.gather(*[prepared.eval_async(rows(k)) for k in (3, 4)])
        with pytest.raises(MissingInputError):
            await prepared.eval_async({})
        return [first, *rest]

    assert [o["y"].shape[0] for o in asyncio.run(both())] == [2, 3, 4]


def test_an_error_is_that_of_the_call() -> None:
    with pytest.raises(InputShapeError, match="axis 1 has size 4"):
        doubled().eval_async({"x": np.zeros((1, 4), F32)}).result(timeout=60)


def test_a_call_that_waits_can_be_cancelled_and_ends_with_the_graph() -> None:
    prepared = doubled()
    gate = Event()
    busy = [prepared._pool.submit(lambda: {"y": gate.wait(60)}) for _ in range(8)]
    cancelled, closed = prepared.eval_async(rows(1)), prepared.eval_async(rows(1))
    assert cancelled.cancel()
    prepared.close()
    gate.set()
    assert all(p.result(timeout=60)["y"] for p in busy)
    with pytest.raises(CancelledError):
        cancelled.result(timeout=60)
    with pytest.raises(UsageError, match="is closed"):
        closed.result(timeout=60)


CLOSED = {
    "eval_async": lambda p: p.eval_async(rows(1)),
    "eval_many": lambda p: p.eval_many([rows(1)]),
    "warmup": lambda p: p.warmup({"x": (1, 3)}),
    "cache_info": lambda p: p.cache_info(),
}


@pytest.mark.parametrize("call", CLOSED.values(), ids=CLOSED)
def test_a_closed_graph_refuses_all_calls(call: Any) -> None:
    with doubled() as prepared:
        assert not prepared.is_closed
    assert prepared.is_closed
    with pytest.raises(UsageError, match=r"closed> is closed; prepare the graph again"):
        call(prepared)


class ClosedMeanwhile(PreparedGraph):
    """Another thread closes it right after it was found open."""

    @property
    def _closed(self) -> bool:
        self._executor = None
        return False

    @_closed.setter
    def _closed(self, closed: bool) -> None:
        pass


@PLANNED
@pytest.mark.parametrize("call", ["eval", "bind"])
def test_a_call_that_began_before_the_close_never_turns_to_the_reference(
    call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = doubled().eval(rows(2))["y"]
    graph = ClosedMeanwhile(doubled().graph, Device.cpu(), {}, PrepareOptions())
    monkeypatch.setattr("kn_runtime.prepared.cpu_eval_graph", None)
    found = graph.eval(rows(2)) if call == "eval" else graph.bind(rows(2)).outputs
    np.testing.assert_array_equal(found["y"], wanted)


# ---- warm plans ----------------------------------------------------------------------------


@PLANNED
@pytest.mark.parametrize("call", [{"x": (4, 3)}, rows(4), [(4, 3)], [rows(4)["x"]]], ids=str)
def test_after_a_warm_up_calls_find_their_plan(call: Any) -> None:
    prepared = doubled()
    prepared.warmup(call, {"x": (7, 3)})
    before = prepared.cache_info()
    assert (before.hits, before.misses, before.kept) == (0, 2, 2)
    for k in (4, 7, 4):
        prepared.eval(rows(k))
    after = prepared.cache_info()
    assert (after.hits, after.misses, after.kept) == (3, 2, 2)
    assert after.limit == KEPT


@PLANNED
def test_a_graph_warms_up_for_the_sizes_it_was_prepared_for() -> None:
    g = doubled().graph
    prepared = Device.cpu().prepare(g, {"n": 5})
    prepared.warmup()
    prepared.eval(rows(5))
    assert prepared.cache_info().hits == 1
    doubled().warmup(dims={"n": 2})
    with pytest.raises(UsageError, match=r"input 'x' \(float32\[n, 3\]\) does not say"):
        doubled().warmup()


def test_what_is_not_all_tensors_warms_up_with_values() -> None:
    proto = model(
        [node("StringConcat", "a b", "c")],
        [info(n, ["n"], TensorProto.STRING) for n in "ab"],
        [info("c", ["n"], TensorProto.STRING)],
    )
    kn_runtime.load(proto).warmup({"a": (2,), "b": np.array(["x", "y"])})


def test_what_was_used_last_is_kept() -> None:
    recent = Recent[int]()
    for k in range(KEPT):
        recent.keep(k, k)
    for k in range(KEPT, 5 * KEPT):
        assert recent.get(3) == 3
        recent.keep(k, k)
    assert len(recent) == KEPT
    assert recent.get(3) == 3
    assert recent.get(4) is None
    assert (recent.hits, recent.misses) == (4 * KEPT + 1, 1)


@PLANNED
def test_a_graph_says_what_it_is() -> None:
    prepared = doubled(memory_limit=10**9, threads=2)
    prepared.eval(rows(2))
    prepared.eval(rows(2))
    assert repr(prepared) == (
        "<PreparedGraph 'small' on cpu: 1 steps, 1 set of sizes bound (at most 64), "
        "found by 1 of 2 calls>"
    )
    lines = dict(line.split("  ", 1) for line in str(prepared).splitlines())
    table = {label: text.strip() for label, text in lines.items()}
    assert table["input x"] == "float32[n, 3]"
    assert table["output y"] == "float32[n, 3]"
    assert table["free sizes"] == "n"
    assert table["memory limit"] == "1,000,000,000 bytes a call"
    html = prepared._repr_html_()
    assert html.count("<tr>") == len(lines)
    assert "<th>input x</th><td>float32[n, 3]</td>" in html
    prepared.close()
    assert repr(prepared) == "<PreparedGraph 'small' on cpu, closed>"
    assert "closed" in str(prepared)


# ---- a limit of memory ---------------------------------------------------------------------


@PLANNED
def test_a_call_beyond_the_limit_is_refused_before_it_runs() -> None:
    prepared = doubled(memory_limit=10_000)
    prepared.eval(rows(100))
    with pytest.raises(OutOfMemoryError, match=r"12,000 bytes.*10,000 are allowed by memory_limit"):
        prepared.eval(rows(1000))
    prepared.eval(rows(100))


@PLANNED
def test_results_whose_size_shows_while_it_runs_count_as_well() -> None:
    proto = model(
        [node("NonZero", "x", "y")], [info("x", ["n"])], [info("y", None, TensorProto.INT64)]
    )
    prepared = kn_runtime.load(proto, options=PrepareOptions(memory_limit=2000))
    assert prepared.eval({"x": np.zeros(1000, F32)})["y"].shape == (1, 0)
    with pytest.raises(OutOfMemoryError):
        prepared.eval({"x": np.ones(1000, F32)})


def test_the_reference_knows_no_limit() -> None:
    with pytest.raises(UsageError, match="memory_limit needs a plan"):
        doubled("reference", memory_limit=1000)


# ---- batches -------------------------------------------------------------------------------


@PLANNED
@pytest.mark.parametrize(("max_batch", "runs"), [(None, 1), (6, 4), (1, 6)])
def test_calls_run_together_up_to_a_number_of_rows(max_batch: int | None, runs: int) -> None:
    prepared = doubled()
    calls = [rows(k) for k in (1, 4, 3, 2, 9, 0)]
    found = prepared.eval_many(calls, max_batch=max_batch)
    for call, outputs in zip(calls, found, strict=True):
        np.testing.assert_array_equal(outputs["y"], 2 * call["x"])
        assert outputs["y"].flags.owndata or outputs["y"].base is None
    info = prepared.cache_info()
    assert info.hits + info.misses == runs


def test_calls_of_other_sizes_run_by_themselves() -> None:
    proto = model([node("Mul", "x y", "z")], [info("x", ["n", "k"]), info("y", ["n", "k"])], ["z"])
    prepared = kn_runtime.load(proto)
    rng = np.random.default_rng(0)
    shapes = [(2, 5), (1, 4), (3, 5), (2, 4)]
    calls = [[rng.random(s, F32), rng.random(s, F32)] for s in shapes]
    for (x, y), outputs in zip(calls, prepared.eval_many(calls), strict=True):
        np.testing.assert_array_equal(outputs["z"], x * y)


@pytest.mark.parametrize("name", ["transformer_layer", "residual_cnn"])
def test_networks_give_in_batches_what_they_give_alone(name: str) -> None:
    prepared = network(name)
    calls = [sized(name, k) for k in (1, 3, 2)]
    for call, outputs in zip(calls, prepared.eval_many(calls), strict=True):
        for key, expected in prepared.eval(call).items():
            np.testing.assert_allclose(outputs[key], expected, rtol=1e-4, atol=1e-5)


NO_BATCH = {
    "fixed": (model([node("Neg", "x", "y")], [info("x", [2])]), r"input 'x' is float32\[2\]"),
    "scalar": (
        model([node("Add", "x s", "y")], [info("x"), info("s", [])]), r"input 's' is float32\[\]"
    ),
    "two": (
        model([node("Add", "x w", "y"), node("Neg", "z", "q")], [info("x"), info("z", ["m"])],
              ["y", "q"], {"w": np.ones(1, F32)}),
        "first axes are m, n",
    ),
    "reduced": (
        model([node("ReduceSum", "x", "y", keepdims=0)], [info("x")]), "output 'y' is"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NO_BATCH)
def test_a_graph_without_a_batch_is_refused_and_says_why(name: str) -> None:
    proto, why = NO_BATCH[name]
    with pytest.raises(UsageError, match=why):
        kn_runtime.load(proto).eval_many([])


def test_wrong_calls_in_a_batch_are_refused() -> None:
    proto = model([node("Add", "x y", "z")], [info("x"), info("y")], ["z"])
    with pytest.raises(SymbolError, match="call 1: inputs have different numbers of rows: 'x' 2"):
        kn_runtime.load(proto).eval_many(
            [[np.ones(1, F32)] * 2, [np.ones(2, F32), np.ones(3, F32)]]
        )
    with pytest.raises(UsageError, match="got 0"):
        doubled().eval_many([rows(1)], max_batch=0)
    assert doubled().eval_many([]) == []


# ---- arrays of other libraries -------------------------------------------------------------


def test_a_picture_is_its_pixels() -> None:
    image = pytest.importorskip("PIL.Image")
    pixels = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)
    proto = model(
        [node("Identity", "x", "y")],
        [info("x", ["h", "w", 3], TensorProto.UINT8)],
        [info("y", None, TensorProto.UINT8)],
    )
    found = kn_runtime.load(proto).eval({"x": image.fromarray(pixels)})["y"]
    np.testing.assert_array_equal(found, pixels)
    floats = kn_runtime.load(model([node("Neg", "x", "y")], [info("x", [2, 4, 3])]))
    with pytest.raises(InputDTypeError, match=r"got uint8\[2, 4, 3\]"):
        floats.eval({"x": image.fromarray(pixels)})


class Elsewhere:
    """An array that lies on a GPU."""

    def __dlpack__(self, **options: Any) -> Any:
        raise AssertionError("nobody asks for it")

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 1


def test_an_array_on_a_gpu_is_not_copied_silently() -> None:
    with pytest.raises(InputDTypeError, match=r"lies on another device.*kind 2, number 1"):
        doubled().eval({"x": Elsewhere()})


class Bits:
    """A tensor as PyTorch has them, of numbers that DLPack does not hand to NumPy."""

    dtype = "torch.bfloat16"
    requires_grad = True

    def __init__(self, array: Any) -> None:
        self.array = array

    def detach(self) -> Bits:
        found = Bits(self.array)
        found.requires_grad = False
        return found

    def view(self, dtype: str) -> Any:
        assert not self.requires_grad
        return self.array.view(dtype)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0

    def __dlpack__(self, **options: Any) -> Any:
        raise AssertionError("NumPy has no bfloat16")


def test_bfloat16_of_pytorch_comes_by_its_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = ModuleType("torch")
    torch.int16 = "int16"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", torch)
    proto = model(
        [node("Identity", "x", "y")],
        [info("x", [2], TensorProto.BFLOAT16)],
        [info("y", [2], TensorProto.BFLOAT16)],
    )
    x = np.array([1.5, -2], ml_dtypes.bfloat16)
    found = kn_runtime.load(proto).eval({"x": Bits(x)})["y"]
    assert found.dtype == ml_dtypes.bfloat16
    assert found.tolist() == [1.5, -2]


def test_tensors_of_pytorch_are_read_where_they_are() -> None:
    torch = pytest.importorskip("torch")
    prepared = doubled()
    x = torch.arange(6, dtype=torch.float32).reshape(3, 2).T
    for tensor in (x, x.clone().requires_grad_()):
        np.testing.assert_array_equal(prepared.eval({"x": tensor})["y"], 2 * x.numpy())
