"""Windows."""

from __future__ import annotations

from kn_cuda.calls import UnsupportedError
from kn_cuda.lowering import Calls, Lowering
from kn_graph.ops.pool import Pool
from kn_plan.plan import Step

__all__ = ["pool"]


def pool(low: Lowering, step: Step, op: Pool) -> Calls:
    """Refuse: there is no kernel yet."""
    raise UnsupportedError("there is no kernel for it")
