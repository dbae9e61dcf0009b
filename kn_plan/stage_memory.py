"""The block of memory that a stage of a plan works in, over symbolic sizes and for numbers.

The buffers that are born in the stage come first, where its arena puts them; behind them lie the
temporaries of one step at a time, then what kernels are told of random numbers, and at the end what
they tell.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kn_graph.dim import Size, Symbol
from kn_graph.random_bits import DRAW_BLOCKS, RandomStreams
from kn_plan.arena import ALIGNMENT, Allocation, CapacityArena
from kn_plan.binding import NumberTable
from kn_plan.calls import DRAW_BYTES, STATUS_BYTES, Draw, Pointer, Status
from kn_plan.memory import Arena
from kn_plan.plan import Buffer, Operand, Plan, Step

__all__ = ["MemoryWriter", "StageMemory", "StagePlaces"]

Array = np.ndarray[Any, Any]
Ints = np.ndarray[Any, np.dtype[np.int64]]
Words = np.ndarray[Any, np.dtype[np.uint64]]

MOST_BYTES = 1 << 62
"""No machine has more."""

WORD = 2**64 - 1
"""Bits of what is said of random numbers."""


@dataclass(frozen=True)
class StageMemory:
    """What lies in the block of a stage.

    Attributes:
        arena: the buffers that are born here.
        members: their numbers.
        symbols: what their sizes depend on.
        capacity: their places.
        count: how many buffers there are, temporaries of all stages included.
        temporaries: buffers that lie behind the arena for one step each.
        temporary_offsets: places among the stage's numbers of where these begin there.
        workspaces: places among these numbers of the bytes that each step needs there.
        statuses: what kernels tell, and of which step, one behind another.
        draws: which random numbers they take, likewise.
    """

    arena: Arena
    members: Ints
    symbols: tuple[Symbol, ...]
    capacity: CapacityArena
    count: int
    temporaries: Ints
    temporary_offsets: Ints
    workspaces: Ints
    statuses: tuple[tuple[Status, Step], ...]
    draws: tuple[Draw, ...]

    def workspace(self, numbers: Ints) -> int:
        """Return how many bytes the temporaries of any step take, for numbers of the stage."""
        return int(numbers[self.workspaces].max(initial=0))

    def bind(self, numbers: Ints, env: Mapping[Symbol, int]) -> StagePlaces:
        """Return where everything lies.

        Args:
            numbers: of the stage.
            env: the symbols that they are for.

        Raises:
            OverflowError: the sizes are too large for any memory.
        """
        allocation = self.capacity.bind({s: env[s] for s in self.symbols})
        workspace = self.workspace(numbers)
        if float(allocation.sizes.sum(dtype=np.float64)) + workspace >= MOST_BYTES:
            raise OverflowError(f"an arena of {allocation.sizes.sum()} bytes")
        places = np.zeros(self.count + len(self.statuses) + len(self.draws), np.int64)
        places[self.members] = allocation.offsets
        places[self.temporaries] = allocation.total + numbers[self.temporary_offsets]
        draw = allocation.total + -(-workspace // ALIGNMENT) * ALIGNMENT
        status = draw + DRAW_BYTES * len(self.draws)
        nbytes = status + STATUS_BYTES * len(self.statuses)
        words = [*range(status, nbytes, STATUS_BYTES), *range(draw, status, DRAW_BYTES)[::-1]]
        places[self.count :] = words
        return StagePlaces(self.statuses, self.draws, allocation, places, nbytes, status, draw)


@dataclass(frozen=True)
class StagePlaces:
    """Where everything lies in the block of a stage.

    Attributes:
        statuses: see `StageMemory`.
        draws: likewise.
        allocation: of the buffers that are born here.
        places: offset in the block of each buffer that lies in it, then of each status; from the
            end, of each draw.
        nbytes: of the block.
        status: where the statuses begin.
        draw: where the draws begin.
    """

    statuses: tuple[tuple[Status, Step], ...]
    draws: tuple[Draw, ...]
    allocation: Allocation
    places: Ints
    nbytes: int
    status: int
    draw: int

    @property
    def status_bytes(self) -> int:
        """How many bytes the statuses take."""
        return self.nbytes - self.status

    def drawn(self, streams: RandomStreams) -> Words:
        """Return what is said of the random numbers of one run, for all draws."""
        words = []
        for draw in self.draws:
            seed, before = streams.draw(draw.stream, draw.key)
            words += [seed, draw.stream, before * DRAW_BLOCKS]
        return np.array([w & WORD for w in words], np.uint64)

    def check_status(self, data: Array, env: Mapping[Symbol, int]) -> None:
        """Look at what kernels left.

        Args:
            data: the bytes of the statuses.
            env: numbers of the symbols.

        Raises:
            KnError: a kernel found something wrong in the data.
        """
        words = data.view(np.int64)
        if not words.any():
            return
        rows = words.reshape(len(self.statuses), -1).tolist()
        for (status, step), row in zip(self.statuses, rows, strict=True):
            if row[0]:
                error = status.error(row, env)
                error.add_context(f"node {step.label} ({step.kind})")
                raise error


@dataclass
class MemoryWriter:
    """Collects what the block of one stage holds.

    Attributes:
        plan: whose stage it is.
        arena: the buffers that are born there.
        buffers: those of the plan, then all temporaries.
        table: the numbers of the stage.
        temporaries: places among these numbers by buffer.
        workspaces: places among these numbers.
        statuses: what kernels tell, and of which step.
        draws: which random numbers they take.
    """

    plan: Plan
    arena: Arena
    buffers: Sequence[Buffer]
    table: NumberTable
    temporaries: dict[int, int] = field(default_factory=dict)
    workspaces: list[int] = field(default_factory=list)
    statuses: list[tuple[Status, Step]] = field(default_factory=list)
    draws: list[Draw] = field(default_factory=list)

    def add_temporaries(self, pointers: Iterable[Pointer]) -> None:
        """Lay the temporaries of a step behind one another.

        Args:
            pointers: of all calls of the step.
        """
        used = {p.buffer for p in pointers if isinstance(p, Operand)}
        end: Size = 0
        for number in sorted(b for b in used if b >= len(self.plan.buffers)):
            self.temporaries[number] = self.table.add(end)
            end = end + (self.buffers[number].nbytes + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT
        if end != 0:
            self.workspaces.append(self.table.add(end))

    def add_status(self, status: Status, step: Step) -> int:
        """Make room for what a kernel tells; return its number in `StagePlaces.places`."""
        self.statuses.append((status, step))
        return len(self.buffers) + len(self.statuses) - 1

    def add_draw(self, draw: Draw) -> int:
        """Make room for what a kernel is told; return its number in `StagePlaces.places`."""
        self.draws.append(draw)
        return -len(self.draws)

    def memory(self) -> StageMemory:
        """Return everything."""
        sizes = NumberTable()
        sizes.add_all(self.plan.buffers[m].nbytes for m in self.arena.members)
        binder = sizes.binder()
        return StageMemory(
            self.arena,
            np.array(self.arena.members, np.int64),
            binder.symbols,
            CapacityArena(binder, self.arena.lives),
            len(self.buffers),
            np.array(list(self.temporaries), np.int64),
            np.array(list(self.temporaries.values()), np.int64),
            np.array(self.workspaces, np.int64),
            tuple(self.statuses),
            tuple(self.draws),
        )
