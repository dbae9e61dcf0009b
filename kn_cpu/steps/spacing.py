"""Convolutions whose results do not lie as their kernel writes them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kn_cpu.lowering import Calls, Lowering
from kn_cpu.product import even_stride
from kn_cpu.steps.wide import Writer
from kn_graph.types import Shape
from kn_plan.format import stored
from kn_plan.plan import Operand, Step

__all__ = ["channels_last", "spaced"]


def spaced(writer: Writer) -> Writer:
    """Return what finds kernels for results in any layout.

    Args:
        writer: finds kernels that write, and add, pixels which are evenly spaced.
    """

    def write(low: Lowering, step: Step, op: Any) -> Calls:
        if all(map(_even, (*step.writes, *step.extras))):
            return writer(low, step, op)
        out, program = step.writes[0], step.program
        made = channels_last(low, out, step.shape)
        anchor = replace(step, writes=(made,), program=None, extras=())
        calls = writer(low, anchor, op)
        if program is None:
            return [*calls, low.copy(out, made)]
        return calls + low.scalar(program, step.writes, (made, *step.extras))

    return write


def channels_last(low: Lowering, like: Operand, shape: Shape) -> Operand:
    """Return memory for elements of an operand's type in which those of axis 1 lie side by side."""
    made = low.temporary(low.dtype(like), shape)
    return Operand(made.buffer, stored(shape, (0, *range(2, len(shape)), 1)))


def _even(operand: Operand) -> bool:
    """Return whether the pixels of an image are evenly spaced."""
    try:
        even_stride(operand.layout, range(2, operand.layout.rank))
    except ValueError:
        return False
    return True
