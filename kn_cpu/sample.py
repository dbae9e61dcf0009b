"""Sampling at positions that are data: see `native/kn_sample.h`."""

from __future__ import annotations

from kn_cpu.axes import KernelCall, units_for
from kn_cpu.conv import spread
from kn_graph.dim import Size, size_prod
from kn_graph.ops.sample import GridSample
from kn_graph.types import Shape
from kn_plan.layout import StridedLayout

__all__ = ["grid_sample_call", "samples_channels_last"]

MODES = {"nearest": 0, "linear": 1, "cubic": 2}
PADDINGS = {"zeros": 0, "border": 1, "reflection": 2}
NEIGHBOURS = {"nearest": 1, "linear": 2, "cubic": 4}
BLOCK = 64
"""Of the same name in `native/sample.c`."""

MANY_CHANNELS = 16
"""That vectors are for; fewer are sampled one after another."""

OVERHEAD = 32
"""What a position costs beside its sums, in products."""


def samples_channels_last(sizes: Shape) -> bool:
    """Return whether images of these sizes are sampled with their channels side by side."""
    channels = sizes[1]
    return isinstance(channels, int) and channels >= MANY_CHANNELS


def grid_sample_call(
    op: GridSample, out: StridedLayout, x: StridedLayout, grid: StridedLayout
) -> KernelCall:
    """Sample images, p = {out, x, grid}.

    Raises:
        ValueError: there are more than three spatial axes.
    """
    rank = x.rank - 2
    images, channels = x.sizes[:2]
    points = images * size_prod(out.sizes[2:])
    most = NEIGHBOURS[op.mode] ** rank
    units = units_for(points * (channels * most + OVERHEAD))
    rules = (MODES[op.mode], PADDINGS[op.padding], int(op.align_corners), int(op.in_elements))
    numbers: tuple[Size, ...] = (
        *(units, *rules, rank, most, images, channels),
        *(*spread(x.sizes[2:], 1), *spread(out.sizes[2:], 1)),
        *(*out.strides[:2], *spread(out.strides[2:], 0)),
        *(*x.strides[:2], *spread(x.strides[2:], 0)),
        *(grid.strides[0], *spread(grid.strides[1:-1], 0), grid.strides[-1]),
    )
    scratch = BLOCK * (16 + 12 * most) + 64
    return KernelCall("grid_sample_f32", numbers, units, scratch=scratch)
