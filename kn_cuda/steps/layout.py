"""What moves elements and computes nothing."""

from __future__ import annotations

from kn_cuda.calls import UnsupportedError
from kn_cuda.lowering import Calls, Lowering
from kn_graph.dim import Size
from kn_graph.ops.layout import Concat, Pad
from kn_plan.plan import Operand, Step

__all__ = ["concat", "pad"]


def concat(low: Lowering, step: Step, op: Concat) -> Calls:
    """Copy every part to its place."""
    (out,) = step.writes
    calls: Calls = []
    start: Size = 0
    for part in step.reads:
        length = part.layout.sizes[op.axis]
        place = out.layout.slice(op.axis, start, length)
        calls.append(low.copy(Operand(out.buffer, place), part))
        start = start + length
    return calls


def pad(low: Lowering, step: Step, op: Pad) -> Calls:
    """Refuse: there is no kernel yet."""
    raise UnsupportedError("there is no kernel for it")
