"""Softmax and its logarithm along an axis: see `native/kn_softmax.h`."""

from __future__ import annotations

from kn_cpu.axes import KernelCall, axes_numbers, strides_over, units_for
from kn_graph.ops.norm import Softmax
from kn_plan.layout import StridedLayout

__all__ = ["softmax_call"]

UNIT = 1 << 13
"""Elements of a work unit: an exponential each."""


def softmax_call(op: Softmax, out: StridedLayout, x: StridedLayout) -> KernelCall:
    """Compute in float32, p = {out, x}; out may be x."""
    kept = [a for a in range(x.rank) if a != op.axis]
    units = units_for(x.numel, UNIT)
    steps = (x.sizes[op.axis], out.strides[op.axis], x.strides[op.axis])
    sizes = tuple(x.sizes[a] for a in kept)
    axes = axes_numbers(sizes, strides_over(out, kept), strides_over(x, kept))
    return KernelCall("softmax_f32", (units, int(op.log), *steps, len(kept), *axes), units)
