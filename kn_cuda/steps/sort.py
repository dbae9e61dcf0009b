"""What orders elements."""

from __future__ import annotations

from kn_cuda.calls import UnsupportedError
from kn_cuda.lowering import Calls, Lowering
from kn_graph.ops.cumulative import Cumulative
from kn_graph.ops.sort import TopK
from kn_plan.plan import Step

__all__ = ["cumulative", "top_k"]


def cumulative(low: Lowering, step: Step, op: Cumulative) -> Calls:
    """Refuse: there is no kernel yet."""
    raise UnsupportedError("there is no kernel for it")


def top_k(low: Lowering, step: Step, op: TopK) -> Calls:
    """Refuse: there is no kernel yet."""
    raise UnsupportedError("there is no kernel for it")
