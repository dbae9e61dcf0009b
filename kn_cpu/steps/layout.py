"""What moves elements and computes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from kn_cpu.calls import NativeCall
from kn_cpu.copy import concat_parts, copy_call, pad_copies
from kn_cpu.lowering import Calls, Lowering
from kn_cpu.steps.index import Indices, gathered_along
from kn_graph.dim import Size, Symbol, evaluate
from kn_graph.ops.layout import Concat, Pad
from kn_plan.layout import StridedLayout
from kn_plan.plan import Operand, Step

__all__ = ["concat", "pad"]

Array = np.ndarray[Any, Any]


def concat(low: Lowering, step: Step, op: Concat) -> Calls:
    """Copy every part to its place."""
    (out,) = step.writes
    size = low.dtype(out).numpy.itemsize
    parts = concat_parts(out.layout, op.axis, [o.layout for o in step.reads])
    return [
        NativeCall("copy", copy_call(part, o.layout, size), (Operand(out.buffer, part), o))
        for part, o in zip(parts, step.reads, strict=True)
    ]


def pad(low: Lowering, step: Step, op: Pad) -> Calls:
    """Copy the operand, and fill what is around it."""
    x, *values = step.reads
    (out,) = step.writes
    if op.mode == "wrap":
        return _wrapped(low, out, x, op)
    size = low.dtype(out).numpy.itemsize
    sources = {"x": x, "out": out, "value": values[0] if values else x}
    calls = []
    for copy in pad_copies(out.layout, x.layout, op.pads, op.mode):
        read = copy.read
        if copy.source == "value":
            read = StridedLayout(read.sizes, read.strides, values[0].layout.offset)
        source = Operand(sources[copy.source].buffer, read)
        target = Operand(out.buffer, copy.write)
        calls.append(NativeCall("copy", copy_call(copy.write, read, size), (target, source)))
    return calls


def _wrapped(low: Lowering, out: Operand, x: Operand, op: Pad) -> Calls:
    """Gather what lies at the other side, as often as pads are longer than their axis."""

    def indices(n: Size, before: Size, after: Size) -> Indices:
        def make(env: Mapping[Symbol, int]) -> Array:
            start, size, end = (evaluate(s, env) for s in (-before, n, n + after))
            return np.arange(start, end, dtype=np.int64) % max(size, 1)

        return make

    axes = enumerate(zip(x.layout.sizes, op.pads, strict=True))
    return gathered_along(
        low, out, x, {a: indices(n, *pads) for a, (n, pads) in axes if pads != (0, 0)}
    )
