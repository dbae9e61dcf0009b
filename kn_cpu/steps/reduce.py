"""Reductions."""

from __future__ import annotations

from kn_cpu.calls import NativeCall, UnsupportedError
from kn_cpu.lowering import Calls, Lowering
from kn_cpu.reduce import ARG_TYPES, REDUCE_TYPES, arg_reduce_call, reduce_call
from kn_graph.ops.reduce import ArgReduce, Reduce
from kn_plan.plan import Step

__all__ = ["arg_reduce", "reduce"]


def reduce(low: Lowering, step: Step, op: Reduce) -> Calls:
    """Reduce axes."""
    (x,), (out,) = step.reads, step.writes
    dtype = low.dtype(x)
    if dtype not in REDUCE_TYPES:
        raise UnsupportedError(f"there is no kernel for {op.fn} of {dtype}")
    narrow = step.node is not None and step.node.results[0].dtype is not dtype
    if op.fn == "mean" and narrow and not dtype.is_float:
        raise UnsupportedError("the total of a mean of narrow integers wraps")
    call = reduce_call(op.fn, dtype, out.layout, x.layout, op.axes)
    return [NativeCall("reduce", call, (out, x))]


def arg_reduce(low: Lowering, step: Step, op: ArgReduce) -> Calls:
    """Find extremes."""
    (x,), (out,) = step.reads, step.writes
    dtype = low.dtype(x)
    if dtype not in ARG_TYPES:
        raise UnsupportedError(f"there is no kernel for {dtype}")
    return [NativeCall("reduce", arg_reduce_call(op, dtype, out.layout, x.layout), (out, x))]
