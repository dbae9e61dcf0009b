"""Attention."""

from __future__ import annotations

from kn_cuda.calls import UnsupportedError
from kn_cuda.lowering import Calls, Lowering
from kn_graph.ops.attention import Attention
from kn_plan.plan import Step

__all__ = ["attention"]


def attention(low: Lowering, step: Step, op: Attention) -> Calls:
    """Refuse: there is no kernel yet."""
    raise UnsupportedError("there is no kernel for it")
