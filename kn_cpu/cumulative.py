"""Running sums and products: see `native/kn_cumulative.h`."""

from __future__ import annotations

from kn_cpu.axes import KernelCall, axes_numbers, strides_over, units_for
from kn_graph.dtype import DType
from kn_graph.ops.cumulative import Cumulative
from kn_plan.layout import StridedLayout

__all__ = ["CUMULATIVE_TYPES", "cumulative_call"]

CUMULATIVE_TYPES = {
    DType.FLOAT32: "f32",
    DType.FLOAT64: "f64",
    DType.INT32: "i32",
    DType.INT64: "i64",
}
"""What is accumulated."""


def cumulative_call(
    op: Cumulative, dtype: DType, out: StridedLayout, x: StridedLayout
) -> KernelCall:
    """Accumulate along an axis, p = {out, x}."""
    lines = [a for a in range(x.rank) if a != op.axis]
    units = units_for(x.numel)
    flags = (int(op.fn == "prod"), int(op.exclusive), int(op.reverse))
    axis = (x.sizes[op.axis], out.strides[op.axis], x.strides[op.axis])
    sizes = tuple(x.sizes[a] for a in lines)
    axes = axes_numbers(sizes, strides_over(out, lines), strides_over(x, lines))
    numbers = (units, *flags, *axis, len(lines), *axes)
    return KernelCall(f"cumulative_{CUMULATIVE_TYPES[dtype]}", numbers, units)
