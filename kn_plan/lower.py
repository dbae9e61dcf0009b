"""From groups to steps: every value gets a buffer, every read and write a layout in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from kn_graph.dim import Dim, Size, Symbol, size_prod
from kn_graph.graph import Graph
from kn_graph.liveness import live_nodes
from kn_graph.ops.source import Constant
from kn_graph.types import Shape, TensorType
from kn_graph.value import Node, Value
from kn_plan.access import HOST_KINDS, Access, access_of, apply_layout, inverse, is_layout, resolved
from kn_plan.format import choose_orders, stored
from kn_plan.group import Group
from kn_plan.layout import StridedLayout
from kn_plan.options import PlanOptions
from kn_plan.plan import Buffer, Home, Operand, Plan, Step
from kn_plan.program import ProgramBuilder
from kn_plan.repeat import repeats_of
from kn_plan.target import Order, Target

__all__ = ["lower"]

GIVEN = (Home.INPUT, Home.CONSTANT)

NOTHING = StridedLayout((), ())
"""Layout of what is no tensor."""


def lower(graph: Graph, groups: Sequence[Group], target: Target, options: PlanOptions) -> Plan:
    """Return the steps of groups, without lifetimes yet."""
    return _Lowering(graph, groups, target, options).run()


class _Lowering:
    """See `lower`."""

    def __init__(
        self, graph: Graph, groups: Sequence[Group], target: Target, options: PlanOptions
    ) -> None:
        self.graph, self.groups, self.options = graph, groups, options
        self.buffers: list[Buffer] = []
        self.steps: list[Step] = []
        self.operands: dict[Value, Operand] = {}
        self.constants: dict[int, np.ndarray[Any, Any]] = {}
        self.copies: dict[Access, Operand] = {}
        self.label = ""
        self.sources: dict[Node, list[Symbol]] = {}
        for symbol, node in graph.size_sources.items():
            self.sources.setdefault(node, []).append(symbol)
        computed = {v for g in groups for v in g.outputs}
        self.outputs = frozenset(
            access_of(v).value if is_layout(v.node) and v not in computed else v
            for v in graph.outputs.values()
        )
        fixed = self.outputs | frozenset(graph.inputs)
        self.orders = choose_orders(groups, fixed, target) if options.choose_formats else {}

    def run(self) -> Plan:
        """Lower everything."""
        inputs = [self._store(v, Home.INPUT).buffer for v in self.graph.inputs]
        for group in self.groups:
            self._lower(group)
        outputs = {name: self._output(v) for name, v in self.graph.outputs.items()}
        count = len(self.buffers)
        return Plan(
            self.graph, tuple(self.buffers), tuple(self.steps), tuple(inputs), outputs,
            (-1,) * count, (0,) * count, self.constants,
            repeats=repeats_of(live_nodes(self.graph, self.graph.outputs.values())),
        )  # fmt: skip

    # ---- memory -----------------------------------------------------------------------------

    def _store(self, v: Value, home: Home) -> Operand:
        """Give a value a buffer of its own."""
        if not isinstance(v.type, TensorType) or v.dtype.kind in HOST_KINDS:
            operand = self._buffer(v.name, None, 0, home if home in GIVEN else Home.OBJECT)
            layout = NOTHING
        else:
            order: Order = self.orders.get(v, tuple(range(v.rank)))
            layout = stored(v.shape, order)
            operand = self._buffer(v.name, v, size_prod(v.shape), home)
        self.operands[v] = Operand(operand, layout)
        return self.operands[v]

    def _home(self, v: Value) -> Home:
        found = set(self.sources.get(v.node, ()))
        shape = v.type.shape if isinstance(v.type, TensorType) else ()
        if any(isinstance(n, Dim) and n.symbols & found for n in shape):
            return Home.LATE
        return Home.OUTPUT if v in self.outputs else Home.ARENA

    def _buffer(self, name: str, like: Value | None, numel: Size, home: Home) -> int:
        number = len(self.buffers)
        dtype = None if like is None else like.dtype
        self.buffers.append(Buffer(number, name, dtype, numel, home))
        return number

    def _operand(self, v: Value) -> Operand:
        """Return where a value is stored; constants get a buffer when they are read first."""
        found = self.operands.get(v)
        if found is None:
            assert isinstance(v.node.op, Constant), v
            array = v.node.op.array
            order = _memory_order(array)
            if order is not None:
                self.orders[v], array = order, array.transpose(order)
            found = self._store(v, Home.CONSTANT)
            self.constants[found.buffer] = array
        return found

    # ---- steps ------------------------------------------------------------------------------

    def _lower(self, group: Group) -> None:
        self.label = group.label
        group = self._respread(group)
        reads = tuple(map(self._read, group.operands))
        extras = tuple(map(self._read, group.extras))
        writes: list[Operand] = []
        after: list[Step] = []
        for v in group.outputs:
            target = self._store(v, self._home(v))
            written = target.layout
            if written is not NOTHING and group.undo:
                found = resolved(written, Access(v, group.undo, group.shape))
                if found is None:
                    target, step = self._written_late(v, group, target)
                    after.append(step)
                written = target.layout if found is None else found
            writes.append(Operand(target.buffer, written))
        binds = tuple(self.sources.get(group.anchor, ())) if group.anchor else ()
        self.steps.append(
            Step(group.label, group.anchor, group.program, reads, extras, tuple(writes),
                 group.shape, binds)
        )  # fmt: skip
        self.steps += after

    def _output(self, v: Value) -> Operand:
        """Return where the caller finds an output: its own memory, or that of what it views."""
        if v in self.operands or not is_layout(v.node):
            return self._operand(v)
        access = access_of(v)
        source = self._operand(access.value)
        layout = resolved(source.layout, access)
        assert layout is not None, v
        return Operand(source.buffer, layout)

    def _respread(self, group: Group) -> Group:
        """Return a scalar program over other axes, if an operand needs no copy there.

        A scale for each block of a row, repeated and viewed as a row, is no strided layout; over
        blocks and their elements it is.
        """
        if group.anchor is not None or group.undo or not self.options.split_views:
            return group
        for access in group.extras:
            cut = self._first_copy(access)
            undo = None if cut is None else inverse(access.ops[cut[0] :], cut[1])
            if cut is None or undo is None:
                continue
            place, shape = cut
            inside = Access(access.value, access.ops[:place], shape, access.labels[:place])
            extras = tuple(inside if a is access else a.then(undo, shape) for a in group.extras)
            found = replace(group, extras=extras, shape=shape, undo=undo)
            if self._copies(found) < self._copies(group):
                return found
        return group

    def _first_copy(self, access: Access) -> tuple[int, Shape] | None:
        """Return which operation of an access needs a copy, and the shape in front of it."""
        layout = self._operand(access.value).layout
        for place, op in enumerate(access.ops):
            after = apply_layout(layout, op)
            if after is None:
                return place, layout.sizes
            layout = after
        return None

    def _copies(self, group: Group) -> int:
        """Return how many copies a group needs."""
        count = sum(self._first_copy(a) is not None for a in group.extras)
        for v in group.outputs:
            layout = stored(v.shape, self.orders.get(v, tuple(range(v.rank))))
            count += resolved(layout, Access(v, group.undo, group.shape)) is None
        return count

    def _temporary(self, v: Value, shape: Shape) -> Operand:
        number = self._buffer(f"{v.name}'", v, size_prod(shape), Home.ARENA)
        return Operand(number, StridedLayout.contiguous(shape))

    def _written_late(self, v: Value, group: Group, target: Operand) -> tuple[Operand, Step]:
        """Return where to compute what cannot be written in place, and the step that moves it."""
        direct = self._temporary(v, group.shape)
        forward = inverse(group.undo, v.shape)
        assert forward is not None
        layout = resolved(direct.layout, Access(v, forward, v.shape))
        assert layout is not None, group
        return direct, _copy(v, Operand(direct.buffer, layout), target, v.shape)

    def _read(self, access: Access) -> Operand:
        """Return where an access finds its elements, copied as far as no layout says it."""
        source = self._operand(access.value)
        if source.layout is NOTHING:
            return source
        shape = access.value.shape
        current = source
        for place, op in enumerate(access.ops):
            layout = apply_layout(current.layout, op)
            if layout is None:
                label = access.labels[place] if place < len(access.labels) else self.label
                read = Access(access.value, access.ops[:place], shape)
                current = self._copied(read, current, label)
                layout = apply_layout(current.layout, op)
                assert layout is not None, op
            current = Operand(current.buffer, layout)
            shape = layout.sizes
        return current

    def _copied(self, access: Access, operand: Operand, label: str) -> Operand:
        found = self.copies.get(access)
        if found is None:
            found = self._temporary(access.value, access.shape)
            self.copies[access] = found
            step = _copy(access.value, operand, found, access.shape)
            self.steps.append(replace(step, label=label))
        return found


def _copy(v: Value, source: Operand, target: Operand, shape: Shape) -> Step:
    builder = ProgramBuilder()
    program = builder.build([builder.input(v.dtype)])
    return Step(v.node.label, None, program, (), (source,), (target,), shape)


def _memory_order(array: np.ndarray[Any, Any]) -> Order | None:
    """Return the order of axes of a constant that was transposed without a copy; else None."""
    if array.ndim < 2 or array.flags.c_contiguous:
        return None
    order = tuple(sorted(range(array.ndim), key=lambda a: -array.strides[a]))
    return order if array.transpose(order).flags.c_contiguous else None
