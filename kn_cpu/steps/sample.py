"""Sampling at positions that are data."""

from __future__ import annotations

from kn_cpu.calls import NativeCall
from kn_cpu.lowering import Calls, Lowering
from kn_cpu.sample import grid_sample_call
from kn_graph.ops.sample import GridSample
from kn_plan.plan import Step

__all__ = ["grid_sample"]


def grid_sample(low: Lowering, step: Step, op: GridSample) -> Calls:
    """Sample images at the positions of a grid."""
    low.only_float32(step)
    (x, grid), (out,) = step.reads, step.writes
    call = grid_sample_call(op, out.layout, x.layout, grid.layout)
    return [NativeCall("sample", call, (out, x, grid))]
