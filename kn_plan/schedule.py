"""How long buffers live, and which take over the memory of another one."""

from __future__ import annotations

from dataclasses import replace

from kn_plan.options import PlanOptions
from kn_plan.plan import Buffer, Home, Plan, Step

__all__ = ["schedule"]


def schedule(plan: Plan, options: PlanOptions) -> Plan:
    """Return the plan with lifetimes."""
    births, deaths = _lives(plan)
    buffers = list(plan.buffers)
    if options.in_place:
        for index, step in enumerate(plan.steps):
            _share(index, step, buffers, births, deaths)
    return replace(plan, buffers=tuple(buffers), births=tuple(births), deaths=tuple(deaths))


def _lives(plan: Plan) -> tuple[list[int], list[int]]:
    count = len(plan.steps)
    births, deaths = [-1] * len(plan.buffers), [-1] * len(plan.buffers)
    for index, step in enumerate(plan.steps):
        for operand in step.writes:
            births[operand.buffer] = index
            deaths[operand.buffer] = index
        for operand in step.inputs:
            deaths[operand.buffer] = index
    for operand in plan.outputs.values():
        deaths[operand.buffer] = count
    return births, deaths


def _share(
    index: int, step: Step, buffers: list[Buffer], births: list[int], deaths: list[int]
) -> None:
    """Let the result of a scalar step take over memory that it reads for the last time."""
    if step.node is not None:
        return  # a kernel reads an element again after others were written
    taken: set[int] = set()
    for target in step.writes:
        mine = buffers[target.buffer]
        if mine.home is not Home.ARENA:
            continue
        for source in step.extras:
            other = buffers[source.buffer]
            usable = (
                other.home is Home.ARENA
                and other.number not in taken
                and deaths[other.number] == index
                and source.layout == target.layout
                and mine.dtype is not None
                and other.dtype is not None
                and mine.dtype.numpy.itemsize == other.dtype.numpy.itemsize
                and mine.numel == other.numel
                and all(o.layout == source.layout for o in step.extras if o.buffer == source.buffer)
            )
            if usable:
                buffers[target.buffer] = replace(mine, over=other.number)
                taken.add(other.number)
                break
