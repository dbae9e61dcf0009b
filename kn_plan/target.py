"""What the planner asks of a device."""

from __future__ import annotations

from typing import Protocol

from kn_graph.dtype import DType
from kn_graph.op import Op
from kn_graph.ops.conv import Conv
from kn_graph.ops.matmul import MatMul
from kn_graph.value import Node

__all__ = ["NeutralTarget", "Order", "Target"]

Order = tuple[int, ...]
"""Axes as they lie in memory, the last one densest."""


class Target(Protocol):
    """A device as the planner sees it."""

    @property
    def max_instructions(self) -> int:
        """How many nodes a scalar program may have."""

    @property
    def repeats(self) -> bool:
        """Whether a step costs more than computing cheap elements wherever they are broadcast."""

    def expands(self, op: Op) -> bool:
        """Return whether an operation that can be written as others (`kn_plan.expand`) shall be."""

    def accepts(self, anchor: Node, out: DType) -> bool:
        """Return whether a node's kernel applies a program to its result, which becomes `out`."""

    def order(self, anchor: Node | None, rank: int, given: Order | None) -> Order | None:
        """Return the order of axes in which a result is best stored; None for any.

        Args:
            anchor: what computes it; None for a scalar program.
            rank: of the result.
            given: the order of the first operand that is read as it lies.
        """


class NeutralTarget:
    """A device that applies programs to convolutions and products."""

    max_instructions = 64
    repeats = False

    def expands(self, op: Op) -> bool:
        """Return True: there may be kernels for the others."""
        return True

    def accepts(self, anchor: Node, out: DType) -> bool:
        """Return whether it is one of these."""
        return isinstance(anchor.op, (Conv, MatMul))

    def order(self, anchor: Node | None, rank: int, given: Order | None) -> Order | None:
        """Leave it to the readers."""
        return None
