"""Numbers that come from sizes alone."""

from __future__ import annotations

from kn_cpu.axes import KernelCall
from kn_cpu.calls import NativeCall
from kn_cpu.fill import iota_call, sizes_call
from kn_cpu.lowering import Calls, Lowering
from kn_graph.ops.index import Iota
from kn_graph.ops.source import Sizes
from kn_plan.calls import UnsupportedError
from kn_plan.plan import Operand, Step

__all__ = ["iota", "sizes"]


def sizes(low: Lowering, step: Step, op: Sizes) -> Calls:
    """Write sizes."""
    (out,) = step.writes
    if op.dtype.bits < 8:
        raise UnsupportedError(f"numbers wrap at the {op.dtype.bits} bits of {op.dtype}")
    return _written(low, out, sizes_call(op.values, low.itemsize(out)))


def iota(low: Lowering, step: Step, op: Iota) -> Calls:
    """Count."""
    (out,) = step.writes
    if op.dtype.bits < 8:
        raise UnsupportedError(f"numbers wrap at the {op.dtype.bits} bits of {op.dtype}")
    return _written(low, out, iota_call(op.length, low.itemsize(out)))


def _written(low: Lowering, out: Operand, call: KernelCall) -> Calls:
    """Call what writes elements one after another, and copy them where they do not lie so."""
    if out.layout.is_contiguous:
        return [NativeCall("fill", call, (out,))]
    made = low.temporary(low.dtype(out), out.layout.sizes)
    return [NativeCall("fill", call, (made,)), low.copy(out, made)]
