"""Elements in order, and what is accumulated in order."""

from __future__ import annotations

from kn_cpu.calls import NativeCall
from kn_cpu.cumulative import CUMULATIVE_TYPES, cumulative_call
from kn_cpu.lowering import Calls, Lowering
from kn_cpu.sort import sort_supported, top_k_call
from kn_graph.ops.cumulative import Cumulative
from kn_graph.ops.sort import TopK
from kn_plan.calls import UnsupportedError
from kn_plan.plan import Step

__all__ = ["cumulative", "top_k"]


def top_k(low: Lowering, step: Step, op: TopK) -> Calls:
    """Sort, or select the first ones."""
    (x,), (values, indices) = step.reads, step.writes
    dtype = low.dtype(x)
    if not sort_supported(dtype):
        raise UnsupportedError(f"there is no kernel for {dtype}")
    call = top_k_call(op, dtype, values.layout, indices.layout, x.layout)
    return [NativeCall("sort", call, (values, indices, x))]


def cumulative(low: Lowering, step: Step, op: Cumulative) -> Calls:
    """Accumulate."""
    (x,), (out,) = step.reads, step.writes
    dtype = low.dtype(x)
    if dtype not in CUMULATIVE_TYPES:
        raise UnsupportedError(f"there is no kernel for {dtype}")
    return [NativeCall("cumulative", cumulative_call(op, dtype, out.layout, x.layout), (out, x))]
