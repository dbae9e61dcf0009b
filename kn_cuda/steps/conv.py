"""Convolutions."""

from __future__ import annotations

from kn_cuda.calls import UnsupportedError
from kn_cuda.lowering import Calls, Lowering
from kn_graph.ops.conv import Conv
from kn_plan.plan import Step

__all__ = ["conv"]


def conv(low: Lowering, step: Step, op: Conv) -> Calls:
    """Refuse: there is no kernel yet."""
    raise UnsupportedError("there is no kernel for it")
