"""The beginning of a scalar program that a kernel computes in registers, and what is left of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf

from kn_graph.ops.elementwise import Binary, Unary
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
) -> Epilogue:
    """Split the program of a step behind an anchor.

    Args:
        program: its first input is the anchor's result.
        extras: the other inputs, in the shape of the result.
        axis: along which a bias varies.
        scales: whether the kernel multiplies.
        clamps: whether the kernel has bounds.
    """
    if program is None:
        return Epilogue()
    found, current, taken = Epilogue(), 0, 0
    for place, step in enumerate(program.instructions):
        register = len(program.inputs) + place
        if len(program.outputs) > 1 or _reads(program, current) != 1:
            break
        grown = _absorb(found, step, current, program, extras, axis, scales, clamps)
        if grown is None:
            break
        found, current, taken = grown, register, place + 1
    if program.outputs == (current,) and taken == len(program.instructions):
        return found
    return replace(found, rest=_rest(program, current, taken), extras=extras)


def _reads(program: ScalarProgram, register: int) -> int:
    """Return how often a register is read."""
    reads = sum(s.operands.count(register) for s in program.instructions)
    return reads + program.outputs.count(register)


def _absorb(
    found: Epilogue,
    step: Instruction,
    current: int,
    program: ScalarProgram,
    extras: tuple[Operand, ...],
    axis: int,
    scales: bool,
    clamps: bool,
) -> Epilogue | None:
    """Return the epilogue with one instruction more, if it has room for it."""
    op = step.op
    free = found.low == -inf and found.high == inf
    if isinstance(op, Unary) and op.fn == "relu" and step.operands == (current,):
        return replace(found, low=0.0) if clamps and free else None
    if not isinstance(op, Binary) or current not in step.operands or not free:
        return None
    (other,) = [r for r in step.operands if r != current] or [current]
    if not 0 < other < len(program.inputs):
        return None
    operand = extras[other - 1]
    column = _varies_along(operand, axis)
    if op.fn == "mul" and scales and column:
        plain = found == Epilogue()
        return replace(found, scale=operand) if plain else None
    if op.fn != "add":
        return None
    if column and found.bias is None and found.residual is None:
        return replace(found, bias=operand)
    return replace(found, residual=operand) if found.residual is None else None


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


def _rest(program: ScalarProgram, current: int, taken: int) -> ScalarProgram:
    """Return the program from an instruction on, with a register in place of its first input."""
    count = len(program.inputs)

    def moved(register: int) -> int:
        if register == current:
            return 0
        return register if register < count else register - taken

    steps = tuple(
        replace(s, operands=tuple(map(moved, s.operands))) for s in program.instructions[taken:]
    )
    return ScalarProgram(program.inputs, steps, tuple(map(moved, program.outputs)))
