"""Compares a native kernel with the NumPy reference of its operation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kn_cpu.axes import KernelCall
from kn_graph.compare.step import step_band
from kn_graph.compare.verdict import compare_outputs
from kn_graph.compare.walk import Context
from kn_graph.op import Op
from tests.cpu.rows import run

Array = np.ndarray[Any, Any]


def reference(op: Op, *operands: Array) -> Array:
    """Return what an operation gives by its reference."""
    out = op.eval(Context({}), *operands)
    assert isinstance(out, np.ndarray)
    return out


def check(op: Op, call: KernelCall, out: Array, *pointers: Array | None, operands: Any) -> None:
    """Run a call, and require the step band around the reference.

    Args:
        op: what is computed.
        call: how.
        out: where to.
        pointers: what the kernel reads.
        operands: what the reference reads.
    """
    want = reference(op, *operands)
    run(call, out, *pointers)
    report = compare_outputs({"out0": np.array(out, order="C")}, step_band(op, operands, want))
    assert report.ok, f"{op}\n{report.describe()}"


def stored(x: Array, order: Sequence[int] | None = None, gap: int = 0) -> Array:
    """Return x as a view of memory in which its axes lie in another order, with a gap in each."""
    order = range(x.ndim) if order is None else order
    memory = np.full([x.shape[a] + gap for a in order], 99, x.dtype)
    inside: Any = (*(slice(0, x.shape[a]) for a in order), ...)
    view = memory[inside]
    view = view.transpose([list(order).index(a) for a in range(x.ndim)])
    view[...] = x
    return view


def normal(shape: Sequence[int], seed: int = 0) -> Array:
    """Return random float32 numbers."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
