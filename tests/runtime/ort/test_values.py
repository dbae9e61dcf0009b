"""OrtValue and IOBinding do what onnxruntime's do."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import kn_runtime.ort
from tests.runtime.ort.both import F32, assert_same, both, session

A = np.arange(6, dtype=F32).reshape(2, 3)


def facts(value: Any) -> Any:
    """Return all that a value says of itself."""
    return [
        value.shape(), value.data_type(), value.element_type(), value.device_name(),
        value.is_tensor(), value.is_tensor_sequence(), value.is_sparse_tensor(),
        value.has_value(), value.tensor_size_in_bytes(), value.numpy(),
    ]  # fmt: skip


def _updated(module: ModuleType, data: Any) -> Any:
    value = module.OrtValue.ortvalue_from_numpy(A.copy())
    value.update_inplace(data)
    return value.numpy()


VALUES: dict[str, Callable[[ModuleType], Any]] = {
    "float": lambda m: facts(m.OrtValue.ortvalue_from_numpy(A)),
    "column order": lambda m: facts(m.OrtValue.ortvalue_from_numpy(np.asfortranarray(A))),
    "rank 0": lambda m: facts(m.OrtValue.ortvalue_from_numpy(np.array(3))),
    "empty": lambda m: facts(m.OrtValue.ortvalue_from_numpy(A[:0])),
    "on cpu": lambda m: facts(m.OrtValue.ortvalue_from_numpy(A, "cpu", 0)),
    "list": lambda m: m.OrtValue.ortvalue_from_numpy([1, 2]),
    "texts": lambda m: m.OrtValue.ortvalue_from_numpy(np.array(["a"])),
    "on cuda": lambda m: m.OrtValue.ortvalue_from_numpy(A, "cuda", 0),
    "on nothing": lambda m: m.OrtValue.ortvalue_from_numpy(A, "nothing", 0),
    "by shape": lambda m: facts(m.OrtValue.ortvalue_from_shape_and_type([2, 3], F32))[:-1],
    "by number": lambda m: facts(m.OrtValue.ortvalue_from_shape_and_type((2,), 7))[:-1],
    "by dtype": lambda m: facts(m.OrtValue.ortvalue_from_shape_and_type([2], np.dtype("f8")))[:-1],
    "bfloat16": lambda m: m.OrtValue.ortvalue_from_numpy_with_onnx_type(
        np.ones(2, np.uint16), 16
    ).data_type(),
    "other width": lambda m: m.OrtValue.ortvalue_from_numpy_with_onnx_type(
        np.ones(2, np.uint16), 1
    ),
    "DLPack in": lambda m: facts(m.OrtValue.from_dlpack(A.copy())),
    "DLPack out": lambda m: np.from_dlpack(m.OrtValue.ortvalue_from_numpy(A.copy())),
    "array": lambda m: np.asarray(m.OrtValue.ortvalue_from_numpy(A)),
    "updated": lambda m: _updated(m, A + 1),
    "updated by value": lambda m: _updated(m, m.OrtValue.ortvalue_from_numpy(A + 2)),
    "updated by more": lambda m: _updated(m, np.ones((3, 3), F32)),
    "device": lambda m: [
        (d.device_id(), d.device_type(), d.device_mem_type())
        for d in (m.OrtDevice.make("cpu", 0), m.OrtDevice.make("cpu", 1))
    ],
    "unknown device": lambda m: m.OrtDevice.make("nothing", 0),
    "memory": lambda m: (
        m.OrtMemoryInfo("Cpu", m.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, m.OrtMemType.DEFAULT).name
    ),
}


@pytest.mark.parametrize("call", VALUES.values(), ids=VALUES)
def test_values(call: Callable[[ModuleType], Any]) -> None:
    theirs, ours = both(call)
    kernel = any(t in theirs.text for t in ("onnxruntime_src", "this package"))
    assert_same(theirs, ours, words=not kernel)


@pytest.mark.parametrize("x", [A.copy(), np.zeros((0, 2), F32)], ids=["some", "none"])
def test_a_value_of_a_contiguous_array_is_on_its_memory(x: Any) -> None:
    value = kn_runtime.ort.OrtValue.ortvalue_from_numpy(x)
    assert value.data_ptr() == x.ctypes.data
    assert np.shares_memory(value.numpy(), x) or not x.size


# ---- runs on values ------------------------------------------------------------------------


def _values(module: ModuleType, **arrays: Any) -> dict[str, Any]:
    return {n: module.OrtValue.ortvalue_from_numpy(x) for n, x in arrays.items()}


RUNS: dict[str, Callable[[ModuleType, Any], Any]] = {
    "all": lambda m, s: [v.numpy() for v in s.run_with_ort_values(None, _values(m, a=A, b=A))],
    "some": lambda m, s: [facts(v) for v in s.run_with_ort_values(["z"], _values(m, a=A, b=A))],
    "unknown output": lambda m, s: s.run_with_ort_values(["q"], _values(m, a=A, b=A)),
    "missing": lambda m, s: s.run_with_ort_values(None, _values(m, a=A)),
    "type": lambda m, s: s.run_with_ort_values(None, _values(m, a=A, b=A.astype("f8"))),
    "array": lambda m, s: s.run_with_ort_values(None, {**_values(m, a=A), "b": A}),
}


@pytest.mark.parametrize("call", RUNS.values(), ids=RUNS)
def test_runs_on_values(call: Callable[[ModuleType, Any], Any]) -> None:
    theirs, ours = both(lambda module: call(module, session(module, "sub")))
    assert_same(theirs, ours, words=theirs.error != "AttributeError")


# ---- bindings ------------------------------------------------------------------------------


class Bound:
    """A session with a binding whose inputs are bound, and memory for a result."""

    def __init__(self, module: ModuleType) -> None:
        self.module, self.session = module, session(module, "sub")
        self.binding = self.session.io_binding()
        self.a, self.b, self.out = A.copy(), A.copy() + 1, np.zeros((2, 3), F32)
        self.binding.bind_cpu_input("a", self.a)
        self.binding.bind_cpu_input("b", self.b)

    def run(self) -> list[Any]:
        self.session.run_with_iobinding(self.binding)
        return list(self.binding.copy_outputs_to_cpu())

    def into(self, shape: Any = (2, 3), dtype: Any = F32) -> Any:
        memory = np.zeros(shape, dtype)
        self.binding.bind_output("z", "cpu", 0, dtype, list(shape), memory.ctypes.data)
        return memory, self.run()


def _both_outputs(bound: Bound) -> Any:
    bound.binding.bind_output("z")
    bound.binding.bind_output("y", "cpu")
    return bound.run(), [facts(v) for v in bound.binding.get_outputs()]


def _changed(bound: Bound) -> Any:
    bound.binding.bind_output("y")
    first = bound.run()
    bound.a[...] = 9  # what is bound is read at each run
    return first, bound.run()


def _rebound(bound: Bound) -> Any:
    bound.binding.bind_output("y")
    bound.run()
    bound.binding.clear_binding_inputs()
    for name in "ab":
        bound.binding.bind_input(name, "cpu", 0, F32, [2, 3], bound.b.ctypes.data)
    return bound.run()


def _values_bound(bound: Bound) -> Any:
    value = bound.module.OrtValue.ortvalue_from_numpy(A)
    result = bound.module.OrtValue.ortvalue_from_shape_and_type([2, 3], F32)
    bound.binding.bind_ortvalue_input("a", value)
    bound.binding.bind_ortvalue_output("z", result)
    bound.run()
    bound.binding.synchronize_inputs()
    bound.binding.synchronize_outputs()
    return result.numpy()


def _no_outputs(bound: Bound) -> Any:
    bound.binding.bind_output("y")
    bound.binding.clear_binding_outputs()
    return bound.run()


def _unknown_output(bound: Bound) -> Any:
    bound.binding.bind_output("q")
    return bound.run()


def _wrong_type(bound: Bound) -> Any:
    bound.binding.bind_cpu_input("a", A.astype("f8"))
    return _both_outputs(bound)


BINDINGS: dict[str, Callable[[Bound], Any]] = {
    "outputs": _both_outputs,
    "changed": _changed,
    "rebound": _rebound,
    "values": _values_bound,
    "memory": lambda b: b.into(),
    "wrong shape": lambda b: b.into((3, 3)),
    "wrong element type": lambda b: b.into((2, 3), np.float64),
    "no outputs": _no_outputs,
    "unknown output": _unknown_output,
    "unknown input": lambda b: b.binding.bind_cpu_input("q", A),
    "list": lambda b: b.binding.bind_cpu_input("a", [1.0]),
    "wrong input type": _wrong_type,
    "array for value": lambda b: b.binding.bind_ortvalue_input("a", A),
}


@pytest.mark.parametrize("call", BINDINGS.values(), ids=BINDINGS)
def test_bindings(call: Callable[[Bound], Any]) -> None:
    theirs, ours = both(lambda module: call(Bound(module)))
    other = any(t in theirs.text for t in ("Non-zero status", "_session", "name: q"))
    assert_same(theirs, ours, words=not other)


def test_memory_of_a_gpu_is_refused_where_there_is_none() -> None:
    bound = Bound(kn_runtime.ort)
    for refused in (
        lambda: bound.binding.bind_output("y", "cuda", 0),
        lambda: bound.binding.bind_input("a", "cuda", 0, F32, [2, 3], 1),
    ):
        with pytest.raises(RuntimeError, match="keeps values in host memory"):
            refused()
