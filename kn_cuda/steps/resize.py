"""Images of other sizes."""

from __future__ import annotations

from kn_cuda.calls import UnsupportedError
from kn_cuda.lowering import Calls, Lowering
from kn_graph.ops.resize import Resize
from kn_plan.plan import Step

__all__ = ["resize"]


def resize(low: Lowering, step: Step, op: Resize) -> Calls:
    """Refuse: there is no kernel yet."""
    raise UnsupportedError("there is no kernel for it")
