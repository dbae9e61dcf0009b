"""Scalar programs: what a fused group does to every element, in static single assignment form.

Registers are numbered: first the inputs, then one for each instruction. An instruction applies an
elementwise operation of the graph (a row of the scalar table, a comparison, a selection, a
conversion) or is a number. The NumPy meaning of a program is that of its operations; code for
devices is derived from the rows of the scalar table.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kn_graph.dtype import DType
from kn_graph.op import EvalContext, Op
from kn_graph.ops.elementwise import Binary, BitCast, Cast, Compare, Select, Unary
from kn_graph.scalar import operation_counts, scalar_function
from kn_plan.access import HOST_KINDS

__all__ = ["SCALAR_OPS", "Instruction", "ProgramBuilder", "ScalarProgram", "is_cheap", "is_scalar"]

SCALAR_OPS = (Unary, Binary, Compare, Select, Cast, BitCast)
"""Operations that compute each element by itself."""

Array = np.ndarray[Any, Any]


def is_scalar(op: Op, dtypes: Iterable[DType]) -> bool:
    """Return whether an operation computes each element by itself, over types that devices have."""
    return isinstance(op, SCALAR_OPS) and all(d.kind not in HOST_KINDS for d in dtypes)


CHEAP = frozenset((
    "add", "sub", "mul", "neg", "abs", "min", "max", "eq", "lt", "le", "select",
    "logical_not", "logical_and", "logical_or", "logical_xor",
))  # fmt: skip
"""Primitives of one machine instruction, or two."""


def is_cheap(op: Op) -> bool:
    """Return whether an operation takes about one machine instruction for an element."""
    if isinstance(op, (Unary, Binary)):
        counts = operation_counts(scalar_function(op.fn).expression)
        return counts.total() <= 1 and counts.keys() <= CHEAP
    return isinstance(op, (Compare, Select, Cast))


@dataclass(frozen=True)
class Instruction:
    """One register.

    Attributes:
        dtype: of the register.
        op: what is applied; None for a number.
        operands: the registers read.
        number: a constant of rank 0 where there is no operation.
    """

    dtype: DType
    op: Op | None
    operands: tuple[int, ...] = ()
    number: float | int | bool | complex | None = None

    def __str__(self) -> str:
        """Return text such as `add(%0, %2)` or `0.5`."""
        if self.op is None:
            return f"{self.number}"
        return f"{_name(self.op)}({', '.join(f'%{r}' for r in self.operands)})"


def _name(op: Op) -> str:
    return f"cast_{op.dtype}" if isinstance(op, (Cast, BitCast)) else op.describe()


@dataclass(frozen=True)
class ScalarProgram:
    """A straight-line program over one element of each input.

    Attributes:
        inputs: element types of the first registers.
        instructions: one register each, after those of the inputs.
        outputs: the registers that are written.
    """

    inputs: tuple[DType, ...]
    instructions: tuple[Instruction, ...]
    outputs: tuple[int, ...]

    @property
    def is_copy(self) -> bool:
        """Whether outputs are inputs, unchanged."""
        return all(r < len(self.inputs) for r in self.outputs)

    def dtype(self, register: int) -> DType:
        """Return the element type of a register."""
        count = len(self.inputs)
        return self.inputs[register] if register < count else self.at(register).dtype

    def at(self, register: int) -> Instruction:
        """Return the instruction that makes a register."""
        return self.instructions[register - len(self.inputs)]

    def evaluate(self, context: EvalContext, arrays: Sequence[Array]) -> list[Array]:
        """Apply the program with NumPy; the arrays have one shape or broadcast."""
        registers: list[Array] = list(arrays)
        for step in self.instructions:
            if step.op is None:
                registers.append(np.array(step.number).astype(step.dtype.numpy))
                continue
            operands = [registers[r] for r in step.operands]
            if isinstance(step.op, Select):  # the only one that does not broadcast by itself
                operands = list(np.broadcast_arrays(*operands))
            registers.append(np.asarray(step.op.eval(context, *operands)))
        return [registers[r] for r in self.outputs]

    @property
    def flops(self) -> Counter[str]:
        """How often each primitive is computed for an element."""
        found: Counter[str] = Counter()
        for step in self.instructions:
            if isinstance(step.op, (Unary, Binary)):
                expression = scalar_function(step.op.fn).expression
                found += operation_counts(expression)
            elif step.op is not None:
                found[step.op.title] += 1
        return found

    def __str__(self) -> str:
        """Return the program, one register a line."""
        count = len(self.inputs)
        lines = [f"%{i}: {d} = input" for i, d in enumerate(self.inputs)]
        lines += [f"%{count + i}: {s.dtype} = {s}" for i, s in enumerate(self.instructions)]
        return "\n".join([*lines, f"out {', '.join(f'%{r}' for r in self.outputs)}"])


class ProgramBuilder:
    """Appends instructions; equal ones are one register."""

    def __init__(self) -> None:
        self._inputs: list[DType] = []
        self._steps: list[Instruction] = []
        self._known: dict[tuple[Any, ...], int] = {}

    def input(self, dtype: DType) -> int:
        """Add an input; all come before the first instruction. Returns its number, from -1 down."""
        self._inputs.append(dtype)
        return -len(self._inputs)

    def number(self, value: Any, dtype: DType) -> int:
        """Add a constant."""
        # 0.0 and -0.0 are equal, but not the same
        return self._add((dtype, repr(value)), Instruction(dtype, None, (), value))

    def apply(self, op: Op, operands: Sequence[int], dtype: DType) -> int:
        """Add an operation on registers."""
        registers = tuple(operands)
        return self._add((op, registers), Instruction(dtype, op, registers))

    def _add(self, key: tuple[Any, ...], step: Instruction) -> int:
        found = self._known.setdefault(key, len(self._steps))
        if found == len(self._steps):
            self._steps.append(step)
        return found

    def build(self, outputs: Sequence[int], *, first: int = 0) -> ScalarProgram:
        """Return the program: inputs are numbered first, what nobody reads is left out.

        Args:
            outputs: the registers that are written.
            first: which input comes first; the others keep their order.
        """
        live = _live(self._steps, outputs)
        count = len(self._inputs)
        order = sorted(range(count), key=lambda i: i != first)
        place: Mapping[int, int] = {
            **{-1 - i: order.index(i) for i in range(count)},
            **{old: count + new for new, old in enumerate(live)},
        }
        steps = (self._steps[i] for i in live)
        return ScalarProgram(
            tuple(self._inputs[i] for i in order),
            tuple(
                Instruction(s.dtype, s.op, tuple(place[r] for r in s.operands), s.number)
                for s in steps
            ),
            tuple(place[r] for r in outputs),
        )


def _live(steps: Sequence[Instruction], outputs: Sequence[int]) -> list[int]:
    wanted = {r for r in outputs if r >= 0}
    for i in range(len(steps) - 1, -1, -1):
        if i in wanted:
            wanted.update(r for r in steps[i].operands if r >= 0)
    return sorted(wanted)
