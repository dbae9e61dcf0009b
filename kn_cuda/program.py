"""A plan made ready for a device, over symbolic sizes; `kn_cuda.bound` has it for numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from kn_cuda.calls import Call, Given, Launch
from kn_cuda.front import move_to_front
from kn_cuda.lower import lower_step
from kn_cuda.lowering import Calls, Lowering
from kn_cuda.options import CudaOptions
from kn_cuda.source import KernelSource
from kn_graph.dim import Size, Symbol, symbols_of
from kn_graph.errors import UnsupportedOnDeviceError
from kn_plan.binding import Binder, NumberTable
from kn_plan.calls import Constant, ControlStep, Draw, HostStep, Refusal, Status, Table
from kn_plan.memory import arenas
from kn_plan.options import PlanOptions
from kn_plan.plan import Operand, Plan, Step
from kn_plan.stage_memory import MemoryWriter, StageMemory

__all__ = ["DeviceStep", "PlacedCall", "Skeleton", "Stage"]

Ints = np.ndarray[Any, np.dtype[np.int64]]

NOWHERE = 0
"""The place of a pointer to nothing in the list of addresses."""


@dataclass(frozen=True)
class PlacedCall:
    """A call, and where its numbers are among those of its stage.

    Attributes:
        call: what happens.
        sizes: of a launch the grid, the shared memory and the guard, of a library the work and the
            guard.
        numbers: those of the call.
        limits: bounds of what it counts to, of a launch.
        places: where each pointer is in the list of addresses.
        offsets: in bytes, of each pointer behind its address.
        times: how often it happens where that is in rounds, else empty.
    """

    call: Call
    sizes: range
    numbers: range
    limits: range
    places: tuple[int, ...]
    offsets: range
    times: range


@dataclass(frozen=True)
class DeviceStep:
    """A step that the device carries out.

    Attributes:
        step: what it is.
        calls: in order.
    """

    step: Step
    calls: tuple[PlacedCall, ...]


Segment = DeviceStep | HostStep | ControlStep


@dataclass(frozen=True)
class Stage:
    """What runs between two points at which sizes become known.

    Attributes:
        segments: in order.
        binder: computes the numbers.
        memory: what lies in its block.
        in_block: places in the list of addresses that lie there.
        held: which buffer, status or draw each of them is, as `StagePlaces.places` counts.
        tables: what is computed at a binding, with their places in the list of addresses.
        symbols: what it depends on.
    """

    segments: tuple[Segment, ...]
    binder: Binder
    memory: StageMemory
    in_block: Ints
    held: Ints
    tables: tuple[tuple[int, Table], ...]
    symbols: tuple[Symbol, ...]


class Skeleton:
    """A plan over symbolic sizes with its calls; made once for each graph.

    All that pointers begin at is one list of addresses: first nothing, then the buffers,
    temporaries included, the constants kept, and the tables, statuses and draws of each stage.

    Attributes:
        plan: what runs.
        lowering: what found the calls.
        stages: see `Stage`.
        kernels: all kernels, for indices of 32 bits.
        addresses: how long the list of addresses is.
        roots: the buffer whose memory each one has.
        unpacked: constants of the plan that somebody reads as they are.
    """

    def __init__(
        self,
        plan: Plan,
        options: CudaOptions,
        plan_options: PlanOptions,
        arch: str = "sm_90",
    ) -> None:
        self.options = options
        self.lowering = Lowering(plan, options, arch)
        lowered = [lower_step(self.lowering, step) for step in plan.steps]
        if plan_options.fuse_epilogues:
            lowered, deaths = move_to_front(self.lowering, lowered)
            plan = replace(plan, deaths=tuple(deaths))
        self.plan = plan
        buffers, self.roots = self.lowering.buffers, self.lowering.roots()
        self.addresses = 1 + len(buffers) + len(self.lowering.kept_arrays)
        memory = [MemoryWriter(plan, a, buffers, NumberTable()) for a in arenas(plan, plan_options)]
        self.stages = tuple(
            _StageWriter(self, writer).write([(plan.steps[i], lowered[i]) for i in steps])
            for steps, writer in zip(plan.stages, memory, strict=True)
        )
        self.unpacked = self._unpacked()
        self.kernels = tuple({k.name: k for k in self._kernels()}.values())
        if not options.allow_host:
            self._refuse_host_steps()

    def address_of_buffer(self, number: int) -> int:
        """Return the place of a buffer in the list of addresses."""
        return 1 + number

    def address_of_constant(self, constant: Constant) -> int:
        """Return the place of a kept constant there."""
        return 1 + len(self.roots) + constant.number

    def _unpacked(self) -> tuple[int, ...]:
        """Return the constants that calls read as they are."""
        calls = (c.call for s in self.device_steps for c in s.calls)
        read = {p.buffer for c in calls for p in c.pointers if isinstance(p, Operand)}
        read.update(o.buffer for o in self.plan.outputs.values())
        return tuple(n for n in self.plan.constants if n in read and self.plan.buffers[n].dtype)

    def _kernels(self) -> list[KernelSource]:
        calls = (c.call for s in self.device_steps for c in s.calls)
        return [c.kernel for c in calls if isinstance(c, Launch)]

    @property
    def segments(self) -> list[Segment]:
        """Everything that runs, in order."""
        return [s for stage in self.stages for s in stage.segments]

    @property
    def device_steps(self) -> list[DeviceStep]:
        """The steps that the device carries out."""
        return [s for s in self.segments if isinstance(s, DeviceStep)]

    @property
    def host_steps(self) -> list[HostStep]:
        """The steps without a kernel, but those that read sizes back."""
        return [s for s in self.segments if isinstance(s, HostStep) and not s.reads_sizes]

    def _refuse_host_steps(self) -> None:
        """Refuse what the host would have to compute.

        Raises:
            UnsupportedOnDeviceError: names all such nodes.
        """
        found = [f"{s.step.label} ({s.step.kind}): {s.reason}" for s in self.host_steps]
        if found:
            raise UnsupportedOnDeviceError(
                f"the GPU has no kernel for {len(found)} of {len(self.plan.steps)} steps: "
                f"{'; '.join(found)}. Use allow_host=True to run these on the host."
            )


@dataclass
class _StageWriter:
    """Collects the calls of one stage."""

    skeleton: Skeleton
    memory: MemoryWriter
    told: dict[int, int] = field(default_factory=dict)
    tables: list[tuple[int, Table]] = field(default_factory=list)

    def write(self, lowered: Sequence[tuple[Step, Calls | Refusal]]) -> Stage:
        """Return the stage."""
        segments = tuple(self._segment(step, calls) for step, calls in lowered)
        binder, memory = self.memory.table.binder(), self.memory.memory()
        symbols = {*memory.symbols, *binder.symbols, *self._table_symbols(lowered)}
        held = self._held()
        return Stage(
            segments,
            binder,
            memory,
            np.array(list(held), np.int64),
            np.array(list(held.values()), np.int64),
            tuple(self.tables),
            tuple(sorted(symbols)),
        )

    def _held(self) -> dict[int, int]:
        """Return what lies in the block, by the place in the list of addresses."""
        here = {*self.memory.arena.members, *self.memory.temporaries}
        roots, place = self.skeleton.roots, self.skeleton.address_of_buffer
        return {place(b): root for b, root in enumerate(roots) if root in here} | self.told

    def _table_symbols(self, lowered: Sequence[tuple[Step, Calls | Refusal]]) -> set[Symbol]:
        """Return what tables may depend on: all sizes of their steps."""
        if not self.tables:
            return set()
        operands = (o for step, _ in lowered for o in (*step.inputs, *step.writes))
        return {s for o in operands for n in o.layout.numbers for s in symbols_of(n)}

    def _segment(self, step: Step, calls: Calls | Refusal) -> Segment:
        if isinstance(calls, Refusal):
            return calls.segment(step)
        pointers = (p for c in calls for p in c.pointers)
        self.memory.add_temporaries(p for p in pointers if not isinstance(p, Given))
        return DeviceStep(step, tuple(self._placed(call, step) for call in calls))

    def _placed(self, call: Call, step: Step) -> PlacedCall:
        add = self.memory.table.add_all
        if isinstance(call, Launch):
            sizes = add((*call.grid, call.shared, call.guard))
            buffers = self.skeleton.lowering.buffers
            used = [buffers[p.buffer].numel for p in call.pointers if isinstance(p, Operand)]
            limits = add((call.extent, *used))
        else:
            sizes, limits = add((call.work, call.guard)), range(0)
        numbers = add(call.numbers)
        places, offsets = [], []
        for pointer in call.pointers:
            offset: Size = 0
            if isinstance(pointer, Operand):
                offset = pointer.layout.offset * self.skeleton.lowering.itemsize(pointer)
            elif isinstance(pointer, Given):
                offset = pointer.bits  # behind no address
            places.append(self._place(pointer, step))
            offsets.append(offset)
        times = add(() if call.rounds is None else (call.rounds.times,))
        return PlacedCall(call, sizes, numbers, limits, tuple(places), add(offsets), times)

    def _place(self, pointer: object, step: Step) -> int:
        """Return the place of what a pointer begins at in the list of addresses."""
        skeleton = self.skeleton
        if isinstance(pointer, Operand):
            return skeleton.address_of_buffer(pointer.buffer)
        if isinstance(pointer, Constant):
            return skeleton.address_of_constant(pointer)
        if pointer is None or isinstance(pointer, Given):
            return NOWHERE
        place = skeleton.addresses
        skeleton.addresses += 1
        if isinstance(pointer, Table):
            self.tables.append((place, pointer))
        elif isinstance(pointer, Draw):
            self.told[place] = self.memory.add_draw(pointer)
        else:
            assert isinstance(pointer, Status)
            self.told[place] = self.memory.add_status(pointer, step)
        return place
