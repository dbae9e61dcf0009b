"""Normalisation over axes with scale, bias and residual: see `native/kn_norm.h`."""

from __future__ import annotations

from kn_cpu.axes import KernelCall, axes_numbers, float_bits, strides_over, units_for
from kn_graph.ops.norm import Norm
from kn_plan.layout import StridedLayout

__all__ = ["norm_call"]


def norm_call(
    op: Norm,
    out: StridedLayout,
    x: StridedLayout,
    scale: StridedLayout | None = None,
    bias: StridedLayout | None = None,
    residual: StridedLayout | None = None,
) -> KernelCall:
    """Compute norm(x) * scale + bias + residual of float32, p = {out, x, scale, bias, residual}.

    All layouts have the sizes of x, with strides of 0 where an operand repeats.
    """
    kept = [a for a in range(x.rank) if a not in op.axes]
    operands = (out, x, scale, bias, residual)
    units = units_for(x.numel)
    axes = [
        axes_numbers(tuple(x.sizes[a] for a in group), *(strides_over(o, group) for o in operands))
        for group in (kept, op.axes)
    ]
    head = (units, float_bits(op.epsilon), int(op.center), len(kept), len(op.axes))
    return KernelCall("norm_f32", (*head, *axes[0], *axes[1]), units)
