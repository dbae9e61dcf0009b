"""The beginning of a scalar program that a kernel computes in registers, and what is left of it."""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import dataclass, replace
from math import inf, isnan

from kn_graph.dtype import DType
from kn_graph.ops.elementwise import Binary, Unary
from kn_plan.layout import StridedLayout
from kn_plan.plan import Operand
from kn_plan.program import Instruction, ScalarProgram

__all__ = ["Epilogue", "split"]


@dataclass(frozen=True)
class Epilogue:
    """clamp(result * scale + bias + residual), then the rest.

    Attributes:
        scale: what the result is multiplied with, one number a column.
        bias: one number a column.
        residual: any tensor of the result's shape.
        low: lower bound.
        high: upper bound.
        rest: what remains to be computed; None for nothing.
        extras: the other inputs of the rest.
    """

    scale: Operand | None = None
    bias: Operand | None = None
    residual: Operand | None = None
    low: float = -inf
    high: float = inf
    rest: ScalarProgram | None = None
    extras: tuple[Operand, ...] = ()


def split(
    program: ScalarProgram | None,
    extras: tuple[Operand, ...],
    axis: int,
    *,
    scales: bool = False,
    clamps: bool = True,
    adds: Callable[[StridedLayout], bool] = lambda layout: True,
) -> Epilogue:
    """Split the program of a step behind an anchor.

    Args:
        program: its first input is the anchor's result.
        extras: the other inputs, in the shape of the result.
        axis: along which a bias varies.
        scales: whether the kernel multiplies.
        clamps: whether the kernel has bounds.
        adds: whether the kernel adds a residual of a layout.
    """
    if program is None:
        return Epilogue()
    room = _Room(program, extras, axis, scales, clamps, adds)
    found, current, taken = Epilogue(), 0, set[int]()
    while len(program.outputs) == 1 and current not in program.outputs:
        readers = [i for i, s in enumerate(program.instructions) if current in s.operands]
        if len(readers) != 1:
            break
        grown = room.absorb(found, program.instructions[readers[0]], current)
        if grown is None:
            break
        found, current = grown, len(program.inputs) + readers[0]
        taken.add(current)
    if program.outputs == (current,):
        return found
    rest, used = _rest(program, current, taken)
    return replace(found, rest=rest, extras=tuple(extras[r - 1] for r in used))


@dataclass(frozen=True)
class _Room:
    """What a kernel has room for; see `split`."""

    program: ScalarProgram
    extras: tuple[Operand, ...]
    axis: int
    scales: bool
    clamps: bool
    adds: Callable[[StridedLayout], bool]

    def absorb(self, found: Epilogue, step: Instruction, current: int) -> Epilogue | None:
        """Return the epilogue with one instruction more, if there is room for it."""
        if isinstance(step.op, Unary) and step.op.fn == "relu":
            return self._bounded(found, "max", 0.0)
        if not isinstance(step.op, Binary) or step.operands.count(current) != 1:
            return None
        (other,) = [r for r in step.operands if r != current]
        if other < len(self.program.inputs):
            return self._with_operand(found, step.op.fn, self.extras[other - 1])
        constant = self.program.at(other)
        if constant.op is not None or constant.dtype is not DType.FLOAT32:
            return None
        return self._bounded(found, step.op.fn, float(constant.number))  # type: ignore[arg-type]

    def _bounded(self, found: Epilogue, fn: str, bound: float) -> Epilogue | None:
        """Bounds are applied one after another; the upper one wins where they cross."""
        if not self.clamps or isnan(bound):
            return None
        if fn == "min":
            return replace(found, high=min(found.high, bound))
        if fn == "max" and bound <= found.high:
            return replace(found, low=max(found.low, bound))
        return None

    def _with_operand(self, found: Epilogue, fn: str, operand: Operand) -> Epilogue | None:
        if found.low != -inf or found.high != inf:
            return None
        column = _varies_along(operand, self.axis)
        if fn == "mul" and self.scales and column:
            return replace(found, scale=operand) if found == Epilogue() else None
        if fn != "add":
            return None
        if column and found.bias is None and found.residual is None:
            return replace(found, bias=operand)
        room = found.residual is None and self.adds(operand.layout)
        return replace(found, residual=operand) if room else None


def _varies_along(operand: Operand, axis: int) -> bool:
    """Return whether an operand is the same along all axes but one, and dense along that."""
    strides = operand.layout.strides
    return all(s == (1 if a == axis else 0) for a, s in enumerate(strides)) or (
        all(
            s == 0 or operand.layout.sizes[a] == 1 or (a == axis and s == 1)
            for a, s in enumerate(strides)
        )
        and strides[axis] == 1
    )


def _rest(
    program: ScalarProgram, current: int, taken: Set[int]
) -> tuple[ScalarProgram, tuple[int, ...]]:
    """Return the program without some instructions, and the inputs that it still reads.

    A register takes the place of its first input.
    """
    count = len(program.inputs)
    read = set(program.outputs)
    left: list[int] = []
    for register in range(count + len(program.instructions) - 1, count - 1, -1):
        if register in read and register not in taken:
            left.insert(0, register)
            read.update(program.at(register).operands)
    used = tuple(r for r in range(1, count) if r in read)
    place = {register: i for i, register in enumerate((current, *used, *left))}
    steps = tuple(
        replace(s, operands=tuple(place[r] for r in s.operands)) for s in map(program.at, left)
    )
    inputs = (program.dtype(current), *(program.inputs[r] for r in used))
    return ScalarProgram(inputs, steps, tuple(place[r] for r in program.outputs)), used
