"""Pooling."""

from __future__ import annotations

from kn_cpu.calls import NativeCall, UnsupportedError
from kn_cpu.lowering import Calls, Lowering
from kn_cpu.pool import pool_call, pool_supported
from kn_graph.ops.pool import Pool
from kn_plan.plan import Step

__all__ = ["pool"]


def pool(low: Lowering, step: Step, op: Pool) -> Calls:
    """Pool windows."""
    (x,), out = step.reads, step.writes[0]
    if not pool_supported(op, low.dtype(x)):
        raise UnsupportedError("its kernel is for float32, up to three axes, without indices")
    return [NativeCall("pool", pool_call(op, out.layout, x.layout), (out, x))]
