"""Pooling."""

from __future__ import annotations

from kn_cpu.calls import NativeCall
from kn_cpu.lowering import Calls, Lowering
from kn_cpu.pool import pool_call, pool_index_call, pool_supported
from kn_cpu.steps.spacing import channels_last
from kn_graph.dtype import DType
from kn_graph.ops.pool import Pool
from kn_plan.calls import UnsupportedError
from kn_plan.layout import StridedLayout
from kn_plan.plan import Step

__all__ = ["pool"]

CHANNELS = 3
"""From which rank on axis 1 may be channels."""


def pool(low: Lowering, step: Step, op: Pool) -> Calls:
    """Pool windows."""
    (x,), out = step.reads, step.writes[0]
    dtype = low.dtype(x)
    if not pool_supported(op, dtype):
        raise UnsupportedError("its kernel is for float32 and up to three axes")
    if op.indices != "none":
        (_, indices) = step.writes
        call = pool_index_call(op, out.layout, indices.layout, x.layout)
        return [NativeCall("pool", call, (out, indices, x))]
    family = "pool" if dtype is DType.FLOAT32 else "integer_pool"
    if _agree(x.layout, out.layout):
        return [NativeCall(family, pool_call(op, out.layout, x.layout, dtype), (out, x))]
    # vectors lie along what is dense in x; the result is smaller than x and turned behind it
    if x.layout.strides[1] == 1:
        made = channels_last(low, out)
    else:
        made = low.temporary(low.dtype(out), out.layout.sizes)
    call = pool_call(op, made.layout, x.layout, dtype)
    return [NativeCall(family, call, (made, x)), low.copy(out, made)]


def _agree(x: StridedLayout, out: StridedLayout) -> bool:
    """Return whether channels lie side by side on both sides, or on none."""
    if x.rank < CHANNELS or 1 in (x.sizes[1], x.sizes[-1]):
        return True
    return (x.strides[1] == 1) == (out.strides[1] == 1)
