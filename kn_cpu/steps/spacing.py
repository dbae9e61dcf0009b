"""Memory in the order of axes that kernels of images want."""

from __future__ import annotations

from kn_cpu.lowering import Lowering
from kn_plan.format import stored
from kn_plan.plan import Operand

__all__ = ["channels_last"]


def channels_last(low: Lowering, operand: Operand) -> Operand:
    """Return memory for the elements of an operand in which those of axis 1 lie side by side."""
    layout = operand.layout
    made = low.temporary(low.dtype(operand), layout.sizes)
    return Operand(made.buffer, stored(layout.sizes, (0, *range(2, layout.rank), 1)))
