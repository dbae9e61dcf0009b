"""Recurrent cells."""

from __future__ import annotations

from kn_cuda.calls import UnsupportedError
from kn_cuda.lowering import Calls, Lowering
from kn_graph.ops.recurrent import Recurrent
from kn_plan.plan import Step

__all__ = ["recurrent"]


def recurrent(low: Lowering, step: Step, op: Recurrent) -> Calls:
    """Refuse: there is no kernel yet."""
    raise UnsupportedError("there is no kernel for it")
