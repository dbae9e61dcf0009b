"""Scalar programs that move into the kernel which reads their result next.

A product of matrices is often followed by a bias and a residual, and these by a norm. The kernel of
the norm can compute them itself: it reads every element once, and stores what others read as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from kn_cuda.calls import Launch, Refusal, UnsupportedError
from kn_cuda.lowering import Calls, Lowering
from kn_cuda.rows import Front
from kn_cuda.steps.norm import norm, softmax
from kn_graph.op import Op
from kn_graph.ops.matmul import MatMul
from kn_graph.ops.norm import Norm, Softmax
from kn_graph.types import Shape
from kn_plan.plan import Home, Operand, Step

__all__ = ["move_to_front"]

Lowered = Calls | Refusal

WRITERS: Mapping[type[Op], Callable[[Lowering, Step, Any, Front], Calls]] = {
    Norm: norm,
    Softmax: softmax,
}
"""Operations in front of which a program runs."""


def move_to_front(low: Lowering, lowered: Sequence[Lowered]) -> tuple[list[Lowered], list[int]]:
    """Return the calls of steps with programs moved into the next step where that takes them.

    Args:
        low: whose steps they are.
        lowered: the calls of each step.

    Returns:
        The calls of each step, and the step at which each buffer is read last.
    """
    found, deaths = list(lowered), list(low.plan.deaths)
    for index, (step, following) in enumerate(pairwise(low.plan.steps)):
        calls = found[index]
        writer = WRITERS.get(type(following.op)) if following.op is not None else None
        if writer is None or isinstance(calls, Refusal) or isinstance(found[index + 1], Refusal):
            continue
        front = _front(low, index, step, following) if _ends_in_program(step, calls) else None
        if front is None:
            continue
        try:
            found[index + 1] = writer(low, following, following.op, front)
        except UnsupportedError:
            continue
        found[index] = calls[:-1]
        for operand in step.inputs:
            deaths[operand.buffer] = max(deaths[operand.buffer], index + 1)
    return found, deaths


def _ends_in_program(step: Step, calls: Calls) -> bool:
    """Return whether the last call of a step applies its program, which nothing waits for."""
    if step.program is None or step.program.is_copy or step.binds or not calls:
        return False
    last = calls[-1]
    return isinstance(last, Launch) and last.kernel.family == "scalar"


def _front(low: Lowering, index: int, step: Step, following: Step) -> Front | None:
    """Return the program of a step as what makes the operand of the following one."""
    assert step.program is not None
    reads = step.extras
    if isinstance(step.op, MatMul):
        if not low.in_place(step):
            return None
        reads = (step.writes[0], *step.extras)
    elif step.node is not None:
        return None
    (x,), shape = following.reads, following.reads[0].layout.sizes
    seen_reads, seen_writes = ([_viewed(o, shape) for o in t] for t in (reads, step.writes))
    if x not in seen_writes or any(o is None for o in (*seen_reads, *seen_writes)):
        return None
    if {o.buffer for o in following.extras} & {o.buffer for o in step.writes}:
        return None
    kept = tuple(
        o if o is not None and _is_read_later(low, o, index) else None for o in seen_writes
    )
    given = tuple(o for o in seen_reads if o is not None)
    return Front(step.program, given, kept, seen_writes.index(x))


def _viewed(operand: Operand, shape: Shape) -> Operand | None:
    """Return an operand in another shape, if its elements need no copy for that."""
    layout = operand.layout.view(shape).always
    return None if layout is None else Operand(operand.buffer, layout)


def _is_read_later(low: Lowering, operand: Operand, index: int) -> bool:
    """Return whether somebody reads what a step writes, behind the step that follows it."""
    buffer = low.plan.buffers[operand.buffer]
    return buffer.home is not Home.ARENA or low.plan.deaths[buffer.number] > index + 1
