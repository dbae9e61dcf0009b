"""Images read at given places: see `kernels/sample.cu`."""

from __future__ import annotations

from kn_cuda.axes import blocks_for, in_order
from kn_cuda.builder import KernelBuilder
from kn_cuda.lowering import Calls, Lowering
from kn_cuda.types import compute_type, wide
from kn_graph.dim import size_prod
from kn_graph.dtype import DType
from kn_graph.ops.resize import interpolation_type
from kn_graph.ops.sample import GridSample
from kn_plan.calls import UnsupportedError
from kn_plan.plan import Step

__all__ = ["grid_sample"]

SPATIAL = 3
"""Axes of the kernel; missing ones are put in front."""

TAPS = {"nearest": 1, "linear": 2, "cubic": 4}
PADDINGS = {"zeros": 0, "border": 1, "reflection": 2}


def grid_sample(low: Lowering, step: Step, op: GridSample) -> Calls:
    """Sample images."""
    (x, type_), (grid, grid_type) = map(low.typed, step.reads)
    rank = x.layout.rank - 2
    if rank > SPATIAL:
        raise UnsupportedError(f"there is no kernel for samples along {rank} axes")
    fill = SPATIAL - rank
    b = KernelBuilder("sample", "sample_grid", low.threads)
    b.constant("TAPS", TAPS[op.mode])
    b.constant("PADDING", PADDINGS[op.padding])
    b.constant("CORNERS", op.align_corners)
    b.constant("IN_ELEMENTS", op.in_elements)
    b.constant("RANK", rank)
    _add_types(b, op, low.dtype(x), low.dtype(grid))
    b.reads("x", x, type_)
    b.reads("grid", grid, grid_type)
    b.number("count", size_prod(step.shape))
    b.number("grid_vector", grid.layout.strides[-1])
    b.numbers("sizes", (*(1,) * fill, *x.layout.sizes[2:]))
    b.numbers("x_space", (*(0,) * fill, *x.layout.strides[2:]))
    order = in_order(step.writes[0].layout.strides)
    of_x = (*x.layout.strides[:2], *(0,) * rank)
    of_grid = (grid.layout.strides[0], 0, *grid.layout.strides[1:-1])
    b.numbers("place_sizes", tuple(step.shape[a] for a in order))
    b.rows("place_strides", [tuple(row[a] for a in order) for row in (of_x, of_grid)])
    low.end(b, step, order)
    return [b.launch(blocks_for(size_prod(step.shape), low.threads))]


def _add_types(b: KernelBuilder, op: GridSample, dtype: DType, grid: DType) -> None:
    exact = op.mode == "nearest"
    blended = DType.from_numpy(interpolation_type(DType.FLOAT32 if dtype is DType.BOOL else dtype))
    b.type("Acc", compute_type(dtype if exact else blended))
    b.type("Position", compute_type(wide(grid)))
    result = compute_type(dtype)
    text = f"{result}(acc)"
    if not exact and dtype is DType.BOOL:
        text = "acc != 0"
    elif not exact and dtype.is_int:
        whole = "whole_u64" if dtype is DType.UINT64 else "whole_64"
        text = f"{result}({whole}(acc))"
    b.code(f"KN_DEVICE static {result} finish(Acc acc) {{ return {text}; }}")
