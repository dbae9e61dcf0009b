"""Normalizations."""

from __future__ import annotations

from kn_cuda.calls import UnsupportedError
from kn_cuda.lowering import Calls, Lowering
from kn_graph.ops.norm import Norm, Softmax
from kn_plan.plan import Step

__all__ = ["norm", "softmax"]


def norm(low: Lowering, step: Step, op: Norm) -> Calls:
    """Refuse: there is no kernel yet."""
    raise UnsupportedError("there is no kernel for it")


def softmax(low: Lowering, step: Step, op: Softmax) -> Calls:
    """Refuse: there is no kernel yet."""
    raise UnsupportedError("there is no kernel for it")
