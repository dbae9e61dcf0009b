"""Scalar programs as C++ functions.

Every instruction becomes the primitives of its row in the scalar table. Floats of 16 bits are
computed in float32 and rounded where the program says that a register is a narrow one, as the
reference does, so that fused and unfused results are the same bits but for library functions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from kn_cuda.types import SMALL_FLOATS, compute_type, storage_type, wide
from kn_graph.dtype import DType, Kind
from kn_graph.ops.elementwise import Binary, BitCast, Cast, Compare, Select, Unary
from kn_graph.scalar import c_literal, c_statements, scalar_function
from kn_plan.calls import UnsupportedError
from kn_plan.program import Instruction, ScalarProgram

__all__ = ["computed", "given_numbers", "literal", "program_function"]

BYTE = 8

_CLOSED = frozenset(
    {"neg", "abs", "min", "max", "sign", "floor", "ceil", "trunc", "round_even", "relu", "fmod"}
)
"""Functions whose results are among the values of a narrow float if their operands are."""


def literal(number: Any, dtype: DType) -> str:
    """Return a number of an element type in the type that it is computed in."""
    return c_literal(computed(number, dtype), wide(dtype))


def computed(number: Any, dtype: DType) -> Any:
    """Return a number of an element type as it is computed with: a float, an int or a bool."""
    with np.errstate(all="ignore"):
        return np.asarray(number).astype(dtype.numpy).astype(wide(dtype).numpy).item()


def given_numbers(program: ScalarProgram) -> list[int]:
    """Return the registers of numbers that a kernel is given instead of being compiled for them.

    They are those of a program that quantizes, or makes floats of whole numbers: scales and zeros
    differ from layer to layer, and what is computed with them does not.
    """
    if not any(_quantizes(program, s) for s in program.instructions):
        return []
    steps = enumerate(program.instructions, start=len(program.inputs))
    return [r for r, step in steps if step.op is None and step.dtype in _GIVEN]


def _quantizes(program: ScalarProgram, step: Instruction) -> bool:
    if isinstance(step.op, Cast):
        (x,) = step.operands
        return step.dtype.is_float and program.dtype(x).is_int
    return isinstance(step.op, Unary) and step.op.fn == "round_even"


_GIVEN = frozenset(
    d for d in DType if wide(d) is DType.FLOAT32 or (d.is_int and d.bits in (8, 16, 32))
)


def program_function(
    program: ScalarProgram, name: str = "program", given: Mapping[int, str] = MappingProxyType({})
) -> str:
    """Return a static function `name(p, x0, x1, .., y0, y1, ..)` that sets the references y.

    Args:
        program: over one element of each input.
        name: of the function.
        given: what numbers are called that are in p, by register; others are written out.

    Raises:
        UnsupportedError: an instruction has no C++ text.
    """
    return _Writer(program, given).text(name)


class _Writer:
    """Writes the instructions of a program."""

    def __init__(self, program: ScalarProgram, given: Mapping[int, str]) -> None:
        self.program, self.given = program, given
        self.lines: list[str] = []
        self.names = [f"x{i}" for i in range(len(program.inputs))]

    def text(self, name: str) -> str:
        program = self.program
        for step in program.instructions:
            self._add(step)
        dtypes = [program.dtype(r) for r in program.outputs]
        inputs = [f"{compute_type(d)} x{i}" for i, d in enumerate(program.inputs)]
        outputs = [f"{compute_type(d)}& y{i}" for i, d in enumerate(dtypes)]
        results = [f"y{i} = {self.names[r]};" for i, r in enumerate(program.outputs)]
        body = "".join(f"    {line}\n" for line in [*self.lines, *results])
        arguments = ", ".join(["const Pointers& p", *inputs, *outputs])
        return f"KN_DEVICE static void {name}({arguments}) {{\n{body}}}\n"

    def _add(self, step: Instruction) -> None:
        """Append the lines of an instruction; numbers have none."""
        if step.op is None:
            given = self.given.get(len(self.names))
            self.names.append(f"p.{given}.value" if given else literal(step.number, step.dtype))
            return
        dtypes = [self.program.dtype(r) for r in step.operands]
        operands = [self.names[r] for r in step.operands]
        text = _WRITERS[type(step.op)](self, step.op, operands, dtypes)
        register = f"r{len(self.names)}"
        self.lines.append(f"const {compute_type(step.dtype)} {register} = {text};  // {step}")
        self.names.append(register)

    def function(
        self, op: Unary | Binary | Compare, operands: Sequence[str], dtypes: Sequence[DType]
    ) -> str:
        """Apply a row of the scalar table."""
        row = scalar_function(op.fn)
        params = row.bind(dict(getattr(op, "params", ())))
        computed = [wide(d) for d in dtypes]
        prefix = f"r{len(self.names)}_"
        lines, result = c_statements(row.expression, computed, operands, params, prefix)
        self.lines += lines
        common = dtypes[row.signature.typed]
        if row.signature.gives_bool or op.fn in _CLOSED:
            return result
        if common.is_int and common.bits < BYTE:
            raise UnsupportedError(f"there is no kernel for {op.fn} of {common}")
        return _rounded(result, common)

    def select(self, op: Select, operands: Sequence[str], dtypes: Sequence[DType]) -> str:
        """Choose."""
        condition, x, y = operands
        return f"{condition} ? {x} : {y}"

    def cast(self, op: Cast, operands: Sequence[str], dtypes: Sequence[DType]) -> str:
        """Convert; see `kn_graph.cast`."""
        ((x,), (source,)), target = (operands, dtypes), op.dtype
        storage_type(target)
        if source is target:
            return x
        if target is DType.BOOL:
            return f"{x} != 0"
        if target.is_int and target.bits < BYTE:
            return _low_bits(x, source, target)
        if target.is_int:
            return _whole(x, source, target) if source.is_float else f"({compute_type(target)}){x}"
        if target is DType.FLOAT16 and source is DType.FLOAT64:
            return f"widened(to_half({x}))"
        if target in SMALL_FLOATS:
            return _small(x, source, target, op.saturate)
        return _rounded(f"({compute_type(target)}){x}", target)

    def bit_cast(self, op: BitCast, operands: Sequence[str], dtypes: Sequence[DType]) -> str:
        """Reinterpret."""
        ((x,), (source,)), target = (operands, dtypes), op.dtype
        if source.kind in _WHOLE_KINDS and target.kind in _WHOLE_KINDS:
            return f"({storage_type(target)}){x}"
        function = _BITS.get((source, target.bits if target.is_int else target))
        if function is None:
            raise UnsupportedError(f"there is no kernel that reads {source} as {target}")
        return f"({compute_type(target)}){function.format(x)}"


_WHOLE_KINDS = (Kind.INT, Kind.UINT)

_BITS: Mapping[tuple[Any, Any], str] = {
    (DType.FLOAT32, 32): "__float_as_int({})",
    (DType.FLOAT64, 64): "__double_as_longlong({})",
    (DType.FLOAT16, 16): "to_half({}).bits",
    (DType.BFLOAT16, 16): "to_bfloat({}).bits",
    (DType.INT32, DType.FLOAT32): "__int_as_float({})",
    (DType.UINT32, DType.FLOAT32): "__int_as_float((int32_t){})",
    (DType.INT64, DType.FLOAT64): "__longlong_as_double({})",
    (DType.UINT64, DType.FLOAT64): "__longlong_as_double((int64_t){})",
    (DType.INT16, DType.FLOAT16): "widened(half_t{{(uint16_t){}}})",
    (DType.UINT16, DType.FLOAT16): "widened(half_t{{{}}})",
    (DType.INT16, DType.BFLOAT16): "widened(bfloat_t{{(uint16_t){}}})",
    (DType.UINT16, DType.BFLOAT16): "widened(bfloat_t{{{}}})",
}
"""From a float to a whole number of as many bits, and back."""


def _rounded(text: str, dtype: DType) -> str:
    """Return a float as a narrow type holds it."""
    return text if dtype is wide(dtype) else f"Rounded<{storage_type(dtype)}>::of({text})"


def _whole(x: str, source: DType, target: DType) -> str:
    """Return a float without its fraction: by 32 bits where they hold the type, else by 64."""
    function = "whole_32" if target.bits < 32 or target is DType.INT32 else "whole_64"
    if target is DType.UINT64:
        function = "whole_u64"
    return f"({storage_type(target)}){function}({x})"


def _low_bits(x: str, source: DType, target: DType) -> str:
    """Return the low bits of a number, of which a signed type takes the first for the sign."""
    whole = f"whole_64({x})" if source.is_float else f"int64_t({x})"
    if target.kind is Kind.UINT:
        return f"uint8_t({whole} & {(1 << target.bits) - 1})"
    half = 1 << (target.bits - 1)
    return f"int8_t((({whole} & {2 * half - 1}) ^ {half}) - {half})"


def _small(x: str, source: DType, target: DType, saturate: bool) -> str:
    """Return a number as a float of 8 bits holds it."""
    if source is DType.FLOAT64:
        raise UnsupportedError(f"there is no kernel that rounds {source} to {target} once")
    number = f"(float){x}"
    if saturate:
        number = f"Small<{storage_type(target)}>::clamped({number})"
    return _rounded(number, target)


_WRITERS: Mapping[type, Callable[..., str]] = {
    Unary: _Writer.function,
    Binary: _Writer.function,
    Compare: _Writer.function,
    Select: _Writer.select,
    Cast: _Writer.cast,
    BitCast: _Writer.bit_cast,
}
