"""Images read at given places."""

from __future__ import annotations

from kn_cuda.calls import UnsupportedError
from kn_cuda.lowering import Calls, Lowering
from kn_graph.ops.sample import GridSample
from kn_plan.plan import Step

__all__ = ["grid_sample"]


def grid_sample(low: Lowering, step: Step, op: GridSample) -> Calls:
    """Refuse: there is no kernel yet."""
    raise UnsupportedError("there is no kernel for it")
