"""Which results decide integers whose last bit the reference would decide in the same way.

A quantized model rounds floats to a few hundred integers, again and again. One that lies near a tie
goes up or down by its last bit, and what follows differs by a whole step. So functions such as
`sigmoid`, whose kernels have errors of a few ulps, are computed in float64 and rounded once, as the
reference does, wherever

- an integer is rounded from the result, maybe behind other programs, moves, minima and maxima, and
- all that it is computed from is exact up to there: sums of integers, programs, moves.

Behind sums of floats it is not, whose order of summation is a kernel's own: exact functions would
cost time for nothing.
"""

from __future__ import annotations

from kn_graph.ops.control import ControlOp
from kn_graph.ops.elementwise import Cast, Unary
from kn_graph.ops.gather import Gather, GatherElements, GatherND
from kn_graph.ops.layout import Concat, Pad
from kn_graph.ops.pool import Pool
from kn_graph.ops.reduce import Reduce, ReduceTo
from kn_graph.ops.sort import TopK
from kn_graph.types import TensorType
from kn_plan.plan import Plan, Step
from kn_plan.program import Instruction, ScalarProgram

__all__ = ["decisive_buffers"]

MOVES = (Concat, Gather, GatherElements, GatherND, Pad, TopK)
"""Operations whose results are elements of their operands."""

ROUNDINGS = frozenset({"round_even", "floor", "ceil", "trunc"})


def decisive_buffers(plan: Plan) -> frozenset[int]:
    """Return the buffers whose writers round every function as the reference does."""
    exact = _exact_steps(plan)
    decisive = {o.buffer for s in exact if _rounds(s.program) for o in s.writes}
    for step in reversed(exact) if decisive else ():
        if any(o.buffer in decisive for o in step.writes):
            decisive.update(o.buffer for o in (*step.writes, *step.inputs))
    return frozenset(decisive)


def _exact_steps(plan: Plan) -> list[Step]:
    """Return the steps whose results depend on no sum of floats."""
    noisy: set[int] = set()
    found = []
    for step in plan.steps:
        if noisy.isdisjoint([o.buffer for o in step.inputs]) and _is_exact(step):
            found.append(step)
        else:
            noisy.update(o.buffer for o in step.writes)
    return found


def _is_exact(step: Step) -> bool:
    """Return whether an anchor does not round."""
    if step.node is None or isinstance(step.op, MOVES):
        return True
    if isinstance(step.op, (Pool, Reduce, ReduceTo)) and step.op.fn in ("max", "min"):
        return True
    types = [v.type for v in (*step.node.operands, *step.node.results)]
    numbers = all(isinstance(t, TensorType) and not t.dtype.is_float for t in types)
    return numbers and not isinstance(step.op, ControlOp)


def _rounds(program: ScalarProgram | None) -> bool:
    """Return whether a program makes integers of floats."""
    return program is not None and any(_is_rounding(program, i) for i in program.instructions)


def _is_rounding(program: ScalarProgram, step: Instruction) -> bool:
    if isinstance(step.op, Unary):
        return step.op.fn in ROUNDINGS
    if not isinstance(step.op, Cast) or not step.op.dtype.is_int:
        return False
    return program.dtype(step.operands[0]).is_float
