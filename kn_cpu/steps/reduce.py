"""Reductions."""

from __future__ import annotations

from kn_cpu.calls import NativeCall
from kn_cpu.fill import report_call
from kn_cpu.lowering import Calls, Lowering
from kn_cpu.reduce import (
    ARG_TYPES,
    REDUCE_TYPES,
    arg_reduce_call,
    reduce_call,
    reduce_to_call,
)
from kn_cpu.steps.extremes import whole_extreme
from kn_graph.ops.reduce import ArgReduce, Reduce, ReduceTo
from kn_plan.calls import UnsupportedError
from kn_plan.plan import Step
from kn_plan.statuses import reduction_status, sizes_differ

__all__ = ["arg_reduce", "reduce", "reduce_to"]


def reduce(low: Lowering, step: Step, op: Reduce) -> Calls:
    """Reduce axes."""
    (x,), (out,) = step.reads, step.writes
    _check(low, step, op)
    call = reduce_call(op.fn, low.dtype(x), out.layout, x.layout, op.axes)
    return whole_extreme(low, step, op) or [NativeCall("reduce", call, (out, x))]


def reduce_to(low: Lowering, step: Step, op: ReduceTo) -> Calls:
    """Reduce the axes whose size becomes 1; sizes that are neither 1 nor the same are an error."""
    (x,), (out,) = step.reads, step.writes
    _check(low, step, op)
    old, new = x.layout.sizes, out.layout.sizes
    call = reduce_to_call(op.fn, low.dtype(x), out.layout, x.layout)
    told = reduction_status(old, new)
    report = NativeCall("fill", report_call(), (told,), sizes_differ(old, new))
    return [report, NativeCall("reduce", call, (out, x))]


def _check(low: Lowering, step: Step, op: Reduce | ReduceTo) -> None:
    dtype = low.dtype(step.reads[0])
    if dtype not in REDUCE_TYPES:
        raise UnsupportedError(f"there is no kernel for {op.fn} of {dtype}")
    narrow = step.node is not None and step.node.results[0].dtype is not dtype
    if op.fn == "mean" and narrow and not dtype.is_float:
        raise UnsupportedError("the total of a mean of narrow integers wraps")


def arg_reduce(low: Lowering, step: Step, op: ArgReduce) -> Calls:
    """Find extremes."""
    (x,), (out,) = step.reads, step.writes
    dtype = low.dtype(x)
    if dtype not in ARG_TYPES:
        raise UnsupportedError(f"there is no kernel for {dtype}")
    return [NativeCall("reduce", arg_reduce_call(op, dtype, out.layout, x.layout), (out, x))]
