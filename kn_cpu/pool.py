"""Pooling: see `native/kn_pool.h`."""

from __future__ import annotations

from kn_cpu.axes import KernelCall, axes_numbers, strides_over, units_for
from kn_graph.dim import Size, size_prod
from kn_graph.dtype import DType
from kn_graph.ops.pool import Pool
from kn_plan.layout import StridedLayout

__all__ = ["pool_call", "pool_supported"]

TYPES = {DType.FLOAT32: "f32", DType.UINT8: "u8", DType.INT8: "i8"}
"""What windows are folded of; of integers, the maximum is taken."""

FUNCTIONS = {"max": 0, "mean": 1, "sum": 2}
SPATIAL = 3
"""Spatial axes of the kernel: fewer are filled up in front."""

SLACK = 64
"""Floats of scratch that vectors may reach into behind the last element."""


def pool_supported(op: Pool, dtype: DType) -> bool:
    """Return whether there is a kernel: over up to three axes, without indices."""
    known = dtype is DType.FLOAT32 or (dtype in TYPES and op.fn == "max")
    return known and len(op.kernel) <= SPATIAL and op.indices == "none"


def pool_call(
    op: Pool, out: StridedLayout, x: StridedLayout, dtype: DType = DType.FLOAT32
) -> KernelCall:
    """Pool, p = {out, x}."""
    rank = len(op.kernel)
    lead, spatial = range(x.rank - rank), range(x.rank - rank, x.rank)
    numbers: list[Size] = []
    for row, missing in (
        ([x.sizes[a] for a in spatial], 1),
        ([out.sizes[a] for a in spatial], 1),
        (op.kernel, 1),
        (op.strides, 1),
        (op.dilations, 1),
        ([before for before, _ in op.pads], 0),
        ([after for _, after in op.pads], 0),
        (strides_over(out, spatial), 0),
        (strides_over(x, spatial), 0),
    ):
        numbers += [missing] * (SPATIAL - rank)
        numbers += row
    outer = axes_numbers(
        tuple(x.sizes[a] for a in lead), strides_over(out, lead), strides_over(x, lead)
    )
    units = units_for(out.numel * size_prod(op.kernel))
    head = (units, FUNCTIONS[op.fn], int(op.count_include_pad))
    floats: Size = 2 * SLACK
    if rank:
        width = out.sizes[-1]
        floats += width + (width - 1) * op.strides[-1] + (op.kernel[-1] - 1) * op.dilations[-1] + 1
    else:
        floats += 2
    return KernelCall(
        f"pool_{TYPES[dtype]}",
        (*head, *numbers, len(lead), *outer),
        units,
        scratch=4 * floats + 256,
    )
