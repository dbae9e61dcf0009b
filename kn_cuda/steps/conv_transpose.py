"""Transposed convolutions."""

from __future__ import annotations

from kn_cuda.calls import UnsupportedError
from kn_cuda.lowering import Calls, Lowering
from kn_graph.ops.conv import ConvTranspose
from kn_plan.plan import Step

__all__ = ["conv_transpose"]


def conv_transpose(low: Lowering, step: Step, op: ConvTranspose) -> Calls:
    """Refuse: there is no kernel yet."""
    raise UnsupportedError("there is no kernel for it")
