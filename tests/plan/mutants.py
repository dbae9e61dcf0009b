"""Plans with one thing wrong in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from kn_graph.ops.elementwise import Binary
from kn_plan.layout import StridedLayout
from kn_plan.options import PlanOptions
from kn_plan.plan import Home, Operand, Plan, Step
from kn_plan.schedule import schedule

__all__ = ["MUTATIONS"]


def _relived(plan: Plan) -> Plan:
    """Return the plan with the lifetimes that its steps show, and no memory taken over."""
    buffers = tuple(replace(b, over=None) for b in plan.buffers)
    return schedule(replace(plan, buffers=buffers), PlanOptions(in_place=False))


def _with_step(plan: Plan, index: int, step: Step) -> Plan:
    return plan.with_steps((*plan.steps[:index], step, *plan.steps[index + 1 :]))


def _with_buffer(plan: Plan, number: int, **changes: object) -> Plan:
    changed = replace(plan.buffers[number], **changes)  # type: ignore[arg-type]
    return replace(plan, buffers=(*plan.buffers[:number], changed, *plan.buffers[number + 1 :]))


def _operands(plan: Plan) -> Iterator[tuple[Operand, Callable[[Operand], Plan]]]:
    """Return each operand of each step, and what puts another one in its place."""
    for index, step in enumerate(plan.steps):
        for name in ("reads", "extras", "writes"):
            row: tuple[Operand, ...] = getattr(step, name)
            for place, operand in enumerate(row):

                def changed(
                    new: Operand,
                    index: int = index,
                    step: Step = step,
                    name: str = name,
                    place: int = place,
                ) -> Plan:
                    row: tuple[Operand, ...] = getattr(step, name)
                    row = (*row[:place], new, *row[place + 1 :])
                    return _with_step(plan, index, replace(step, **{name: row}))  # type: ignore[arg-type]

                if plan.buffers[operand.buffer].dtype is not None:
                    yield operand, changed


def swapped_steps(plan: Plan) -> Iterator[Plan]:
    """Two steps in the other order."""
    for i in range(1, len(plan.steps)):
        steps = (*plan.steps[: i - 1], plan.steps[i], plan.steps[i - 1], *plan.steps[i + 1 :])
        yield plan.with_steps(steps)
        yield _relived(plan.with_steps(steps))


def dropped_steps(plan: Plan) -> Iterator[Plan]:
    """A step less."""
    for i in range(len(plan.steps)):
        yield _relived(plan.with_steps((*plan.steps[:i], *plan.steps[i + 1 :])))


def shifted_offsets(plan: Plan) -> Iterator[Plan]:
    """An operand one element before or behind where it lies."""
    for operand, changed in _operands(plan):
        for shift in (-1, 1):
            layout = replace(operand.layout, offset=operand.layout.offset + shift)
            yield changed(Operand(operand.buffer, layout))


def turned_strides(plan: Plan) -> Iterator[Plan]:
    """An operand with the strides of two axes exchanged, or an axis run backwards."""
    for operand, changed in _operands(plan):
        layout = operand.layout
        for axis in range(1, layout.rank):
            strides = list(layout.strides)
            strides[axis - 1], strides[axis] = strides[axis], strides[axis - 1]
            yield changed(Operand(operand.buffer, replace(layout, strides=tuple(strides))))
        if layout.rank:
            yield changed(Operand(operand.buffer, layout.flip(layout.rank - 1)))


def other_buffers(plan: Plan) -> Iterator[Plan]:
    """An operand in another buffer of its type."""
    for operand, changed in _operands(plan):
        mine = plan.buffers[operand.buffer]
        for b in plan.buffers:
            if b.number != mine.number and (b.dtype, b.numel) == (mine.dtype, mine.numel):
                yield _relived(changed(Operand(b.number, operand.layout)))


def shrunk_buffers(plan: Plan) -> Iterator[Plan]:
    """A buffer with an element less."""
    for b in plan.buffers:
        if b.dtype is not None and b.home not in (Home.CONSTANT, Home.INPUT):
            yield _with_buffer(plan, b.number, numel=b.numel - 1)


def aliased_buffers(plan: Plan) -> Iterator[Plan]:
    """A buffer in the memory of another one that is as large."""
    arena = [b for b in plan.buffers if b.home is Home.ARENA]
    for b in arena:
        for other in arena:
            if other is not b and other.numel == b.numel:
                yield _with_buffer(plan, b.number, over=other.number)


def taken_operands(plan: Plan) -> Iterator[Plan]:
    """A result in the memory of what the step reads for the last time, whatever the step does."""
    for index, step in enumerate(plan.steps):
        for target in step.writes:
            for source in step.inputs:
                homes = {plan.buffers[o.buffer].home for o in (source, target)}
                if homes == {Home.ARENA} and plan.deaths[source.buffer] == index:
                    yield _with_buffer(plan, target.buffer, over=source.buffer)


def foreign_writes(plan: Plan) -> Iterator[Plan]:
    """A result written over an input or a constant."""
    given = [*plan.inputs, *plan.constants]
    for index, step in enumerate(plan.steps):
        for number in given:
            layout = StridedLayout.contiguous(step.writes[0].layout.sizes)
            writes = (Operand(number, layout), *step.writes[1:])
            yield _relived(_with_step(plan, index, replace(step, writes=writes)))


def wrong_lives(plan: Plan) -> Iterator[Plan]:
    """A buffer that is born later or dies sooner."""
    for n, (birth, death) in enumerate(zip(plan.births, plan.deaths, strict=True)):
        if death > max(birth, 0):
            deaths = (*plan.deaths[:n], death - 1, *plan.deaths[n + 1 :])
            yield replace(plan, deaths=deaths)
        if birth >= 0:
            births = (*plan.births[:n], birth + 1, *plan.births[n + 1 :])
            yield replace(plan, births=births)


def other_programs(plan: Plan) -> Iterator[Plan]:
    """A program with operands exchanged, an instruction changed or another result."""
    for index, step in enumerate(plan.steps):
        program = step.program
        if program is None:
            continue
        rows = program.instructions
        for i, row in enumerate(rows):
            changes = []
            if len(row.operands) > 1 and row.operands[0] != row.operands[1]:
                changes.append(replace(row, operands=(*row.operands[1::-1], *row.operands[2:])))
            if isinstance(row.op, Binary):
                changes.append(replace(row, op=Binary("sub" if row.op.fn == "add" else "add")))
            if row.op is None and not isinstance(row.number, (bool, complex)):
                changes.append(replace(row, number=(row.number or 0) + 1))
            for new in changes:
                changed = replace(program, instructions=(*rows[:i], new, *rows[i + 1 :]))
                yield _with_step(plan, index, replace(step, program=changed))
        if rows and rows[-1].dtype is program.inputs[0]:
            outputs = (0, *program.outputs[1:])
            yield _with_step(plan, index, replace(step, program=replace(program, outputs=outputs)))


def other_outputs(plan: Plan) -> Iterator[Plan]:
    """An output from elsewhere, or none."""
    for name, operand in plan.outputs.items():
        yield replace(plan, outputs={k: o for k, o in plan.outputs.items() if k != name})
        for b in plan.buffers:
            mine = plan.buffers[operand.buffer]
            if b.number != mine.number and (b.dtype, b.numel) == (mine.dtype, mine.numel):
                other = Operand(b.number, operand.layout)
                yield _relived(replace(plan, outputs={**plan.outputs, name: other}))


def late_sizes(plan: Plan) -> Iterator[Plan]:
    """A step that does not say which sizes it finds."""
    for index, step in enumerate(plan.steps):
        if step.binds:
            yield _relived(_with_step(plan, index, replace(step, binds=())))


MUTATIONS: tuple[Callable[[Plan], Iterator[Plan]], ...] = (
    swapped_steps,
    dropped_steps,
    shifted_offsets,
    turned_strides,
    other_buffers,
    shrunk_buffers,
    aliased_buffers,
    taken_operands,
    foreign_writes,
    wrong_lives,
    other_programs,
    other_outputs,
    late_sizes,
)
