"""Numbers of at most 8 bits: conversions on the host in place of a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kn_cuda import CudaExecutor
from kn_cuda.types import SMALL_FLOATS
from kn_graph import DType, Graph, cpu_eval_graph
from kn_graph.errors import UnsupportedOnDeviceError
from tests.cuda.run import assert_clean, host_backend, needs_compiler

pytestmark = needs_compiler

Array = np.ndarray[Any, Any]

FLOATS = sorted(SMALL_FLOATS, key=lambda d: d.name)
WHOLE = [DType.INT4, DType.UINT4, DType.INT2, DType.UINT2]


def bits_after(given: dict[str, Array], *targets: tuple[str, DType, bool]) -> None:
    """Compare conversions with the reference, bit for bit; all NaNs are one.

    Args:
        given: inputs by name.
        targets: an input, what it becomes, and whether too large floats are cut.
    """
    g = Graph("casts")
    inputs = {n: g.input(n, DType.from_numpy(x.dtype), x.shape) for n, x in given.items()}
    for i, (name, dtype, saturate) in enumerate(targets):
        g.output(f"y{i}", g.cast(inputs[name], dtype, saturate=saturate))
    run = CudaExecutor(g, host_backend())
    assert run.skeleton().host_steps == []
    assert_clean(run.skeleton().kernels)
    want, got = cpu_eval_graph(g, given), run.eval(given)
    for name, x in want.items():
        y = got[name]
        assert y.dtype == x.dtype
        have, need = (a.astype(np.float64) for a in (y, x))
        np.testing.assert_array_equal(have, need, err_msg=str(targets[int(name[1:])]))
        signs = [np.signbit(np.nan_to_num(a)) for a in (have, need)]
        np.testing.assert_array_equal(signs[0], signs[1])


def codes(dtype: DType) -> Array:
    """Return all numbers of a type of 8 bits."""
    return np.arange(256, dtype=np.uint8).view(dtype.numpy)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_every_float_of_8_bits_is_read(dtype: DType) -> None:
    others = (DType.FLOAT32, DType.FLOAT16, DType.INT32, DType.BOOL, *FLOATS)
    bits_after({"x": codes(dtype)}, *(("x", d, True) for d in others if d is not dtype))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_floats_are_rounded_to_the_nearest_of_8_bits(dtype: DType) -> None:
    every = codes(dtype).astype(np.float32)
    numbers = np.unique(every[np.isfinite(every)])
    ties = (numbers[1:] + numbers[:-1]) / 2
    near = np.concatenate([np.nextafter(ties, np.float32(s) * np.inf) for s in (-1, 1)])
    special = [np.nan, np.inf, -np.inf, -0.0, 1e-45, -1e-30, 3e38, -3e38, 465, 464, 463.9, 61440]
    rng = np.random.default_rng(0)
    drawn = rng.standard_normal(4000) * 2.0 ** rng.integers(-20, 20, 4000)
    x = np.concatenate([numbers, ties, near, special, drawn]).astype(np.float32)
    with np.errstate(over="ignore"):
        half = x.astype(np.float16)
    whole = np.arange(-600, 600, dtype=np.int32)
    given: dict[str, Array] = {"x": x, "h": half, "i": whole}
    bits_after(given, *((name, dtype, cut) for name in given for cut in (True, False)))


@pytest.mark.parametrize("dtype", WHOLE, ids=str)
def test_integers_of_few_bits(dtype: DType) -> None:
    every = np.arange(1 << dtype.bits) - (1 << (dtype.bits - 1)) * (dtype in (WHOLE[0], WHOLE[2]))
    given = {
        "x": every.astype(dtype.numpy),
        "f": np.array([0.9, -1.5, 7.5, 17, -9, 300, 1e6], np.float32),
        "i": np.arange(-40, 40, dtype=np.int64),
        "u": np.arange(256, dtype=np.uint8),
        "b": np.array([False, True]),
    }
    wider = (DType.FLOAT32, DType.INT8, DType.UINT8, DType.INT64, DType.BOOL, DType.FLOAT8E5M2)
    bits_after(given, *(("x", d, True) for d in wider), *((n, dtype, True) for n in "fiub"))


def test_quantized_to_8_bits_and_back_in_one_launch() -> None:
    g = Graph("qdq")
    x, scale = g.input("x", "float32", (50, 7)), g.input("s", "float32", (7,))
    narrow = g.cast(g.div(x, scale), DType.FLOAT8E4M3FN)
    g.output("q", narrow)
    g.output("y", g.mul(g.cast(narrow, DType.FLOAT32), scale))
    rng = np.random.default_rng(0)
    feeds = {"x": rng.standard_normal((50, 7)), "s": rng.uniform(0.01, 0.1, 7)}
    feeds = {n: a.astype(np.float32) for n, a in feeds.items()}
    run = CudaExecutor(g, host_backend())
    want, got = cpu_eval_graph(g, feeds), run.eval(feeds)
    assert run.proof.total == 1
    for name, a in want.items():
        assert a.tobytes() == got[name].tobytes()


def test_what_would_be_rounded_twice_is_refused() -> None:
    g = Graph("double")
    g.output("y", g.cast(g.input("x", "float64", (3,)), DType.FLOAT8E5M2))
    with pytest.raises(UnsupportedOnDeviceError, match="once"):
        CudaExecutor(g, host_backend())
