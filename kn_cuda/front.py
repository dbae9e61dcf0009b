"""Scalar programs that move into the kernel which reads their result next.

A product of matrices is often followed by a bias and a residual, and these by a norm. The kernel of
the norm can compute them itself: it reads every element once, and stores what others read as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kn_cuda.calls import Launch
from kn_cuda.elements import Front
from kn_cuda.lowering import Calls, Lowering
from kn_cuda.steps.layout import concat
from kn_cuda.steps.matmul import product_alone
from kn_cuda.steps.norm import norm, softmax
from kn_cuda.steps.reduce import reduce
from kn_graph.op import Op
from kn_graph.ops.layout import Concat
from kn_graph.ops.matmul import MatMul
from kn_graph.ops.norm import Norm, Softmax
from kn_graph.ops.reduce import Reduce
from kn_graph.types import Shape
from kn_plan.calls import Refusal, UnsupportedError
from kn_plan.plan import Home, Operand, Plan, Step

__all__ = ["move_to_front"]

Lowered = Calls | Refusal

WRITERS: Mapping[type[Op], Callable[[Lowering, Step, Any, Front], Calls]] = {
    Concat: concat,
    Norm: norm,
    Reduce: reduce,
    Softmax: softmax,
}
"""Operations in front of which a program runs."""

NEAR = 8
"""How many steps behind its own a program may run: what it reads lives as long."""


def move_to_front(low: Lowering, lowered: Sequence[Lowered]) -> tuple[list[Lowered], list[int]]:
    """Return the calls of steps with programs moved into the next step where that takes them.

    Args:
        low: whose steps they are.
        lowered: the calls of each step.

    Returns:
        The calls of each step, and the step at which each buffer is read last.
    """
    plan, found, deaths = low.plan, list(lowered), list(low.plan.deaths)
    taken = set[int]()
    for index, step in enumerate(plan.steps):
        calls = found[index]
        if isinstance(calls, Refusal) or not _ends_in_program(step, calls):
            continue
        reader = _reader(plan, index)
        following = plan.steps[reader]
        writer = None if following.op is None else WRITERS.get(type(following.op))
        if writer is None or reader in taken or isinstance(found[reader], Refusal):
            continue
        front = _front(low, step, reader)
        if front is None:
            continue
        try:
            found[reader] = writer(low, following, following.op, front)
        except UnsupportedError:
            continue
        taken.add(reader)
        found[index] = product_alone(low, step) if step.node is not None else []
        for operand in step.inputs:
            deaths[operand.buffer] = max(deaths[operand.buffer], reader)
    return found, deaths


def _reader(plan: Plan, index: int) -> int:
    """Return the step that reads first what a step writes, or where the memory changes it reads.

    Steps far behind, or in another stage, are not looked at: then it is the step itself.
    """
    step = plan.steps[index]
    made = {o.buffer for o in step.writes}
    needed = {plan.root(o.buffer) for o in step.inputs}
    for later in range(index + 1, min(index + 1 + NEAR, len(plan.steps))):
        other = plan.steps[later]
        if any(o.buffer in made for o in other.inputs):
            return later
        if other.binds or any(plan.root(o.buffer) in needed for o in other.writes):
            break
    return index


def _ends_in_program(step: Step, calls: Calls) -> bool:
    """Return whether the last call of a step applies its program, which nothing waits for."""
    if step.program is None or step.program.is_copy or step.binds or not calls:
        return False
    last = calls[-1]
    fused = isinstance(step.op, MatMul)
    return fused or (isinstance(last, Launch) and last.kernel.family == "scalar")


def _front(low: Lowering, step: Step, reader: int) -> Front | None:
    """Return the program of a step as what makes the operand of another one."""
    assert step.program is not None
    following = low.plan.steps[reader]
    reads = step.extras
    if isinstance(step.op, MatMul):
        if not low.in_place(step):
            return None
        reads = (step.writes[0], *step.extras)
    elif step.node is not None:
        return None
    written = {o.buffer for o in step.writes}
    made = {o for o in following.reads if o.buffer in written}
    if len(made) != 1:
        return None
    (x,) = made
    shape = x.layout.sizes
    seen_reads, seen_writes = ([_viewed(o, shape) for o in t] for t in (reads, step.writes))
    if x not in seen_writes or any(o is None for o in (*seen_reads, *seen_writes)):
        return None
    if {o.buffer for o in following.extras} & written:
        return None
    kept = tuple(
        o if o is not None and _is_read_later(low, o, reader) else None for o in seen_writes
    )
    given = tuple(o for o in seen_reads if o is not None)
    return Front(step.program, given, kept, seen_writes.index(x), x)


def _viewed(operand: Operand, shape: Shape) -> Operand | None:
    """Return an operand in another shape, if its elements need no copy for that."""
    layout = operand.layout.view(shape).always
    return None if layout is None else Operand(operand.buffer, layout)


def _is_read_later(low: Lowering, operand: Operand, reader: int) -> bool:
    """Return whether somebody reads an operand behind a step."""
    buffer = low.plan.buffers[operand.buffer]
    return buffer.home is not Home.ARENA or low.plan.deaths[buffer.number] > reader
