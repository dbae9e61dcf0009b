"""Launches that copy elements between layouts, whatever they are."""

from __future__ import annotations

from kn_cuda.axes import blocks_for, in_order, joined
from kn_cuda.builder import KernelBuilder
from kn_cuda.calls import Launch
from kn_cuda.scalar import scalar_launch
from kn_cuda.types import raw_type
from kn_graph.dim import Size, ceildiv, size_prod
from kn_graph.dtype import DType
from kn_plan.plan import Operand
from kn_plan.program import ScalarProgram

__all__ = ["RAW_DTYPES", "copy_launch"]

SIDE = 32
"""Of a tile; see `kernels/copy.cu`."""

FEW = 8
"""Rows or columns for which a tile would mostly be empty."""

RAW_DTYPES = {1: DType.UINT8, 2: DType.UINT16, 4: DType.UINT32, 8: DType.UINT64}


def copy_launch(out: Operand, x: Operand, dtype: DType, threads: int) -> Launch:
    """Return a launch that copies x to out: of equal sizes, not overlapping; strides of 0 repeat.

    Raises:
        UnsupportedError: there is no kernel for elements of this type.
    """
    type_ = raw_type(dtype)
    order = in_order(out.layout.strides)
    sizes, (to, of) = joined(
        tuple(out.layout.sizes[a] for a in order),
        tuple(out.layout.strides[a] for a in order),
        tuple(x.layout.strides[a] for a in order),
    )
    rows = [a for a in range(len(sizes) - 1) if of[a] == 1]
    large = all(_is_large(sizes[a]) for a in (*rows, -1))
    if not rows or to[-1] != 1 or of[-1] == 0 or not large:
        raw = RAW_DTYPES[dtype.itemsize]
        program = ScalarProgram((raw,), (), (0,))
        return scalar_launch(program, [(out, type_)], [(x, type_)], threads)
    row, last = rows[-1], len(sizes) - 1
    others = [a for a in range(last) if a != row]
    planes = joined(*(tuple(t[a] for a in others) for t in (sizes, to, of)))
    b = KernelBuilder("copy", "copy_turned", 256)
    b.type("T", type_)
    b.writes("y", out, type_)
    b.reads("x", x, type_)
    b.number("rows", sizes[row])
    b.number("columns", sizes[last])
    b.number("y_row", to[row])
    b.number("x_column", of[last])
    count = size_prod([sizes[a] for a in others])
    b.number("planes", count)
    b.numbers("sizes", planes[0])
    b.rows("strides", planes[1])
    tiles = count * ceildiv(sizes[row], SIDE) * ceildiv(sizes[last], SIDE)
    return b.launch(blocks_for(tiles, 1))


def _is_large(size: Size) -> bool:
    return not isinstance(size, int) or size > FEW
