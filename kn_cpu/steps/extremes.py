"""The least and the greatest element of whole tensors, which dynamic quantization asks for.

One result is one work unit of a reduction: here large tensors are cut into parts, each with its own
extreme, so that several threads have something to do. The parts follow from the size alone.
"""

from __future__ import annotations

from dataclasses import replace

from kn_cpu.calls import NativeCall
from kn_cpu.lowering import Calls, Lowering
from kn_cpu.product import common_stride
from kn_cpu.reduce import reduce_call
from kn_graph.dim import Size, size_min
from kn_graph.ops.reduce import Reduce
from kn_plan.layout import StridedLayout
from kn_plan.plan import Operand, Step

__all__ = ["whole_extreme"]

PARTS = 16
LARGE = 1 << 16
"""Elements from which on a second thread is worth waking."""


def whole_extreme(low: Lowering, step: Step, op: Reduce) -> Calls | None:
    """Return calls for an extreme over all axes of a dense tensor; None for anything else."""
    (x,), (out,) = step.reads, step.writes
    n = x.layout.numel
    if op.fn not in ("min", "max") or len(op.axes) != x.layout.rank or not _is_dense(x.layout):
        return None
    large = size_min(1, n // LARGE)
    if large == 0:
        return None
    dtype, offset = low.dtype(x), x.layout.offset
    parts = low.temporary(dtype, (PARTS + 1,))
    each = n // PARTS
    rest = n - PARTS * each

    def part(to: StridedLayout, sizes: tuple[Size, ...], start: Size) -> NativeCall:
        source = StridedLayout.contiguous(sizes, offset + start)
        call = reduce_call(op.fn, dtype, to, source, (len(sizes) - 1,))
        return NativeCall("reduce", call, (Operand(parts.buffer, to), Operand(x.buffer, source)))

    calls = [
        part(StridedLayout.contiguous((PARTS,)), (PARTS, each), 0),
        part(StridedLayout.contiguous((), PARTS), (rest,), PARTS * each),
        NativeCall(
            "reduce", reduce_call(op.fn, dtype, out.layout, parts.layout, (0,)), (out, parts)
        ),
    ]
    if large == 1:
        return calls
    whole = reduce_call(op.fn, dtype, out.layout, x.layout, op.axes)
    small = NativeCall("reduce", whole, (out, x), 1 - large)
    return [small, *(replace(c, guard=large) for c in calls)]


def _is_dense(layout: StridedLayout) -> bool:
    """Return whether elements lie without gaps, in row-major order or with axis 1 innermost."""
    last = (0, *range(2, layout.rank), 1) if layout.rank > 1 else ()
    orders = (range(layout.rank), last) if layout.rank else ()
    return any(common_stride(layout, order) == 1 for order in orders)
