"""Tiny scalar programs that follow from one another become one step with several results.

Scales and zero points of dynamic quantization are computed from two numbers, and read in several
places: each is stored, and a step of its own. A step costs about a microsecond to run and much more
to plan, whatever it computes, so programs of a single element are carried out together.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from kn_graph.graph import Graph
from kn_graph.value import Value
from kn_plan.access import Access, access_of
from kn_plan.group import Group
from kn_plan.program import ProgramBuilder

__all__ = ["merge_single"]

MAX_OUTPUTS = 12
"""Of a step."""


def merge_single(graph: Graph, groups: Sequence[Group], max_instructions: int) -> list[Group]:
    """Return the groups with programs of one element merged, in an order in which they can run.

    Args:
        graph: what the groups compute.
        groups: in an order in which they can run.
        max_instructions: of a program.
    """
    given = {access_of(v).value for v in graph.outputs.values()} | set(graph.outputs.values())
    merger = _Merger(max_instructions)
    for group in groups:
        merger.add(group)
    return merger.finished(given)


@dataclass(eq=False)
class _Place:
    """A group, or several that are merged.

    Attributes:
        groups: what runs here.
        number: the place.
        is_fixed: whether it depends on constants alone: it is carried out when the plan is made.
        is_read: whether a later group reads a result.
    """

    groups: list[Group]
    number: int
    is_fixed: bool = False
    is_read: bool = False

    @property
    def size(self) -> int:
        """How many instructions there are."""
        return sum(len(g.program.instructions) for g in self.groups if g.program is not None)

    @property
    def outputs(self) -> int:
        """How many results there are."""
        return sum(len(g.outputs) for g in self.groups)


@dataclass
class _Merger:
    """Takes groups in order.

    A group joins the last place that makes one of its operands. A place that nobody else has read
    so far moves to a later one that reads it.
    """

    max_instructions: int
    places: list[_Place] = field(default_factory=list)
    makers: dict[Value, _Place] = field(default_factory=dict)

    def add(self, group: Group) -> None:
        """Merge a group, or append it."""
        makers = {m.number: m for a in group.reads if (m := self.makers.get(a.value)) is not None}
        if not _is_single(group) or self._is_fixed(group):
            for maker in makers.values():
                maker.is_read = True
            self._append(group)
            return
        direct = {a.value for a in group.reads} - {a.value for a in group.reads if a.ops}
        last = makers.pop(max(makers)) if makers else None
        if last is None or not self._joins(last, group, direct):
            if last is not None:
                makers[last.number] = last
            last = self._append(group)
        else:
            last.groups.append(group)
            self.makers.update((v, last) for v in group.outputs)
        for maker in makers.values():
            if not maker.is_read and self._joins(maker, group, direct, last):
                last.groups = [*maker.groups, *last.groups]
                self.makers.update((v, last) for g in maker.groups for v in g.outputs)
                maker.groups = []
            else:
                maker.is_read = True

    def _append(self, group: Group) -> _Place:
        place = _Place([group], len(self.places), self._is_fixed(group))
        self.places.append(place)
        self.makers.update((v, place) for v in group.outputs)
        return place

    def _is_fixed(self, group: Group) -> bool:
        makers = ((a.value, self.makers.get(a.value)) for a in group.reads)
        return all(v.constant is not None if m is None else m.is_fixed for v, m in makers)

    def _joins(
        self, place: _Place, group: Group, direct: set[Value], other: _Place | None = None
    ) -> bool:
        """Return whether a group runs at a place, from which it reads nothing but registers."""
        if place.is_fixed or not all(_is_single(g) for g in place.groups):
            return False
        reads = {a.value for a in group.reads if self.makers.get(a.value) is place}
        more = [place, _Place([group], 0)] if other is None else [place, other]
        fits = sum(p.size for p in more) <= self.max_instructions
        return fits and reads <= direct and sum(p.outputs for p in more) <= MAX_OUTPUTS

    def finished(self, given: set[Value]) -> list[Group]:
        """Return the groups."""
        outside = set(given)
        for place in self.places:
            for group in place.groups:
                reads = (a.value for a in group.reads)
                outside.update(v for v in reads if self.makers.get(v) is not place)
        return [_merged(p.groups, outside) for p in self.places if p.groups]


def _is_single(group: Group) -> bool:
    """Return whether a group is a program of a single element."""
    return group.anchor is None and group.program is not None and group.shape == ()


def _merged(groups: Sequence[Group], outside: Iterable[Value]) -> Group:
    """Return groups as one, of which only results remain that are read outside."""
    if len(groups) == 1:
        return groups[0]
    builder, registers = ProgramBuilder(), dict[Value, int]()
    inputs: dict[Access, int] = {}
    for group in groups:
        assert group.program is not None
        places = [_input(a, builder, registers, inputs) for a in group.extras]
        for step in group.program.instructions:
            if step.op is None:
                places.append(builder.number(step.number, step.dtype))
            else:
                operands = [places[r] for r in step.operands]
                places.append(builder.apply(step.op, operands, step.dtype))
        registers.update(
            (v, places[r]) for v, r in zip(group.outputs, group.program.outputs, strict=True)
        )
    wanted = set(outside)
    outputs = tuple(v for v in registers if v in wanted)
    program = builder.build([registers[v] for v in outputs])
    return Group(None, (), program, tuple(inputs), outputs, ())


def _input(
    access: Access, builder: ProgramBuilder, registers: dict[Value, int], inputs: dict[Access, int]
) -> int:
    """Return the register of what a group reads."""
    if access.value in registers and not access.ops:
        return registers[access.value]
    if access not in inputs:
        inputs[access] = builder.input(access.value.dtype)
    return inputs[access]
