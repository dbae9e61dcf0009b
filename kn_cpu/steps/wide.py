"""Kernels of float32 and of wide integers, for narrower types: operands are converted around them.

Weights are converted once, where a kernel packs them; what else a step reads is converted by each
run, into temporaries as large as the buffers that it lies in, so that every view of them stays one.
A program behind an operation is computed wide as well, and its results are rounded once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from kn_cpu.epilogue import Epilogue
from kn_cpu.lowering import Calls, Lowering
from kn_graph.dtype import DType
from kn_graph.ops.elementwise import BitCast, Cast
from kn_plan.calls import UnsupportedError
from kn_plan.plan import Operand, Step
from kn_plan.program import Instruction, ScalarProgram

__all__ = ["FLOATS", "INTEGERS", "NUMBERS", "Writer", "widened"]

Writer = Callable[[Lowering, Step, Any], Calls]

FLOATS: Mapping[DType, DType] = {DType.FLOAT16: DType.FLOAT32, DType.BFLOAT16: DType.FLOAT32}

INTEGERS: Mapping[DType, DType] = {
    DType.INT8: DType.INT32,
    DType.UINT8: DType.INT32,
    DType.INT16: DType.INT32,
    DType.UINT16: DType.INT32,
    DType.UINT32: DType.INT64,
}

NUMBERS = {**FLOATS, **INTEGERS}


def widened(writer: Writer, types: Mapping[DType, DType]) -> Writer:
    """Return what finds kernels for narrow types too, by those for wider ones.

    Args:
        writer: finds kernels for wide types.
        types: the wide type that stands for each narrow one.
    """

    def write(low: Lowering, step: Step, op: Any) -> Calls:
        operands = (*step.reads, *step.writes)
        if not any(low.dtype(o) in types for o in operands):
            return writer(low, step, op)
        return _Widening(low, types).write(writer, step, op)

    return write


@dataclass
class _Widening:
    """The step in wide types; see `widened`."""

    low: Lowering
    types: Mapping[DType, DType]
    sources: dict[int, Operand] = field(default_factory=dict)  # temporaries by what they stand for
    narrow: dict[int, int] = field(default_factory=dict)  # and the reverse

    def write(self, writer: Writer, step: Step, op: Any) -> Calls:
        """Return the calls of the step, between those that convert."""
        low, program = self.low, step.program
        reads, extras = (tuple(map(self._source, t)) for t in (step.reads, step.extras))
        results = tuple(map(self._result, step.writes))
        wide = None if program is None else _wide_program(program, self.types)
        anchor = replace(step, reads=reads, extras=extras, writes=results, program=wide)
        made: list[Calls] = []

        def tail(epilogue: Epilogue) -> Calls:
            made.append(self._tail(step, results[0], epilogue))
            return made[0]

        with low.ending(results[0].buffer, tail):
            calls = writer(low, anchor, op)
        calls = low.taken() + calls
        if not made:
            for out, result in zip(step.writes, results, strict=True):
                calls += self._converted(out, result)
        return self._with_sources(calls)

    def _source(self, operand: Operand) -> Operand:
        """Return the same view of a temporary for the buffer."""
        wide = self.types.get(self.low.dtype(operand))
        if wide is None:
            return operand
        found = self.sources.get(operand.buffer)
        if found is None:
            found = self.sources[operand.buffer] = self._temporary(operand, wide)
            self.narrow[found.buffer] = operand.buffer
            array = self.low.constants.get(operand.buffer)
            if array is not None:  # a kernel may pack it
                self.low.constants[found.buffer] = array.astype(wide.numpy)
        return Operand(found.buffer, operand.layout)

    def _result(self, operand: Operand) -> Operand:
        wide = self.types.get(self.low.dtype(operand))
        if wide is None:
            return operand
        return Operand(self._temporary(operand, wide).buffer, operand.layout)

    def _temporary(self, like: Operand, dtype: DType) -> Operand:
        return self.low.temporary(dtype, (self.low.buffers[like.buffer].numel,))

    def _tail(self, step: Step, result: Operand, epilogue: Epilogue) -> Calls:
        """Return what applies the rest of a program, which reads and writes narrow types."""
        low = self.low
        rest = epilogue.rest or ScalarProgram((low.dtype(result),), (), (0,))
        extras = (Operand(self.narrow.get(e.buffer, e.buffer), e.layout) for e in epilogue.extras)
        inputs = (result, *extras)
        types = (tuple(map(low.dtype, operands)) for operands in (inputs, step.writes))
        return low.scalar(_between(rest, *types), step.writes, inputs)

    def _with_sources(self, calls: Calls) -> Calls:
        """Put what converts operands in front; constants are converted now."""
        low = self.low
        used: dict[int, Operand] = {}
        found: Calls = []
        for call in calls:
            pointers = list(call.pointers)
            for i, p in enumerate(pointers):
                source = self.narrow.get(p.buffer) if isinstance(p, Operand) else None
                if source is None or not isinstance(p, Operand):
                    continue
                array = low.constants.get(source)
                if array is not None and isinstance(p.layout.offset, int):
                    wide = array.astype(low.dtype(p).numpy).reshape(-1)
                    pointers[i] = low.kept(wide[p.layout.offset :])
                else:
                    used[source] = self.sources[source]
            found.append(replace(call, pointers=tuple(pointers)))
        before: Calls = []
        for buffer, temporary in used.items():
            before += self._converted(temporary, Operand(buffer, temporary.layout))
        return before + found

    def _converted(self, out: Operand, source: Operand) -> Calls:
        if out == source:
            return []
        types = [(self.low.dtype(o),) for o in (source, out)]
        copy = ScalarProgram(types[0], (), (0,))
        return self.low.scalar(_between(copy, *types), [out], [source])


def _wide_program(program: ScalarProgram, types: Mapping[DType, DType]) -> ScalarProgram:
    """Return the program in wide types; what was rounded at every instruction is so no more.

    Raises:
        UnsupportedError: it looks at the bits of a narrow type.
    """
    steps = []
    for s in program.instructions:
        dtype, op, number = types.get(s.dtype, s.dtype), s.op, s.number
        if isinstance(op, BitCast):
            raise UnsupportedError("the bits of a narrow type are read")
        if isinstance(op, Cast):
            op = replace(op, dtype=dtype)
        if op is None and dtype is not s.dtype:
            number = np.array(number).astype(s.dtype.numpy).astype(dtype.numpy).item()
        steps.append(replace(s, dtype=dtype, op=op, number=number))
    inputs = tuple(types.get(d, d) for d in program.inputs)
    return ScalarProgram(inputs, tuple(steps), program.outputs)


def _between(
    program: ScalarProgram, inputs: Sequence[DType], outputs: Sequence[DType]
) -> ScalarProgram:
    """Return the program with inputs and outputs of other types, which are converted."""
    count, place = len(inputs), list(range(len(inputs)))
    steps: list[Instruction] = []

    def cast(register: int, dtype: DType) -> int:
        steps.append(Instruction(dtype, Cast(dtype), (register,)))
        return count + len(steps) - 1

    for i, (have, want) in enumerate(zip(inputs, program.inputs, strict=True)):
        place[i] = i if have is want else cast(i, want)
    for s in program.instructions:
        steps.append(replace(s, operands=tuple(place[r] for r in s.operands)))
        place.append(count + len(steps) - 1)
    ends = [
        place[r] if program.dtype(r) is want else cast(place[r], want)
        for r, want in zip(program.outputs, outputs, strict=True)
    ]
    return ScalarProgram(tuple(inputs), tuple(steps), tuple(ends))
