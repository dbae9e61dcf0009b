"""What finding calls of kernels for steps has in common on every device."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import numpy as np

from kn_graph.dim import UnboundSymbolError
from kn_graph.dtype import DType
from kn_graph.op import Op
from kn_graph.types import Shape
from kn_plan.calls import Refusal, UnsupportedError
from kn_plan.layout import StridedLayout
from kn_plan.plan import Buffer, Home, Operand, Plan, Step
from kn_plan.program import ScalarProgram

__all__ = ["StepLowering", "lowered"]

Array = np.ndarray[Any, Any]
Call = TypeVar("Call")


@dataclass
class StepLowering(ABC, Generic[Call]):
    """What finds calls for the steps of one plan.

    Attributes:
        plan: whose steps are lowered.
        buffers: those of the plan, then temporaries that live for one step.
        constants: arrays by buffer.
    """

    plan: Plan
    buffers: list[Buffer] = field(init=False)
    constants: dict[int, Array] = field(init=False)

    def __post_init__(self) -> None:
        """Begin with the plan's buffers."""
        self.buffers, self.constants = list(self.plan.buffers), dict(self.plan.constants)

    @abstractmethod
    def scalar(
        self, program: ScalarProgram, writes: Sequence[Operand], reads: Sequence[Operand]
    ) -> list[Call]:
        """Apply a scalar program to every element."""

    def dtype(self, operand: Operand) -> DType:
        """Return the element type of an operand."""
        dtype = self.buffers[operand.buffer].dtype
        assert dtype is not None
        return dtype

    def itemsize(self, operand: Operand) -> int:
        """Return the bytes of an element of an operand."""
        return self.dtype(operand).itemsize

    def temporary(self, dtype: DType, shape: Shape) -> Operand:
        """Return memory in row-major order that only the calls of one step use."""
        layout = StridedLayout.contiguous(shape)
        number = len(self.buffers)
        self.buffers.append(Buffer(number, "temporary", dtype, layout.numel, Home.ARENA))
        return Operand(number, layout)

    def roots(self) -> list[int]:
        """Return the buffer whose memory each one has."""
        planned = len(self.plan.buffers)
        return [self.plan.root(b) if b < planned else b for b in range(len(self.buffers))]

    def is_constant(self, operand: Operand) -> bool:
        """Return whether the elements of an operand, and where they are, are known."""
        known = operand.buffer in self.constants
        return known and all(isinstance(n, int) for n in operand.layout.numbers)

    def constant(self, operand: Operand) -> Array | None:
        """Return the elements of an operand, where they are a constant; perhaps a copy."""
        if not self.is_constant(operand):
            return None
        flat = np.ascontiguousarray(self.constants[operand.buffer]).reshape(-1)
        return operand.layout.of(flat)


Low = TypeVar("Low", bound=StepLowering[Any])
Writer = Callable[[Low, Step, Any], list[Call]]


def lowered(
    low: Low, step: Step, writers: Mapping[type[Op], Writer[Low, Call]], most_axes: int
) -> list[Call] | Refusal:
    """Return the calls of a step, or why it has none.

    Args:
        low: what the calls are found with.
        step: what is to be done.
        writers: the function that finds the calls of an operation.
        most_axes: how many a kernel can go through.
    """
    operands = (*step.inputs, *step.writes)
    try:
        if any(low.buffers[o.buffer].dtype is None for o in operands):
            raise UnsupportedError("objects are handled by the host")
        if any(o.layout.rank > most_axes for o in operands):
            raise UnsupportedError(f"there are more than {most_axes} axes")
        if any(low.buffers[o.buffer].home is Home.LATE for o in step.writes):
            raise UnsupportedError("the size of the result shows when it has run")
        if step.node is None:
            assert step.program is not None
            return low.scalar(step.program, step.writes, step.extras)
        writer = writers.get(type(step.node.op))
        if writer is None:
            raise UnsupportedError("there is no kernel for it")
        return writer(low, step, step.node.op)
    except UnboundSymbolError:
        return Refusal("its weights have symbolic sizes")
    except (UnsupportedError, ValueError) as error:
        return Refusal(str(error))
