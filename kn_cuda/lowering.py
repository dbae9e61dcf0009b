"""What the lowering of single operations shares: C++ types, programs, constants kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kn_cuda.builder import KernelBuilder
from kn_cuda.calls import Call
from kn_cuda.copy import copy_launch
from kn_cuda.options import CudaOptions
from kn_cuda.scalar import Typed, add_end, scalar_launch
from kn_cuda.types import storage_type
from kn_graph.ops.elementwise import Cast
from kn_plan.calls import Constant
from kn_plan.lowering import StepLowering
from kn_plan.plan import Operand, Step
from kn_plan.program import Instruction, ScalarProgram

__all__ = ["Calls", "Lowering"]

Array = np.ndarray[Any, Any]

Calls = list[Call]


@dataclass
class Lowering(StepLowering[Call]):
    """What finds calls for the steps of one plan.

    Attributes:
        options: how graphs run.
        arch: what the device is.
        kept_arrays: constants that are uploaded in another form than the plan has.
    """

    options: CudaOptions
    arch: str = "sm_90"
    kept_arrays: list[Array] = field(default_factory=list)
    _known: dict[tuple[Any, ...], Constant] = field(default_factory=dict)

    @property
    def threads(self) -> int:
        """Threads of a block, where a kernel leaves it open."""
        return self.options.threads

    # ---- operands ---------------------------------------------------------------------------

    def typed(self, operand: Operand) -> Typed:
        """Return an operand and the C++ type of its elements.

        Raises:
            UnsupportedError: kernels do not compute with such elements.
        """
        return operand, storage_type(self.dtype(operand))

    # ---- programs and copies ----------------------------------------------------------------

    def scalar(
        self, program: ScalarProgram, writes: Sequence[Operand], reads: Sequence[Operand]
    ) -> Calls:
        """Apply a scalar program to every element."""
        if program.is_copy and len(writes) == 1:
            (out,), source = writes, reads[program.outputs[0]]
            return [self.copy(out, source)]
        made, given = ([self.typed(o) for o in operands] for operands in (writes, reads))
        return [scalar_launch(program, made, given, self.threads)]

    def copy(self, out: Operand, source: Operand) -> Call:
        """Copy elements."""
        return copy_launch(out, source, self.dtype(out), self.threads)

    def converted(self, out: Operand, source: Operand) -> Calls:
        """Copy elements to a tensor of another type, or of the same."""
        made, given = self.dtype(out), self.dtype(source)
        if made is given:
            return [self.copy(out, source)]
        program = ScalarProgram((given,), (Instruction(made, Cast(made), (0,)),), (1,))
        return self.scalar(program, [out], [source])

    def filled(self, out: Operand, number: float) -> Calls:
        """Write a number to all elements."""
        dtype = self.dtype(out)
        program = ScalarProgram((), (Instruction(dtype, None, (), number),), (0,))
        return self.scalar(program, [out], [])

    def end(self, b: KernelBuilder, step: Step, order: Sequence[int] | None = None) -> None:
        """Give a kernel the function that stores a result of a step, behind its program.

        It is `end(p, n, i, result)`, where i is the place of the result in row-major order.

        Args:
            b: the kernel.
            step: has one result, before the program.
            order: the axes as i counts them; those of the step by default.
        """
        assert step.node is not None
        writes, extras = ([self.typed(o) for o in t] for t in (step.writes, step.extras))
        add_end(b, step.node.results[0].dtype, step.program, writes, extras, order)

    def result(self, step: Step) -> Operand:
        """Return where a step without a program in its kernel puts its result: see `behind`."""
        assert step.node is not None
        if self.in_place(step):
            return step.writes[0]
        return self.temporary(step.node.results[0].dtype, step.shape)

    def in_place(self, step: Step) -> bool:
        """Return whether the program of a step runs in the memory of the step's result."""
        assert step.node is not None
        dtype = step.node.results[0].dtype
        return step.program is None or (
            len(step.writes) == 1 and self.dtype(step.writes[0]) is dtype
        )

    def behind(self, step: Step, result: Operand) -> Calls:
        """Apply the program of a step to what lies in memory, as a launch of its own."""
        if step.program is None:
            return []
        return self.scalar(step.program, step.writes, (result, *step.extras))

    # ---- constants --------------------------------------------------------------------------

    def kept(self, key: tuple[Any, ...], array: Array) -> Constant:
        """Return a constant that is uploaded as it is, once for one key.

        Args:
            key: of what it is, the same for the same one.
            array: its elements.
        """
        found = self._known.get(key)
        if found is None:
            self.kept_arrays.append(np.ascontiguousarray(array))
            found = self._known[key] = Constant(len(self.kept_arrays) - 1)
        return found
