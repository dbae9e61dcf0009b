"""Stages of a plan for concrete sizes: numbers, places in memory, and lists of pointers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np

from kn_cpu.native import STEP, BoundSteps, NativeLibrary
from kn_cpu.program import NativeRun, Skeleton, Stage
from kn_cpu.trial import ThreadTrial
from kn_graph.dim import Symbol
from kn_graph.random_bits import RandomStreams
from kn_plan.stage_memory import StagePlaces

__all__ = ["BoundRun", "BoundStage", "bind_stage"]

Array = np.ndarray[Any, Any]
Ints = np.ndarray[Any, np.dtype[np.int64]]


class Frame:
    """The pointers of one run at a time; which of them change from run to run is known."""

    def __init__(self, bound: BoundRun) -> None:
        self._run, self._bound = bound.run, bound
        self._pointers = bound.pointers.copy()
        self._block = 0
        self._steps = BoundSteps(bound.library, bound.steps, bound.numbers, self._pointers)

    def __call__(self, block: int, elsewhere: Sequence[int], threads: int) -> None:
        """Run the steps.

        Args:
            block: address of the stage's memory.
            elsewhere: addresses of the buffers outside of it.
            threads: how many threads work.
        """
        if block != self._block:
            self._pointers[self._run.arena] += block - self._block
            self._block = block
        if elsewhere:
            bases = np.array(elsewhere, np.int64)
            self._pointers[self._run.elsewhere] = self._bound.offsets + bases
        self._steps(threads)

    def again(self, threads: int) -> None:
        """Run with the addresses of the last time."""
        self._steps(threads)


class BoundRun:
    """A native run for concrete sizes.

    Attributes:
        run: what it is made from.
        library: the kernels.
        steps: the step list.
        numbers: of all calls of the stage.
        pointers: without the addresses of what the caller or the arena brings.
        offsets: of the pointers to `run.elsewhere`.
        tables: kept as long as pointers point to them.
    """

    def __init__(
        self,
        library: NativeLibrary,
        run: NativeRun,
        numbers: Ints,
        places: Ints,
        tables: Sequence[Array],
    ) -> None:
        self.run, self.library, self.numbers, self.tables = run, library, numbers, tables
        self.steps = np.empty(len(run.kernels), STEP)
        columns = (run.kernels, run.numbers, run.starts, *numbers[run.extents])
        for name, column in zip(STEP.fields or (), columns, strict=True):
            self.steps[name] = column
        self.pointers = numbers[run.offsets] + run.fixed
        self.pointers[run.arena] += places[run.arena_buffers]
        for (place, _), table in zip(run.tables, tables, strict=True):
            self.pointers[place] += table.ctypes.data
        self.offsets = self.pointers[run.elsewhere]
        self._frames: list[Frame] = []
        self._trial: ThreadTrial | None = None

    def __call__(self, block: int, elsewhere: Sequence[int], threads: int) -> None:
        """Run the steps; several threads may call at once."""
        try:
            frame = self._frames.pop()
        except IndexError:
            frame = Frame(self)
        trial = self._trial or ThreadTrial(threads)
        self._trial = trial
        start = perf_counter() if trial.open else 0.0
        frame(block, elsewhere, trial.threads)
        if trial.open:
            trial.note(perf_counter() - start)
        self._frames.append(frame)


@dataclass(frozen=True)
class BoundStage:
    """A stage for concrete sizes.

    Attributes:
        stage: what it is made from.
        numbers: of all its calls.
        runs: its native runs, in order.
        memory: its block, and what lies where in it.
    """

    stage: Stage
    numbers: Ints
    runs: tuple[BoundRun, ...]
    memory: StagePlaces

    def clear_status(self, block: Array) -> None:
        """Get ready for a run."""
        block[self.memory.status : self.memory.nbytes] = 0

    def draw(self, block: Array, streams: RandomStreams) -> None:
        """Say which random numbers a run takes."""
        block[self.memory.draw : self.memory.status] = self.memory.drawn(streams).view(np.uint8)

    def check_status(self, block: Array, env: Mapping[Symbol, int]) -> None:
        """Look at what kernels left.

        Raises:
            KnError: one found something wrong in the data.
        """
        self.memory.check_status(block[self.memory.status : self.memory.nbytes], env)


def bind_stage(skeleton: Skeleton, stage: Stage, env: Mapping[Symbol, int]) -> BoundStage:
    """Return a stage for numbers of its symbols.

    Raises:
        OverflowError: the sizes are too large for any memory.
    """
    numbers = stage.binder(env)
    memory = stage.memory.bind(numbers, env)
    runs = tuple(
        BoundRun(skeleton.library, s, numbers, memory.places, [t.make(env) for _, t in s.tables])
        for s in stage.segments
        if isinstance(s, NativeRun)
    )
    return BoundStage(stage, numbers, runs, memory)
