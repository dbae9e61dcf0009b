"""Kernels compared by timing, where an estimate may be wrong: `PrepareOptions(tune=True)`."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np

from kn_cpu.calls import NativeCall
from kn_cpu.lowering import Lowering
from kn_cpu.memory import aligned
from kn_cpu.native import STEP
from kn_graph.dim import evaluate
from kn_plan.calls import Constant
from kn_plan.plan import Operand

__all__ = ["faster", "quickest"]

TURNS = 5
"""How often each alternative runs; the fastest of these counts."""


def faster(low: Lowering, alternatives: Sequence[Sequence[NativeCall]], new: int) -> int:
    """Return which of several lists of calls, whose sizes are known, takes the least time.

    Args:
        low: what wrote them.
        alternatives: the calls.
        new: from which number on constants were packed for them; those that the fastest one does
            not read are forgotten.
    """
    runs = [_prepared(low, calls) for calls in alternatives]
    best = [float("inf")] * len(runs)
    for _ in range(TURNS):
        for i, run in enumerate(runs):
            start = time.perf_counter()
            run(low.tune)
            best[i] = min(best[i], time.perf_counter() - start)
    chosen = quickest(best)
    kept = _packed(alternatives[chosen])
    for i, calls in enumerate(alternatives):
        if i != chosen:
            low.forget([p for p in _packed(calls) - kept if p.number >= new])
    return chosen


def quickest(seconds: Sequence[float]) -> int:
    """Return the place of the least time."""
    return min(range(len(seconds)), key=seconds.__getitem__)


def _packed(calls: Sequence[NativeCall]) -> set[Constant]:
    return {p for c in calls for p in c.pointers if isinstance(p, Constant)}


def _prepared(low: Lowering, calls: Sequence[NativeCall]) -> Callable[[int], None]:
    """Return what runs calls on memory of their own."""
    memory = {
        p.buffer: aligned(evaluate(low.buffers[p.buffer].nbytes, {}))
        for c in calls
        for p in c.pointers
        if isinstance(p, Operand)
    }
    steps = np.zeros(len(calls), STEP)
    numbers: list[int] = []
    pointers: list[int] = []
    for i, c in enumerate(calls):
        extents = (evaluate(n, {}) for n in (c.call.units, c.call.grain, c.call.scratch))
        kernel = low.library.kernel(c.family, c.call.kernel)
        steps[i] = (kernel, len(numbers), len(pointers), *extents)
        numbers += [evaluate(n, {}) for n in c.call.numbers]
        for p in c.pointers:
            address = 0
            if isinstance(p, Operand):
                offset = evaluate(p.layout.offset, {}) * low.itemsize(p)
                address = memory[p.buffer].ctypes.data + offset
            elif isinstance(p, Constant):
                address = low.packed[p.number].ctypes.data
            pointers.append(address)
    bound = low.library.bind(steps, np.array(numbers, np.int64), np.array(pointers, np.int64))

    def run(threads: int) -> None:
        assert memory is not None  # it lives as long as what points into it
        bound(threads)

    return run
