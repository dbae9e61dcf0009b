"""What kernels compute of a program in registers, and what is left of it."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, nan

import numpy as np
import pytest

from kn_cpu.epilogue import Epilogue, split
from kn_graph import DType
from kn_graph.context import RunContext
from kn_graph.ops.elementwise import Binary, Unary
from kn_graph.random_bits import RandomStreams
from kn_plan.layout import StridedLayout
from kn_plan.plan import Operand
from kn_plan.program import ProgramBuilder, ScalarProgram

F32, SHAPE = DType.FLOAT32, (2, 5, 3)
FULL = Operand(0, StridedLayout.contiguous(SHAPE))
COLUMN = Operand(1, StridedLayout(SHAPE, (0, 1, 0)))
ROW = Operand(2, StridedLayout(SHAPE, (0, 0, 1)))
OPERANDS = (FULL, COLUMN, ROW, FULL)


class Writer:
    """Writes a program over the anchor's result `x` and the operands."""

    def __init__(self) -> None:
        self.builder = ProgramBuilder()
        self.x, self.full, self.column, self.row, self.other = (
            self.builder.input(F32) for _ in range(5)
        )

    def __call__(self, fn: str, *operands: int | float) -> int:
        registers = [
            self.builder.number(np.float32(o), F32) if isinstance(o, float) else o for o in operands
        ]
        op = Unary(fn) if len(operands) == 1 else Binary(fn)
        return self.builder.apply(op, registers, F32)


Case = tuple[Callable[[Writer], int], Epilogue, str]
CASES: dict[str, Case] = {
    "bias": (lambda w: w("add", w.x, w.column), Epilogue(bias=COLUMN), ""),
    "residual": (lambda w: w("add", w.full, w.x), Epilogue(residual=FULL), ""),
    "all": (
        lambda w: w("relu", w("add", w("add", w.x, w.column), w.full)),
        Epilogue(bias=COLUMN, residual=FULL, low=0),
        "",
    ),
    "relu6": (lambda w: w("min", 6.0, w("relu", w.x)), Epilogue(low=0, high=6), ""),
    "two bounds": (
        lambda w: w("max", w("min", w("min", w.x, 4.0), 7.0), -2.0),
        Epilogue(low=-2, high=4),
        "",
    ),
    "crossed bounds": (
        lambda w: w("max", w("min", w.x, 1.0), 2.0), Epilogue(high=1), "2.0 max(%0, %1)",
    ),
    "upper bound wins": (lambda w: w("min", w("max", w.x, 2.0), 1.0), Epilogue(low=2, high=1), ""),
    "no bound": (lambda w: w("max", w.x, nan), Epilogue(), "nan max(%0, %1)"),
    "residual behind a bound": (
        lambda w: w("add", w("relu", w.x), w.full), Epilogue(low=0), "add(%0, %1)",
    ),
    "what is left reads fewer operands": (
        lambda w: w("mul", w("silu", w("add", w.x, w.column)), w.row),
        Epilogue(bias=COLUMN),
        "silu(%0) mul(%2, %1)",
    ),
    "read twice": (
        lambda w: w("mul", w.x, w("sigmoid", w.x)), Epilogue(), "sigmoid(%0) mul(%0, %1)",
    ),
    "squared": (lambda w: w("add", w.x, w.x), Epilogue(), "add(%0, %0)"),
    "an operand is computed": (
        lambda w: w("relu", w("add", w.x, w("add", w.full, w.other))),
        Epilogue(),
        "add(%1, %2) add(%0, %3) relu(%4)",
    ),
    "a residual that does not fit": (lambda w: w("add", w.x, w.row), Epilogue(), "add(%0, %1)"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_program_is_split(name: str) -> None:
    write, want, rest = CASES[name]
    program = built(write)
    found = split(program, OPERANDS, 1, adds=lambda layout: layout == FULL.layout)
    parts = (found.bias, found.residual, found.low, found.high)
    assert parts == (want.bias, want.residual, want.low, want.high)
    assert ("" if found.rest is None else text(found.rest)) == rest
    check_result(program, found)


def built(write: Callable[[Writer], int]) -> ScalarProgram:
    writer = Writer()
    return writer.builder.build([write(writer)])


def text(program: ScalarProgram) -> str:
    return " ".join(map(str, program.instructions))


def check_result(program: ScalarProgram, end: Epilogue) -> None:
    """Both ways give the same numbers."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal(SHAPE).astype(np.float32) * 4
    arrays = {o: rng.standard_normal(SHAPE).astype(np.float32) for o in OPERANDS}
    context = RunContext({}, RandomStreams(0))
    (want,) = program.evaluate(context, [x, *(arrays[o] for o in OPERANDS)])
    for more in (end.bias, end.residual):
        x = x if more is None else x + arrays[more]
    got = np.minimum(np.maximum(x, np.float32(end.low)), np.float32(end.high))
    if end.rest is not None:
        (got,) = end.rest.evaluate(context, [got, *(arrays[o] for o in end.extras)])
    np.testing.assert_array_equal(got, want)


def test_nothing_is_absorbed_where_there_are_several_results() -> None:
    writer = Writer()
    program = writer.builder.build([writer("relu", writer.x), writer("silu", writer.x)])
    found = split(program, OPERANDS, 1)
    assert (found.low, found.high) == (-inf, inf)
    assert found.rest is not None
    assert text(found.rest) == "relu(%0) silu(%0)"
    assert not found.extras
