"""Stages of a plan for concrete sizes: grids, numbers, and places in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kn_cuda.backend import Backend, Grid, Memory
from kn_cuda.calls import Launch, Request
from kn_cuda.program import DeviceStep, PlacedCall, Skeleton, Stage
from kn_cuda.source import KernelSource
from kn_graph.dim import Symbol
from kn_graph.errors import KnError
from kn_plan.arena import Allocation
from kn_plan.plan import Step

__all__ = [
    "BoundCall",
    "BoundLaunch",
    "BoundLibraryCall",
    "BoundStage",
    "bind_stage",
    "bound_calls",
]

Array = np.ndarray[Any, Any]
Ints = np.ndarray[Any, np.dtype[np.int64]]

STATUS_BYTES = 24
"""Three int64; see `kn_cuda.calls.Status`."""

MOST_BYTES = 1 << 62
"""No device has more."""

NARROW = 1 << 30
"""What 32 bits count to with the threads of a grid added."""


@dataclass(frozen=True)
class BoundLaunch:
    """A launch for concrete sizes, of a grid that is not empty.

    Attributes:
        title: what counters call it.
        kernel: with indices as wide as the sizes need.
        grid: blocks.
        block: threads of a block.
        shared: bytes of dynamic shared memory.
        numbers: as the kernel takes them.
        places: of pointers in the list of addresses.
        offsets: in bytes behind them.
    """

    title: str
    kernel: KernelSource
    grid: Grid
    block: Grid
    shared: int
    numbers: Array
    places: Ints
    offsets: Ints


@dataclass(frozen=True)
class BoundLibraryCall:
    """A call of a library for concrete sizes, which has something to do.

    Attributes:
        title: what counters call it.
        request: what is asked.
        numbers: as the request says.
        places: of pointers in the list of addresses.
        offsets: in bytes behind them.
    """

    title: str
    request: Request
    numbers: Ints
    places: Ints
    offsets: Ints


BoundCall = BoundLaunch | BoundLibraryCall


@dataclass(frozen=True)
class BoundStage:
    """A stage for concrete sizes.

    Attributes:
        stage: what it is made from.
        calls: those of each device step, in order; what would do nothing is left out.
        allocation: where buffers lie.
        in_block: places in the list of addresses that lie in the block.
        block_offsets: where they lie there.
        tables: places in the list of addresses, and the memory there.
        nbytes: of the block.
        status: where the statuses begin.
    """

    stage: Stage
    calls: tuple[tuple[BoundCall, ...], ...]
    allocation: Allocation
    in_block: Ints
    block_offsets: Ints
    tables: tuple[tuple[int, Memory], ...]
    nbytes: int
    status: int

    def check_status(self, data: Array, env: Mapping[Symbol, int]) -> None:
        """Look at what kernels left.

        Raises:
            KnError: one found something wrong in the data.
        """
        words = data.view(np.int64)
        if not words.any():
            return
        rows = words.reshape(-1, 3).tolist()
        for (_, status, step), row in zip(self.stage.statuses, rows, strict=True):
            error: KnError | None = status.error(row, env)
            if error is not None:
                error.add_context(_context(step))
                raise error


def _context(step: Step) -> str:
    return f"node {step.label} ({step.kind})"


def bind_stage(
    skeleton: Skeleton, stage: Stage, env: Mapping[Symbol, int], backend: Backend
) -> BoundStage:
    """Return a stage for numbers of its symbols; its kernels are compiled.

    Raises:
        OverflowError: the sizes are too large for any memory.
    """
    numbers = stage.binder(env)
    allocation = stage.capacity.bind({s: env[s] for s in stage.arena_symbols})
    workspace = int(numbers[list(stage.workspaces)].max(initial=0))
    if float(allocation.sizes.sum(dtype=np.float64)) + workspace >= MOST_BYTES:
        raise OverflowError(f"an arena of {allocation.sizes.sum()} bytes")
    behind = -(-allocation.total // 256) * 256
    offsets = dict(zip(stage.arena.members, allocation.offsets.tolist(), strict=True))
    for number, place in zip(stage.temporaries, stage.temporary_offsets, strict=True):
        offsets[number] = behind + int(numbers[place])
    in_block = {
        skeleton.address_of_buffer(b): offsets[root]
        for b, root in enumerate(skeleton.roots)
        if root in offsets
    }
    end = behind + workspace
    for i, (place, _, _) in enumerate(stage.statuses):
        in_block[place] = end + STATUS_BYTES * i
    steps = [s for s in stage.segments if isinstance(s, DeviceStep)]
    calls = tuple(bound_calls(s.calls, numbers) for s in steps)
    backend.prepare([c.kernel for row in calls for c in row if isinstance(c, BoundLaunch)])
    tables = tuple((place, _uploaded(backend, t.make(env))) for place, t in stage.tables)
    return BoundStage(
        stage, calls, allocation,
        np.array(list(in_block), np.int64), np.array(list(in_block.values()), np.int64),
        tables, end + STATUS_BYTES * len(stage.statuses), end,
    )  # fmt: skip


def _uploaded(backend: Backend, array: Array) -> Memory:
    memory = backend.allocate(array.nbytes)
    backend.write(memory.address, np.ascontiguousarray(array))
    return memory


def bound_calls(calls: Sequence[PlacedCall], numbers: Ints) -> tuple[BoundCall, ...]:
    """Return the calls of a step that do something, for the numbers of its stage."""
    found = (_bound_call(call, numbers) for call in calls)
    return tuple(call for call in found if call is not None)


def _bound_call(placed: PlacedCall, numbers: Ints) -> BoundCall | None:
    """Return a call, or None where it would do nothing."""
    sizes: list[int] = numbers[placed.sizes].tolist()
    if 0 in sizes[:3] or not sizes[-1]:
        return None
    own = numbers[placed.numbers]
    places, offsets = np.array(placed.places, np.int64), numbers[placed.offsets]
    call = placed.call
    if not isinstance(call, Launch):
        return BoundLibraryCall(call.title, call.request, own, places, offsets)
    largest = max(np.abs(own).max(initial=0), numbers[placed.limits].max(initial=0))
    kernel = call.kernel if largest < NARROW else call.kernel.widened
    typed = own.astype(np.int64 if kernel.wide else np.int32)
    grid = (sizes[0], sizes[1], sizes[2])
    return BoundLaunch(call.title, kernel, grid, call.block, sizes[3], typed, places, offsets)
