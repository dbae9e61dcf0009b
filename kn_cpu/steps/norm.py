"""Normalizations."""

from __future__ import annotations

from kn_cpu.calls import NativeCall
from kn_cpu.epilogue import split
from kn_cpu.lowering import Calls, Lowering, layout_of
from kn_cpu.norm import norm_call
from kn_cpu.softmax import softmax_call
from kn_graph.ops.norm import Norm, Softmax
from kn_plan.plan import Step

__all__ = ["norm", "softmax"]


def norm(low: Lowering, step: Step, op: Norm) -> Calls:
    """Normalize."""
    low.only_float32(step)
    end = split(step.program, step.extras, len(step.shape) - 1, scales=True, clamps=False)
    (x,), out = step.reads, step.writes[0]
    parts = (end.scale, end.bias, end.residual)
    call = norm_call(op, out.layout, x.layout, *map(layout_of, parts))
    return [NativeCall("norm", call, (out, x, *parts)), *low.behind(step, end)]


def softmax(low: Lowering, step: Step, op: Softmax) -> Calls:
    """Normalize exponentials."""
    low.only_float32(step)
    (x,), (out,) = step.reads, step.writes
    return [NativeCall("softmax", softmax_call(op, out.layout, x.layout), (out, x))]
