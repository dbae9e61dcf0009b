"""Random numbers: each run is told which ones are next."""

from __future__ import annotations

from kn_cpu.calls import NativeCall
from kn_cpu.lowering import Calls, Lowering
from kn_cpu.random import random_call
from kn_graph.ops.random import Random
from kn_plan.calls import Draw
from kn_plan.plan import Step

__all__ = ["random"]


def random(low: Lowering, step: Step, op: Random) -> Calls:
    """Draw."""
    (out,) = step.writes
    call, draw = random_call(op), Draw(op.stream, op.key)
    if out.layout.is_contiguous:
        return [NativeCall("random", call, (out, draw))]
    made = low.temporary(op.dtype, op.shape)
    return [NativeCall("random", call, (made, draw)), low.copy(out, made)]
