"""Stages of a plan for concrete sizes: grids, numbers, and places in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import numpy as np

from kn_cuda.backend import Backend, Grid, Memory
from kn_cuda.calls import Launch, Request
from kn_cuda.program import DeviceStep, PlacedCall, Skeleton, Stage
from kn_cuda.source import KernelSource
from kn_graph.dim import Symbol
from kn_plan.stage_memory import StagePlaces

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
        memory: its block, and what lies where in it.
        block_offsets: where the addresses of `Stage.in_block` are there.
        tables: places in the list of addresses, and the memory there.
    """

    stage: Stage
    calls: tuple[tuple[BoundCall, ...], ...]
    memory: StagePlaces
    block_offsets: Ints
    tables: tuple[tuple[int, Memory], ...]


def bind_stage(
    skeleton: Skeleton, stage: Stage, env: Mapping[Symbol, int], backend: Backend
) -> BoundStage:
    """Return a stage for numbers of its symbols; its kernels are compiled.

    Raises:
        OverflowError: the sizes are too large for any memory.
    """
    numbers = stage.binder(env)
    memory = stage.memory.bind(numbers, env)
    steps = [s for s in stage.segments if isinstance(s, DeviceStep)]
    calls = tuple(bound_calls(s.calls, numbers) for s in steps)
    backend.prepare([c.kernel for row in calls for c in row if isinstance(c, BoundLaunch)])
    tables = tuple((place, _uploaded(backend, t.make(env))) for place, t in stage.tables)
    return BoundStage(stage, calls, memory, memory.places[stage.held], tables)


def _uploaded(backend: Backend, array: Array) -> Memory:
    memory = backend.allocate(array.nbytes)
    backend.write(memory.address, np.ascontiguousarray(array))
    return memory


def bound_calls(calls: Sequence[PlacedCall], numbers: Ints) -> tuple[BoundCall, ...]:
    """Return the calls of a step that do something, for the numbers of its stage."""
    found: list[BoundCall] = []
    for rounds, group in groupby(calls, lambda placed: placed.call.rounds):
        members = list(group)
        bound = [call for m in members if (call := _bound_call(m, numbers)) is not None]
        if rounds is None:
            found += bound
        else:
            found += _in_turn(bound, int(numbers[members[0].times][0]))
    return tuple(found)


def _in_turn(calls: Sequence[BoundCall], times: int) -> Iterator[BoundCall]:
    """Yield calls again and again; kernels that ask for it are told which time it is."""
    for time in range(times):
        for call in calls:
            place = call.kernel.round if isinstance(call, BoundLaunch) else None
            if place is None:
                yield call
                continue
            own = call.numbers.copy()
            own[place] = time
            yield replace(call, numbers=own)


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
