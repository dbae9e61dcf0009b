"""A plan made ready for native kernels, over symbolic sizes; `kn_cpu.bound` has it for numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kn_cpu.calls import NativeCall
from kn_cpu.lower import lower_step
from kn_cpu.lowering import Lowering
from kn_cpu.memory import as_bytes
from kn_cpu.native import NativeLibrary
from kn_graph.dim import Symbol, symbols_of
from kn_plan.binding import Binder, NumberTable
from kn_plan.calls import Constant, ControlStep, Draw, HostStep, Refusal, Status, Table
from kn_plan.memory import Arena, arenas
from kn_plan.options import PlanOptions
from kn_plan.plan import Home, Operand, Plan, Step
from kn_plan.stage_memory import MemoryWriter, StageMemory

__all__ = ["NativeRun", "Segment", "Skeleton", "Stage"]

Ints = np.ndarray[Any, np.dtype[np.int64]]

NO_STAGE = -1


@dataclass(frozen=True)
class NativeRun:
    """Calls of kernels one after another, made ready.

    Pointers are listed call after call; `arena` and `elsewhere` are places in this list.

    Attributes:
        steps: the steps of the plan that they are.
        calls: what is called.
        owners: the place in `steps` of each call.
        kernels: addresses.
        numbers: place of the first number of each call.
        extents: places of units, grain and scratch of each call, a row each.
        starts: place of the first pointer of each call.
        offsets: place of each pointer's offset in bytes among the numbers.
        fixed: addresses of constants; 0 for other pointers.
        arena: pointers into the memory of this stage.
        arena_buffers: where they point to; behind the buffers come the statuses.
        elsewhere: pointers into memory of the caller and of earlier stages.
        elsewhere_buffers: where these point to.
        tables: pointers to tables.
    """

    steps: tuple[Step, ...]
    calls: tuple[NativeCall, ...]
    owners: tuple[int, ...]
    kernels: Ints
    numbers: Ints
    extents: Ints
    starts: Ints
    offsets: Ints
    fixed: Ints
    arena: Ints
    arena_buffers: Ints
    elsewhere: Ints
    elsewhere_buffers: tuple[int, ...]
    tables: tuple[tuple[int, Table], ...]


Segment = NativeRun | HostStep | ControlStep


@dataclass(frozen=True)
class Stage:
    """What runs between two points at which sizes become known.

    Attributes:
        segments: native runs, host and control steps, in order.
        binder: computes the numbers.
        memory: what lies in its block.
        outputs: buffers of the caller that are written here and as large as is known before.
        output_bytes: places among the numbers of their bytes.
        result_sizes: places among the numbers of the sizes of each result that is a tensor; of
            the last stage only.
        symbols: what it depends on.
    """

    segments: tuple[Segment, ...]
    binder: Binder
    memory: StageMemory
    outputs: tuple[int, ...]
    output_bytes: Ints
    result_sizes: tuple[range, ...]
    symbols: tuple[Symbol, ...]


class Skeleton:
    """A plan over symbolic sizes with its kernels; made once for each graph.

    Attributes:
        plan: what runs.
        library: the kernels.
        stages: see `Stage`.
        packed: constants in the order that kernels read.
        constants: the others, by buffer.
        objects: constants that are no tensors of numbers.
        fresh: buffers that become an array of the caller, and that nothing else shows.
        roots: the buffer whose memory each one has.
        homes: the stage in whose memory each one lies; -1 for none.
    """

    def __init__(
        self,
        plan: Plan,
        library: NativeLibrary,
        options: PlanOptions,
        *,
        strict: bool = False,
        tune: int = 0,
    ) -> None:
        self.plan, self.library = plan, library
        self.lowering = Lowering(plan, library, strict, tune)
        lowered = [lower_step(self.lowering, step) for step in plan.steps]
        self.packed = self.lowering.packed
        self.constants = {n: as_bytes(plan.constants[n]) for n in self._unpacked(lowered)}
        objects = [n for n in plan.constants if plan.buffers[n].dtype is None]
        self.objects = {n: plan.constants[n] for n in objects}
        uses = Counter(o.buffer for o in plan.outputs.values())
        self.fresh = {b for b in uses if uses[b] == 1 and plan.buffers[b].home is Home.OUTPUT}
        buffers = self.lowering.buffers
        self.roots = self.lowering.roots()
        memory = [MemoryWriter(plan, a, buffers, NumberTable()) for a in arenas(plan, options)]
        self.homes = self._homes([m.arena for m in memory])
        self.stages = tuple(
            _StageWriter(self, number, writer).write([(plan.steps[i], lowered[i]) for i in steps])
            for number, (steps, writer) in enumerate(zip(plan.stages, memory, strict=True))
        )

    def _unpacked(self, lowered: Sequence[list[NativeCall] | Refusal]) -> list[int]:
        """Return the constants that somebody reads as they are."""
        read = {o.buffer for o in self.plan.outputs.values()}
        for step, calls in zip(self.plan.steps, lowered, strict=True):
            if isinstance(calls, Refusal):
                read.update(o.buffer for o in step.inputs)
            else:
                read.update(p.buffer for c in calls for p in c.pointers if isinstance(p, Operand))
        return [n for n in self.plan.constants if n in read and self.plan.buffers[n].dtype]

    def _homes(self, memory: Sequence[Arena]) -> list[int]:
        homes = [NO_STAGE] * len(self.roots)
        for number, arena in enumerate(memory):
            for m in arena.members:
                homes[m] = number
        return [homes[r] for r in self.roots]

    @property
    def host_steps(self) -> list[HostStep]:
        """The steps without a kernel."""
        return [s for stage in self.stages for s in stage.segments if isinstance(s, HostStep)]


@dataclass
class _StageWriter:
    """Collects the calls of one stage."""

    skeleton: Skeleton
    number: int
    memory: MemoryWriter
    segments: list[Segment] = field(default_factory=list)

    @property
    def table(self) -> NumberTable:
        """The numbers of the stage."""
        return self.memory.table

    def write(self, lowered: Sequence[tuple[Step, list[NativeCall] | Refusal]]) -> Stage:
        """Return the stage."""
        pending: list[tuple[Step, list[NativeCall]]] = []
        for step, calls in lowered:
            if not isinstance(calls, Refusal):
                pending.append((step, calls))
                continue
            if pending:
                self.segments.append(self._run(pending))
            pending = []
            self.segments.append(calls.segment(step))
        if pending:
            self.segments.append(self._run(pending))
        return self._stage()

    def _stage(self) -> Stage:
        plan = self.skeleton.plan
        last = self.number == len(plan.stages) - 1
        results = [self.table.add_all(o.layout.sizes) for o in plan.outputs.values() if last]
        outputs = self._outputs()
        output_bytes = [self.table.add(plan.buffers[b].nbytes) for b in outputs]
        binder, memory = self.table.binder(), self.memory.memory()
        return Stage(
            tuple(self.segments),
            binder,
            memory,
            tuple(outputs),
            np.array(output_bytes, np.int64),
            tuple(results),
            tuple(sorted({*memory.symbols, *binder.symbols})),
        )

    def _outputs(self) -> list[int]:
        """Return the buffers of the caller that are born here, and need no symbol more."""
        plan = self.skeleton.plan
        steps, known = plan.stages[self.number], self.table.symbols
        return [
            b.number
            for b in plan.buffers
            if b.home is Home.OUTPUT
            and plan.births[b.number] in steps
            and symbols_of(b.nbytes) <= known
        ]

    def _run(self, pending: Sequence[tuple[Step, list[NativeCall]]]) -> NativeRun:
        writer = _RunWriter(self)
        for place, (step, calls) in enumerate(pending):
            self.memory.add_temporaries(p for c in calls for p in c.pointers)
            for call in calls:
                writer.add(call, place, step)
        return writer.run([step for step, _ in pending])


class _RunWriter:
    """Collects the calls of one native run."""

    def __init__(self, stage: _StageWriter) -> None:
        self.stage, self.skeleton = stage, stage.skeleton
        self.calls: list[NativeCall] = []
        self.owners: list[int] = []
        self.kernels: list[int] = []
        self.numbers: list[int] = []
        self.extents: list[int] = []
        self.starts: list[int] = []
        self.offsets: list[int] = []
        self.fixed: list[int] = []
        self.arena: dict[int, int] = {}
        self.elsewhere: dict[int, int] = {}
        self.tables: list[tuple[int, Table]] = []

    def add(self, native: NativeCall, owner: int, step: Step) -> None:
        """Add a call."""
        call, table = native.call, self.stage.table
        self.calls.append(native)
        self.owners.append(owner)
        self.kernels.append(self.skeleton.library.kernel(native.family, call.kernel))
        self.numbers.append(table.add_all(call.numbers).start)
        sizes = (call.units * native.guard, call.grain, call.scratch * native.guard)
        self.extents.append(table.add_all(sizes).start)
        self.starts.append(len(self.offsets))
        for pointer in native.pointers:
            place, offset, address = len(self.offsets), 0, 0
            if isinstance(pointer, Operand):
                offset = pointer.layout.offset * self.skeleton.lowering.itemsize(pointer)
                address = self._operand(place, pointer.buffer)
            elif isinstance(pointer, Constant):
                address = self.skeleton.packed[pointer.number].ctypes.data
            elif isinstance(pointer, Table):
                self.tables.append((place, pointer))
            elif isinstance(pointer, Status):
                self.arena[place] = self.stage.memory.add_status(pointer, step)
            elif isinstance(pointer, Draw):
                self.arena[place] = self.stage.memory.add_draw(pointer)
            self.offsets.append(table.add(offset))
            self.fixed.append(address)

    def _operand(self, place: int, buffer: int) -> int:
        """Note where an operand lies, and return its address if that is known for good."""
        constant = self.skeleton.constants.get(buffer)
        if constant is not None:
            return int(constant.ctypes.data)
        here = self.skeleton.homes[buffer] == self.stage.number
        if here or buffer >= len(self.skeleton.plan.buffers):
            self.arena[place] = self.skeleton.roots[buffer]
        else:
            self.elsewhere[place] = buffer
        return 0

    def run(self, steps: Sequence[Step]) -> NativeRun:
        """Return everything."""

        def ints(numbers: Sequence[int]) -> Ints:
            return np.array(numbers, np.int64)

        extents = ints(self.extents) + np.arange(3)[:, None]
        return NativeRun(
            tuple(steps), tuple(self.calls), tuple(self.owners), ints(self.kernels),
            ints(self.numbers), extents, ints(self.starts), ints(self.offsets), ints(self.fixed),
            ints(list(self.arena)), ints(list(self.arena.values())),
            ints(list(self.elsewhere)), tuple(self.elsewhere.values()), tuple(self.tables),
        )  # fmt: skip
