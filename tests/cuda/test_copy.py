"""Copies between layouts on the host in place of a GPU."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from kn_cuda.calls import Launch
from kn_cuda.copy import copy_launch
from kn_graph import Graph
from kn_graph.dtype import DType
from kn_plan.layout import StridedLayout
from kn_plan.plan import Operand
from tests.cuda.run import SEEDS, assert_clean, check, launched, needs_compiler, run_launch

pytestmark = needs_compiler

Array = np.ndarray[Any, Any]


def copied(out: Array, x: Array, *, wide: bool = False) -> Launch:
    """Copy an array into a view of a larger one, and check all of that."""
    whole = out if out.base is None else out.base
    assert isinstance(whole, np.ndarray)
    want = whole.copy()
    start = (out.ctypes.data - whole.ctypes.data) // whole.itemsize
    strides = tuple(s // x.itemsize for s in out.strides)
    np.lib.stride_tricks.as_strided(want.reshape(-1)[start:], out.shape, out.strides)[...] = x
    memory = x if x.base is None else x.base
    assert isinstance(memory, np.ndarray)
    offset = (x.ctypes.data - memory.ctypes.data) // x.itemsize
    launch = copy_launch(
        Operand(0, StridedLayout(out.shape, strides, start)),
        Operand(1, StridedLayout(x.shape, tuple(s // x.itemsize for s in x.strides), offset)),
        DType.from_numpy(x.dtype),
        128,
    )
    for seed in SEEDS:
        got = run_launch(launch, [whole, memory], seed=seed, wide=wide)[0]
        assert got.tobytes() == want.tobytes()
    return launch


def numbered(*shape: int, dtype: Any = np.float32) -> Array:
    return np.arange(np.prod(shape)).astype(dtype).reshape(shape)


@pytest.mark.parametrize("axes", list(permutations(range(3))), ids=str)
@pytest.mark.parametrize("shape", [(3, 40, 70), (33, 1, 64), (2, 3, 5)], ids=str)
def test_every_order_of_axes(axes: tuple[int, ...], shape: tuple[int, ...]) -> None:
    x = numbered(*(shape[axes.index(a)] for a in range(3))).transpose(axes)
    copied(np.zeros(shape, np.float32), x)


@pytest.mark.parametrize("rows", [31, 32, 33, 100])
@pytest.mark.parametrize("columns", [9, 32, 65])
def test_planes_are_turned_in_tiles(rows: int, columns: int) -> None:
    launch = copied(
        np.zeros((2, rows, columns), np.float32), numbered(2, columns, rows).swapaxes(1, 2)
    )
    assert launch.kernel.entry == "copy_turned"
    copied(
        np.zeros((2, rows, columns), np.float32),
        numbered(2, columns, rows).swapaxes(1, 2),
        wide=True,
    )


@pytest.mark.parametrize(
    "dtype", [np.bool_, np.float16, np.float64, np.int64, ml_dtypes.float8_e4m3fn, ml_dtypes.int4]
)
def test_elements_of_any_type_are_moved_as_they_are(dtype: Any) -> None:
    x = (np.arange(33 * 40) % 7).astype(np.float32).astype(dtype).reshape(33, 40)
    copied(np.zeros((33, 40), dtype), x)
    copied(np.zeros((40, 33), dtype), x.T)


def test_windows_of_a_larger_tensor_reversed_and_repeated_axes() -> None:
    whole = np.zeros((8, 50, 60), np.float32)
    copied(whole[2:5, 1:40, 3:50], numbered(3, 39, 47))
    copied(np.zeros((4, 6), np.float32), numbered(4, 6)[::-1, ::2].repeat(2, 1))
    copied(np.zeros((40, 6), np.float32), np.broadcast_to(numbered(6), (40, 6)))
    copied(np.zeros((40, 6), np.float32), np.broadcast_to(numbered(40, 1), (40, 6)))


def test_a_nan_that_signals_keeps_its_bits() -> None:
    x = np.array([0x7F800001, 0xFFC12345], np.uint32).view(np.float32)
    copied(np.zeros(2, np.float32), x)


def test_graphs_of_copies_at_all_sizes() -> None:
    def build(g: Graph) -> Any:
        x = g.input("x", "float32", ("n", 36, 20))
        turned = g.permute(x, (0, 2, 1))
        return g.view(turned, (x.shape[0] * 20, 36)), g.concat([x, g.flip(x, 1), x], 1)

    run = check(build, {"n": 3}, {"n": 0}, {"n": 1})
    assert launched(run, "copy_turned") == 2
    assert_clean([k.widened for k in run.loaded().skeleton.kernels])
