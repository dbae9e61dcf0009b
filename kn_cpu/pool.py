"""Pooling: see `native/kn_pool.h`."""

from __future__ import annotations

from collections.abc import Sequence

from kn_cpu.axes import KernelCall, axes_numbers, strides_over, units_for
from kn_graph.dim import Size, size_prod
from kn_graph.dtype import DType
from kn_graph.ops.pool import Pool
from kn_plan.layout import StridedLayout

__all__ = ["pool_call", "pool_index_call", "pool_supported"]

TYPES = {DType.FLOAT32: "f32", DType.UINT8: "u8", DType.INT8: "i8"}
"""What windows are folded of; of integers, the maximum is taken."""

FUNCTIONS = {"max": 0, "mean": 1, "sum": 2}
SPATIAL = 3
"""Spatial axes of the kernel: fewer are filled up in front."""

SLACK = 64
"""Floats of scratch that vectors may reach into behind the last element."""


def pool_supported(op: Pool, dtype: DType) -> bool:
    """Return whether there is a kernel: over up to three axes, of integers without indices."""
    integer = dtype in TYPES and op.fn == "max" and op.indices == "none"
    return (dtype is DType.FLOAT32 or integer) and len(op.kernel) <= SPATIAL


def pool_call(
    op: Pool, out: StridedLayout, x: StridedLayout, dtype: DType = DType.FLOAT32
) -> KernelCall:
    """Pool without indices, p = {out, x}."""
    units = units_for(out.numel * size_prod(op.kernel))
    floats: Size = 2 * SLACK
    if op.kernel:
        width = out.sizes[-1]
        floats += width + (width - 1) * op.strides[-1] + (op.kernel[-1] - 1) * op.dilations[-1] + 1
    else:
        floats += 2
    numbers = (units, *_windows(op, out, x), *_lead(op, out, x))
    return KernelCall(f"pool_{TYPES[dtype]}", numbers, units, scratch=4 * floats + 256)


def pool_index_call(
    op: Pool, out: StridedLayout, indices: StridedLayout, x: StridedLayout
) -> KernelCall:
    """Find maxima and where they are, p = {out, indices, x}."""
    units = units_for(4 * out.numel * size_prod(op.kernel))
    spatial = range(x.rank - len(op.kernel), x.rank)
    strides = _filled(strides_over(indices, spatial), 0)
    turned = int(op.indices == "column_major")
    numbers = (*_windows(op, out, x), *strides, turned, *_lead(op, out, indices, x))
    return KernelCall("pool_index_f32", (units, *numbers), units)


def _filled(row: Sequence[Size], missing: Size) -> tuple[Size, ...]:
    return (*[missing] * (SPATIAL - len(row)), *row)


def _windows(op: Pool, out: StridedLayout, x: StridedLayout) -> tuple[Size, ...]:
    """Return the numbers from the function to the strides of spatial axes."""
    spatial = range(x.rank - len(op.kernel), x.rank)
    rows: tuple[tuple[Sequence[Size], Size], ...] = (
        ([x.sizes[a] for a in spatial], 1),
        ([out.sizes[a] for a in spatial], 1),
        (op.kernel, 1),
        (op.strides, 1),
        (op.dilations, 1),
        ([before for before, _ in op.pads], 0),
        ([after for _, after in op.pads], 0),
        (strides_over(out, spatial), 0),
        (strides_over(x, spatial), 0),
    )
    head = (FUNCTIONS[op.fn], int(op.count_include_pad))
    return (*head, *(n for row, missing in rows for n in _filled(row, missing)))


def _lead(op: Pool, *operands: StridedLayout) -> tuple[Size, ...]:
    """Return the numbers of the other axes."""
    rank = operands[-1].rank - len(op.kernel)
    sizes = operands[-1].sizes[:rank]
    return (rank, *axes_numbers(sizes, *(strides_over(o, range(rank)) for o in operands)))
