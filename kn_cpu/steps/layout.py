"""What moves elements and computes nothing."""

from __future__ import annotations

from kn_cpu.calls import NativeCall, UnsupportedError
from kn_cpu.copy import concat_parts, copy_call, pad_copies
from kn_cpu.lowering import Calls, Lowering
from kn_graph.ops.layout import Concat, Pad
from kn_plan.layout import StridedLayout
from kn_plan.plan import Operand, Step

__all__ = ["concat", "pad"]


def concat(low: Lowering, step: Step, op: Concat) -> Calls:
    """Copy every part to its place."""
    (out,) = step.writes
    size = low.dtype(out).numpy.itemsize
    parts = concat_parts(out.layout, op.axis, [o.layout for o in step.reads])
    return [
        NativeCall("copy", copy_call(part, o.layout, size), (Operand(out.buffer, part), o))
        for part, o in zip(parts, step.reads, strict=True)
    ]


def pad(low: Lowering, step: Step, op: Pad) -> Calls:
    """Copy the operand, and fill what is around it."""
    x, *values = step.reads
    (out,) = step.writes
    if op.mode == "wrap":
        raise UnsupportedError("there is no kernel that wraps")
    size = low.dtype(out).numpy.itemsize
    sources = {"x": x, "out": out, "value": values[0] if values else x}
    calls = []
    for copy in pad_copies(out.layout, x.layout, op.pads, op.mode):
        read = copy.read
        if copy.source == "value":
            read = StridedLayout(read.sizes, read.strides, values[0].layout.offset)
        source = Operand(sources[copy.source].buffer, read)
        target = Operand(out.buffer, copy.write)
        calls.append(NativeCall("copy", copy_call(copy.write, read, size), (target, source)))
    return calls
