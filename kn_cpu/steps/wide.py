"""Kernels of float32 and of wide integers, for narrower types: operands are converted around them.

Weights are converted once, where a kernel packs them; what else a step reads is converted by each
run, into temporaries as large as the buffers that it lies in, so that every view of them stays one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from kn_cpu.lowering import Calls, Lowering
from kn_graph.dtype import DType
from kn_graph.ops.elementwise import Cast
from kn_plan.plan import Operand, Step
from kn_plan.program import Instruction, ProgramBuilder, ScalarProgram

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

    def write(self, writer: Writer, step: Step, op: Any) -> Calls:
        """Return the calls of the step, between those that convert."""
        low, program = self.low, step.program
        reads = tuple(map(self._source, step.reads))
        types = [low.dtype(o) for o in step.writes] if program is None else program.inputs[:1]
        results = tuple(map(self._result, step.writes, types))
        anchor = replace(step, reads=reads, writes=results, program=None, extras=())
        calls = writer(low, anchor, op)
        calls = low.taken() + calls
        if program is not None:
            rest = _behind_cast(program, low.dtype(results[0]))
            calls += low.scalar(rest, step.writes, (*results, *step.extras))
        else:
            for out, result in zip(step.writes, results, strict=True):
                calls += self._converted(out, result)
        return self._sources_used(calls) + calls

    def _source(self, operand: Operand) -> Operand:
        """Return the same view of a temporary for the buffer."""
        wide = self.types.get(self.low.dtype(operand))
        if wide is None:
            return operand
        found = self.sources.get(operand.buffer)
        if found is None:
            found = self.sources[operand.buffer] = self._temporary(operand, wide)
            array = self.low.constants.get(operand.buffer)
            if array is not None:  # a kernel may pack it
                self.low.constants[found.buffer] = array.astype(wide.numpy)
        return Operand(found.buffer, operand.layout)

    def _result(self, operand: Operand, dtype: DType) -> Operand:
        wide = self.types.get(dtype)
        if wide is None:
            return operand
        return Operand(self._temporary(operand, wide).buffer, operand.layout)

    def _temporary(self, like: Operand, dtype: DType) -> Operand:
        return self.low.temporary(dtype, (self.low.buffers[like.buffer].numel,))

    def _sources_used(self, calls: Calls) -> Calls:
        """Return what converts the buffers that calls read."""
        used = {p.buffer for c in calls for p in c.pointers if isinstance(p, Operand)}
        before: Calls = []
        for buffer, wide in self.sources.items():
            if wide.buffer in used:
                before += self._converted(wide, Operand(buffer, wide.layout))
        return before

    def _converted(self, out: Operand, source: Operand) -> Calls:
        if out == source:
            return []
        dtype, builder = self.low.dtype(out), ProgramBuilder()
        register = builder.apply(Cast(dtype), [builder.input(self.low.dtype(source))], dtype)
        return self.low.scalar(builder.build([register]), [out], [source])


def _behind_cast(program: ScalarProgram, wide: DType) -> ScalarProgram:
    """Return the program with a wider first input, which is converted first."""
    narrow, count = program.inputs[0], len(program.inputs)

    def moved(register: int) -> int:
        if register == 0:
            return count
        return register if register < count else register + 1

    steps = [Instruction(narrow, Cast(narrow), (0,))]
    steps += [replace(s, operands=tuple(map(moved, s.operands))) for s in program.instructions]
    inputs = (wide, *program.inputs[1:])
    return ScalarProgram(inputs, tuple(steps), tuple(map(moved, program.outputs)))
