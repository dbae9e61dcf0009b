"""What the tests of integer products and convolutions share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from kn_cpu.executor import CpuExecutor
from kn_cpu.native import library, unavailable_reason
from kn_graph import DType, Graph, cpu_eval_graph
from kn_graph.types import Shape
from kn_graph.value import Value

Array = np.ndarray[Any, Any]
Behind = Callable[[Graph, Value, int], Value]
"""What is applied to sums whose columns lie along an axis."""

PAIRS = [(a, b) for a in ("uint8", "int8") for b in ("uint8", "int8", "int16")]
"""Types of operands."""


def executor(graph: Graph, threads: int = 2) -> CpuExecutor:
    """Return a graph ready to run."""
    found = library()
    if found is None:
        pytest.skip(str(unavailable_reason()))
    return CpuExecutor(graph, found, threads)


def integers(rng: np.random.Generator, dtype: str, *shape: int, low: int | None = None) -> Array:
    """Return random integers, the extremes among them."""
    info = np.iinfo(dtype)
    least = info.min if low is None else low
    x = rng.integers(least, info.max + 1, shape)
    if x.size > 1:
        x.flat[0], x.flat[-1] = least, info.max
    return x.astype(dtype)


def assert_exact(graph: Graph, feeds: Mapping[str, Array]) -> None:
    """Require the integers of the reference, on one thread and on two, without host steps.

    Floats may be rounded once where the reference rounds a product and a sum.
    """
    run = executor(graph)
    assert [(h.step.kind, h.reason) for h in run.skeleton().host_steps] == []
    want = cpu_eval_graph(graph, feeds)
    two, one = run.eval(feeds), executor(graph, 1).eval(feeds)
    for name, x in want.items():
        np.testing.assert_array_equal(two[name], one[name], "threads")
        if x.dtype.kind == "f":
            np.testing.assert_allclose(two[name], x, 0, 2**-23 * abs(x).max(initial=0))
        else:
            np.testing.assert_array_equal(two[name], x)


def column(g: Graph, array: Array, shape: Shape, axis: int) -> Value:
    """Return numbers for each column in a shape."""
    sizes = [array.size if a == axis else 1 for a in range(len(shape))]
    return g.broadcast(g.view(g.constant(array), sizes), shape)


def _scaled(g: Graph, sums: Value, axis: int, *, negative: bool = False) -> Value:
    n, rng = sums.shape[axis], np.random.default_rng(1)
    assert isinstance(n, int)
    bias = column(g, rng.integers(-5000, 5000, n).astype(np.int32), sums.shape, axis)
    scale = column(g, (rng.random(n) * 1e-2 + 1e-3).astype(np.float32), sums.shape, axis)
    shifted = g.binary("sub" if negative else "add", sums, bias)
    return g.binary("mul", g.cast(shifted, DType.FLOAT32), scale)


def _number(g: Graph, value: float, shape: Shape) -> Value:
    return g.broadcast(g.view(g.constant(np.float32(value)), [1] * len(shape)), shape)


def nothing(g: Graph, sums: Value, axis: int) -> Value:
    """Keep the sums."""
    return sums


def biased(g: Graph, sums: Value, axis: int) -> Value:
    """Subtract a number from each column."""
    n = sums.shape[axis]
    return g.binary("sub", sums, column(g, np.arange(int(n), dtype=np.int32), sums.shape, axis))


def dequantized(g: Graph, sums: Value, axis: int) -> Value:
    """Make floats."""
    return _scaled(g, sums, axis, negative=True)


def quantized(g: Graph, sums: Value, axis: int) -> Value:
    """Round to bytes, between bounds that are not those of the type."""
    x = g.unary("round_even", _scaled(g, sums, axis))
    x = g.binary("add", x, _number(g, 3, x.shape))
    x = g.binary("max", x, _number(g, 2, x.shape))
    return g.cast(g.binary("min", x, _number(g, 250, x.shape)), DType.UINT8)


def selected(g: Graph, sums: Value, axis: int) -> Value:
    """Round to signed bytes; bounds are comparisons, as those of dynamic quantization are."""
    x = g.unary("round_even", _scaled(g, sums, axis))
    low = _number(g, -128, x.shape)
    x = g.select(g.compare("gt", x, low), x, low)
    return g.cast(g.binary("min", x, _number(g, 127, x.shape)), DType.INT8)


def residual(g: Graph, sums: Value, axis: int) -> Value:
    """Add something of the shape of the sums, then round."""
    x = _scaled(g, sums, axis)
    other = g.input("other", "uint8", sums.shape)
    x = g.unary("relu", g.binary("add", x, g.cast(other, DType.FLOAT32)))
    x = g.binary("min", g.unary("round_even", x), _number(g, 255, x.shape))
    return g.cast(x, DType.UINT8)


def turned(g: Graph, sums: Value, axis: int) -> Value:
    """Store transposed floats, with something of another order added."""
    axes = tuple(reversed(range(sums.rank)))
    other = g.input("other", "uint8", [sums.shape[a] for a in axes])
    x = _scaled(g, sums, axis)
    return g.permute(g.binary("add", x, g.permute(g.cast(other, DType.FLOAT32), axes)), axes)


BEHIND: tuple[Behind, ...] = (
    nothing, biased, dequantized, quantized, selected, residual, turned,
)  # fmt: skip
"""Programs behind sums."""
