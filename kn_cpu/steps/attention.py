"""Attention."""

from __future__ import annotations

from kn_cpu.attention import attention_call, attention_supported
from kn_cpu.calls import NativeCall
from kn_cpu.lowering import Calls, Lowering, layout_of
from kn_graph.dtype import DType
from kn_graph.ops.attention import Attention
from kn_plan.calls import UnsupportedError
from kn_plan.plan import Step

__all__ = ["attention"]


def attention(low: Lowering, step: Step, op: Attention) -> Calls:
    """Attend in one kernel."""
    q, k, v, *masks = step.reads
    if not attention_supported(op, low.dtype(q)) or len(step.writes) != 1:
        raise UnsupportedError("its kernel is for float32, without the scores")
    (out,) = step.writes
    bias = next((m for m in masks if m.layout.rank == 4), None)
    lengths = next((m for m in masks if m.layout.rank == 1), None)
    if lengths is not None and not (
        lengths.layout.is_contiguous and low.dtype(lengths) is DType.INT64
    ):
        raise UnsupportedError("lengths are no contiguous int64")
    call = attention_call(
        op, out.layout, q.layout, k.layout, v.layout, layout_of(bias),
        None if bias is None else low.dtype(bias),
    )  # fmt: skip
    return [NativeCall("attention", call, (out, q, k, v, bias, lengths))]
