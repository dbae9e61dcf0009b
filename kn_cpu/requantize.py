"""Which part of a program behind integer sums their kernels do: `native/kn_integer.h`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any

from kn_cpu.integer import Finish, Target
from kn_graph.dim import Size
from kn_graph.dtype import DType
from kn_graph.ops.elementwise import Binary, Cast, Compare, Select, Unary
from kn_plan.plan import Operand
from kn_plan.program import Instruction, ScalarProgram

__all__ = ["Requantize", "requantize"]

BYTES = {DType.UINT8: (Target.UINT8, 0, 255), DType.INT8: (Target.INT8, -128, 127)}
"""What quantized results are stored as, and their bounds."""

PLAIN = Finish()

LARGE = 1 << 20
"""Zero points and bounds beyond are left to the program: floats would round their sums."""


@dataclass(frozen=True)
class Requantize:
    """How sums become results.

    Attributes:
        finish: what the kernel does.
        bias: for each column, or one for all; None for none.
        scale: likewise.
        rest: what is left to do, of the sums as its first input.
        extras: the other inputs of the rest.
    """

    finish: Finish = PLAIN
    bias: Operand | None = None
    scale: Operand | None = None
    rest: ScalarProgram | None = None
    extras: tuple[Operand, ...] = ()


def requantize(
    program: ScalarProgram | None,
    extras: tuple[Operand, ...],
    axis: int,
    constants: Container[int] = (),
) -> Requantize:
    """Return a program as far as kernels have room for it.

    Args:
        program: of the sums, its first input; None to store them as they are.
        extras: its other inputs.
        axis: of the columns.
        constants: buffers whose numbers are finite: what is no number is left to programs.
    """
    if program is None:
        return Requantize()
    if len(program.outputs) != 1:
        return Requantize(rest=program, extras=extras)
    return _Reader(program, extras, axis, constants).read()


class _Reader:
    """Goes along the only readers of a value.

    Attributes:
        current: the register that is absorbed last.
    """

    def __init__(
        self,
        program: ScalarProgram,
        extras: tuple[Operand, ...],
        axis: int,
        constants: Container[int],
    ) -> None:
        self.program, self.extras, self.axis, self.constants = program, extras, axis, constants
        self.reads = Counter(r for s in program.instructions for r in s.operands)
        self.reads.update(program.outputs)
        self.current = 0

    def read(self) -> Requantize:
        """Absorb bias, scale and rounding, in this order."""
        found = self._bias(Requantize())
        to_float = self._next(Cast)
        if to_float is not None and self._dtype(to_float) is DType.FLOAT32:
            self.current = to_float
            finish = replace(found.finish, to=Target.FLOAT32)
            found = self._scale(replace(found, finish=finish))
            rounded = self._rounded(found)
            if rounded is not None:
                return rounded
        if self.program.outputs == (self.current,):
            return found
        rest, used = _remainder(self.program, self.current)
        return replace(found, rest=rest, extras=tuple(self.extras[i - 1] for i in used))

    def _dtype(self, register: int) -> DType:
        return self.program.dtype(register)

    def _next(self, kind: type, fn: str = "", reads: int = 1) -> int | None:
        """Return the only instruction that reads the current register, if it is of a kind."""
        if self.reads[self.current] != reads:
            return None
        count = len(self.program.inputs)
        for i, step in enumerate(self.program.instructions):
            named = not fn or getattr(step.op, "fn", "") == fn
            if self.current in step.operands and isinstance(step.op, kind) and named:
                return count + i
        return None

    def _at(self, register: int) -> Instruction:
        return self.program.at(register)

    def _other(self, register: int) -> int:
        """Return what a binary instruction reads beside the current register."""
        x, y = self._at(register).operands
        return y if x == self.current else x

    def _operand(self, register: int) -> Operand | None:
        return self.extras[register - 1] if 0 < register < len(self.program.inputs) else None

    def _number(self, register: int) -> float | None:
        if register < len(self.program.inputs) or self._at(register).op is not None:
            return None
        number: Any = self._at(register).number
        return float(number)

    def _bias(self, found: Requantize) -> Requantize:
        for fn, sign in (("add", 1), ("sub", -1)):
            at = self._next(Binary, fn)
            if at is None or (sign < 0 and self._at(at).operands[0] != self.current):
                continue
            operand = self._operand(self._other(at))
            step = None if operand is None else _column_step(operand, self.axis)
            if step is not None:
                self.current = at
                finish = replace(found.finish, bias_sign=sign, bias_step=step)
                return replace(found, finish=finish, bias=operand)
        return found

    def _scale(self, found: Requantize) -> Requantize:
        at = self._next(Binary, "mul")
        if at is None:
            return found
        number, operand = self._number(self._other(at)), self._operand(self._other(at))
        if number is not None and isfinite(number):
            self.current = at
            return replace(found, finish=replace(found.finish, factor=number))
        step = None if operand is None else _column_step(operand, self.axis)
        if step is None:
            return found
        self.current = at
        return replace(found, finish=replace(found.finish, scale_step=step), scale=operand)

    def _rounded(self, found: Requantize) -> Requantize | None:
        """Return the whole program, if it rounds, clamps and stores bytes; else change nothing."""
        start = self.current
        if found.scale is not None and found.scale.buffer not in self.constants:
            return None
        rounded = self._round(found)
        if rounded is None:
            self.current = start
        return rounded

    def _round(self, found: Requantize) -> Requantize | None:
        at = self._next(Unary, "round_even")
        if at is None:
            return None
        self.current = at
        zero = 0.0
        shifted = self._next(Binary, "add")
        number = None if shifted is None else self._number(self._other(shifted))
        if shifted is not None and number is not None:
            zero, self.current = number, shifted
        low, high = self._bounds()
        last = self._next(Cast)
        stored = None if last is None else BYTES.get(self._dtype(last))
        if last is None or stored is None or self.program.outputs != (last,):
            return None
        to, least, most = stored
        if not (least <= low <= high <= most and zero.is_integer() and abs(zero) < LARGE):
            return None
        if not (low.is_integer() and high.is_integer()):
            return None
        finish = replace(found.finish, to=to, zero=int(zero), low=int(low), high=int(high))
        return replace(found, finish=finish)

    def _bounds(self) -> tuple[float, float]:
        """Absorb minima and maxima, and return between what results are."""
        low, high = -float("inf"), float("inf")
        while (bound := self._bound()) is not None:
            register, number, largest = bound
            self.current = register
            pick = max if largest else min
            low, high = pick(low, number), pick(high, number)
        return low, high

    def _bound(self) -> tuple[int, float, bool] | None:
        """Return an instruction that bounds the current register, by what, and whether below."""
        at = self._next(Unary, "relu")
        if at is not None:
            return at, 0.0, True
        for fn in ("max", "min"):
            at = self._next(Binary, fn)
            number = None if at is None else self._number(self._other(at))
            if at is not None and number is not None:
                return at, number, fn == "max"
        return self._chosen()

    def _chosen(self) -> tuple[int, float, bool] | None:
        """Return the same for `x > number ? x : number`, and for `<`."""
        at = self._next(Select, reads=2)
        if at is None:
            return None
        condition, chosen, other = self._at(at).operands
        number = self._number(other)
        if chosen != self.current or number is None or self.reads[condition] != 1:
            return None
        compare = self._at(condition) if condition >= len(self.program.inputs) else None
        if compare is None or not isinstance(compare.op, Compare):
            return None
        known = compare.op.fn in ("gt", "lt") and compare.operands == (self.current, other)
        return (at, number, compare.op.fn == "gt") if known else None


def _column_step(operand: Operand, axis: int) -> int | None:
    """Return the stride along an axis of what is the same along the others; None if it is not."""
    layout = operand.layout
    places = list(zip(layout.sizes, layout.strides, strict=True))
    steps: list[Size] = [0 if n == 1 else s for n, s in places]
    along = steps.pop(axis)
    if any(s != 0 for s in steps):
        return None
    return int(along) if along in (0, 1) else None


def _remainder(program: ScalarProgram, start: int) -> tuple[ScalarProgram, list[int]]:
    """Return the program from a register on, as its first input, and which other inputs it has."""
    count = len(program.inputs)
    wanted, stack = set(program.outputs), list(program.outputs)
    while stack:
        register = stack.pop()
        if register == start or register < count:
            continue
        fresh = [r for r in program.at(register).operands if r not in wanted]
        wanted.update(fresh)
        stack += fresh
    used = [i for i in range(count) if i in wanted and i != start]
    steps = [i for i in sorted(wanted) if i >= count and i != start]
    place = {r: i for i, r in enumerate([start, *used, *steps])}
    moved = (program.at(i) for i in steps)
    return (
        ScalarProgram(
            (program.dtype(start), *(program.inputs[i] for i in used)),
            tuple(replace(s, operands=tuple(place[r] for r in s.operands)) for s in moved),
            tuple(place[r] for r in program.outputs),
        ),
        used,
    )
