"""Sampling at positions that are data."""

from __future__ import annotations

from kn_cpu.calls import NativeCall
from kn_cpu.lowering import Calls, Lowering
from kn_cpu.sample import grid_sample_call, samples_channels_last
from kn_cpu.steps.spacing import channels_last
from kn_graph.ops.sample import GridSample
from kn_plan.plan import Operand, Step

__all__ = ["grid_sample"]


def grid_sample(low: Lowering, step: Step, op: GridSample) -> Calls:
    """Sample images at the positions of a grid."""
    low.only_float32(step)
    (x, grid), (out,) = step.reads, step.writes
    if not samples_channels_last(x.layout.sizes):
        return _sampled(op, out, x, grid)
    side_by_side = [o.layout.strides[1] == 1 for o in (x, out)]
    image, made = (
        o if done else channels_last(low, o) for o, done in zip((x, out), side_by_side, strict=True)
    )
    before, after = [low.copy(image, x)], [low.copy(out, made)]
    calls = _sampled(op, made, image, grid)
    return [*before[side_by_side[0] :], *calls, *after[side_by_side[1] :]]


def _sampled(op: GridSample, out: Operand, x: Operand, grid: Operand) -> Calls:
    call = grid_sample_call(op, out.layout, x.layout, grid.layout)
    return [NativeCall("sample", call, (out, x, grid))]
