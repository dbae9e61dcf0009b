"""A plan made ready for native kernels: over symbolic sizes, and bound to numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kn_cpu.calls import NativeCall, PackedConstant, Pointer, Refusal
from kn_cpu.lower import lower_step
from kn_cpu.lowering import Lowering
from kn_cpu.memory import as_bytes
from kn_cpu.native import STEP, NativeLibrary
from kn_graph.dim import Dim, Symbol
from kn_plan.arena import Allocation
from kn_plan.binding import Binder, NumberTable
from kn_plan.memory import Arena, arenas
from kn_plan.options import PlanOptions
from kn_plan.plan import Operand, Plan, Step

__all__ = ["BoundStage", "HostStep", "NativeRun", "Skeleton"]

Ints = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True)
class HostStep:
    """A step that the reference computes.

    Attributes:
        step: what it is.
        reason: why there is no kernel.
    """

    step: Step
    reason: str


@dataclass(frozen=True)
class NativeRun:
    """Calls of kernels one after another, made ready.

    Attributes:
        steps: how many steps of the plan they are.
        kernels: addresses.
        numbers: place of the first number of each call.
        extents: places of units, grain and scratch of each call.
        pointers: buffer of each pointer; -1 for none, -2 - i for the packed constant i.
        offsets: place of each pointer's offset in bytes among the numbers.
        starts: place of the first pointer of each call.
    """

    steps: int
    kernels: Ints
    numbers: Ints
    extents: Ints
    pointers: Ints
    offsets: Ints
    starts: Ints


Segment = NativeRun | HostStep


@dataclass(frozen=True)
class Stage:
    """What runs between two points at which sizes become known.

    Attributes:
        segments: native runs and host steps, in order.
        binder: computes the numbers.
        arena: the memory that is born here.
        symbols: what it depends on.
    """

    segments: tuple[Segment, ...]
    binder: Binder
    arena: Arena
    symbols: tuple[Symbol, ...]


@dataclass(frozen=True)
class BoundRun:
    """A native run for concrete sizes.

    Attributes:
        steps: the step list.
        pointers: all pointers without what changes from call to call.
        in_arena: those to which the address of the arena is added.
        elsewhere: those to which the address of a buffer of the caller is added.
        buffers: which one, for each of these.
    """

    steps: np.ndarray[Any, Any]
    pointers: Ints
    in_arena: Ints
    elsewhere: Ints
    buffers: Ints


@dataclass(frozen=True)
class BoundStage:
    """A stage for concrete sizes.

    Attributes:
        numbers: of all calls.
        runs: its native runs, in order.
        allocation: where buffers lie.
        places: offset in the arena of each buffer in it.
        members: those that the allocation is of, in its order.
    """

    numbers: Ints
    runs: tuple[BoundRun, ...]
    allocation: Allocation
    places: Mapping[int, int]
    members: tuple[int, ...]


class Skeleton:
    """A plan over symbolic sizes with its kernels; made once for each graph.

    Attributes:
        plan: what runs.
        library: the kernels.
        stages: see `Stage`.
        packed: constants in the order that kernels read.
        constants: the others, by buffer.
    """

    def __init__(self, plan: Plan, library: NativeLibrary, options: PlanOptions) -> None:
        self.plan, self.library = plan, library
        lowering = Lowering(library, plan)
        lowered = [lower_step(lowering, step) for step in plan.steps]
        self.packed = lowering.packed
        self.constants = {
            n: as_bytes(a) for n, a in plan.constants.items() if plan.buffers[n].dtype is not None
        }
        memory = arenas(plan, options)
        self.stages = tuple(
            self._stage([(plan.steps[i], lowered[i]) for i in stage], arena)
            for stage, arena in zip(plan.stages, memory, strict=True)
        )

    @property
    def host_steps(self) -> list[HostStep]:
        """The steps without a kernel."""
        return [s for stage in self.stages for s in stage.segments if isinstance(s, HostStep)]

    def _stage(
        self, lowered: Sequence[tuple[Step, list[NativeCall] | Refusal]], arena: Arena
    ) -> Stage:
        table = NumberTable()
        segments: list[Segment] = []
        pending: list[NativeCall] = []
        count = 0
        for step, calls in lowered:
            if isinstance(calls, Refusal):
                if pending:
                    segments.append(self._run(pending, table, count))
                pending, count = [], 0
                segments.append(HostStep(step, calls.reason))
            else:
                pending += calls
                count += 1
        if pending:
            segments.append(self._run(pending, table, count))
        binder = table.binder()
        sizes = [self.plan.buffers[m].nbytes for m in arena.members]
        symbols = {s for n in sizes if isinstance(n, Dim) for s in n.symbols}
        ordered = tuple(sorted(symbols | set(binder.symbols)))
        return Stage(tuple(segments), binder, arena, ordered)

    def _run(self, calls: Sequence[NativeCall], table: NumberTable, count: int) -> NativeRun:
        columns: list[list[int]] = [[] for _ in range(6)]
        kernels, numbers, extents, pointers, offsets, starts = columns
        for c in calls:
            kernels.append(self.library.kernel(c.family, c.call.kernel))
            numbers.append(table.add_all(c.call.numbers).start)
            sizes = (c.call.units, c.call.grain, c.call.scratch)
            extents.append(table.add_all(sizes).start)
            starts.append(len(pointers))
            for p in c.pointers:
                offset = p.layout.offset * self._itemsize(p) if isinstance(p, Operand) else 0
                offsets.append(table.add(offset))
                pointers.append(_source(p))

        return NativeRun(count, *(np.array(c, np.int64) for c in columns))

    def _itemsize(self, operand: Operand) -> int:
        dtype = self.plan.buffers[operand.buffer].dtype
        assert dtype is not None
        return dtype.numpy.itemsize

    def bind(self, stage: Stage, env: Mapping[Symbol, int]) -> BoundStage:
        """Return a stage for numbers of its symbols."""
        numbers = stage.binder(env)
        allocation = stage.arena.allocate(self.plan, env)
        starts = zip(stage.arena.members, allocation.offsets.tolist(), strict=True)
        places = dict(starts)
        for b in self.plan.buffers:
            if b.over is not None and self.plan.root(b.number) in places:
                places[b.number] = places[self.plan.root(b.number)]
        runs = tuple(
            self._bound_run(s, numbers, places) for s in stage.segments if isinstance(s, NativeRun)
        )
        return BoundStage(numbers, runs, allocation, places, stage.arena.members)

    def _bound_run(self, run: NativeRun, numbers: Ints, places: Mapping[int, int]) -> BoundRun:
        steps = np.empty(len(run.kernels), STEP)
        steps["run"], steps["numbers"], steps["pointers"] = run.kernels, run.numbers, run.starts
        for i, name in enumerate(("units", "grain", "scratch")):
            steps[name] = numbers[run.extents + i]
        pointers, in_arena, elsewhere, buffers = numbers[run.offsets], [], [], []
        for i, source in enumerate(run.pointers.tolist()):
            if source == -1:
                pointers[i] = 0
            elif source < -1:
                pointers[i] += self.packed[-2 - source].ctypes.data
            elif source in self.constants:
                pointers[i] += self.constants[source].ctypes.data
            elif source in places:
                pointers[i] += places[source]
                in_arena.append(i)
            else:
                elsewhere.append(i)
                buffers.append(source)
        columns = (np.array(c, np.int64) for c in (in_arena, elsewhere, buffers))
        return BoundRun(steps, pointers, *columns)


def _source(pointer: Pointer) -> int:
    if isinstance(pointer, PackedConstant):
        return -2 - pointer.number
    return pointer.buffer if isinstance(pointer, Operand) else -1
