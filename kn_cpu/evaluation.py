"""One run of a plan that native kernels and the host carry out together, stage after stage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kn_cpu.bound import BoundRun, BoundStage
from kn_cpu.memory import Block, as_bytes
from kn_cpu.program import NativeRun
from kn_cpu.ready import Known, Place, Ready
from kn_graph.dim import evaluate
from kn_graph.errors import OutOfMemoryError
from kn_graph.graph import Graph
from kn_graph.memory import available_bytes
from kn_graph.random_bits import RandomStreams
from kn_graph.reference import owned
from kn_plan.plan import Operand
from kn_plan.run import PlanRun

if TYPE_CHECKING:
    from kn_cpu.executor import CpuExecutor

__all__ = ["SMALL", "Evaluation", "memory_limit"]

Array = np.ndarray[Any, Any]

SMALL = 1 << 24
"""Bytes that are there without a look."""


def memory_limit(most: int | None) -> int:
    """Return how many bytes a call may take: those allowed, if there are as many."""
    return available_bytes() if most is None else min(most, available_bytes())


class Evaluation(PlanRun):
    """One run of a plan."""

    def __init__(self, executor: CpuExecutor, ready: Ready, streams: RandomStreams) -> None:
        skeleton = ready.skeleton
        super().__init__(skeleton.plan, ready.env, skeleton.objects, ready.pending, streams)
        self.executor, self.ready, self.skeleton = executor, ready, skeleton
        self._known, self._numbers = ready.known_with(self.env), len(self.env)
        self.memory: dict[int, Array] = {}  # of the caller, and what is as large as a step finds
        self.stages: list[tuple[BoundStage, Block]] = []

    def outputs(self, inputs: Sequence[Any]) -> dict[str, Any]:
        """Run all stages and return the results by name."""
        for number, x in zip(self.plan.inputs, inputs, strict=True):
            if self.plan.buffers[number].dtype is None:
                self.objects[number] = x
            else:
                self.memory[number] = as_bytes(x)
        try:
            for index in range(len(self.skeleton.stages)):
                if index:  # sizes are known that were not when it began
                    self.plan.required.check_repeats(self.env)
                bound = self._bound(index)
                block = self.executor.blocks.take(bound.memory.nbytes)
                self.stages.append((bound, block))
                self._stage(bound, block)
            return {name: self._result(o) for name, o in self.plan.outputs.items()}
        finally:
            for _, block in self.stages:
                self.executor.blocks.give(block)

    def _bound(self, index: int) -> BoundStage:
        """Return a stage for the numbers known so far; the first one is the same in all runs."""
        found = self.ready.first if index == 0 else None
        return found or self.executor.stages.at(self.skeleton, index, self.env)

    def _stage(self, bound: BoundStage, block: Block) -> None:
        runs, checked = iter(bound.runs), bool(bound.memory.statuses)
        if checked:
            bound.clear_status(block.data)
        if bound.memory.draws:
            bound.draw(block.data, self.streams)
        for segment in bound.stage.segments:
            if isinstance(segment, NativeRun):
                self._native(next(runs), block)
                if checked:
                    bound.check_status(block.data, self.env)
            else:
                self._host(segment.step)

    # ---- memory -----------------------------------------------------------------------------

    def _base(self, number: int) -> tuple[Array, int]:
        """Return the memory of a buffer, and where it begins there."""
        home = self.skeleton.homes[number]
        if home >= 0:
            bound, block = self.stages[home]
            return block.data, int(bound.memory.places[self.skeleton.roots[number]])
        found = self.memory.get(number)
        if found is None:
            found = self.skeleton.constants.get(number)
        return (self._result_memory(number) if found is None else found), 0

    def _result_memory(self, number: int) -> Array:
        """Return fresh memory for what the caller gets, or for what became known while it ran."""
        b = self.plan.buffers[number]
        known = self._followed()
        nbytes = known.nbytes.get(number)
        if nbytes is None:
            nbytes = known.nbytes[number] = evaluate(b.nbytes, self.env)
        most = self.executor.memory_limit
        if (nbytes > SMALL or most is not None) and nbytes > (limit := memory_limit(most)):
            raise OutOfMemoryError(f"{b.name} would take {nbytes:,} bytes; {limit:,} are available")
        made = self.memory[number] = np.empty(nbytes, np.uint8)
        return made

    def _elements(self, operand: Operand) -> Array:
        b = self.plan.buffers[operand.buffer]
        assert b.dtype is not None
        places = self._followed().places
        place = places.get(id(operand))
        if place is None:
            place = places[id(operand)] = self._place(operand, b.dtype.numpy.itemsize)
        if 0 in place.shape:
            return np.empty(place.shape, b.dtype.numpy)
        base, start = self._base(operand.buffer)
        return np.ndarray(place.shape, b.dtype.numpy, base.data, start + place.start, place.strides)

    def _place(self, operand: Operand, itemsize: int) -> Place:
        """Return where an operand is."""
        layout: Any = operand.layout.at(self.env)
        strides = tuple(s * itemsize for s in layout.strides)
        return Place(layout.sizes, strides, layout.offset * itemsize)

    def _followed(self) -> Known:
        """Return what follows from the sizes found so far: mostly those of another run."""
        if len(self.env) != self._numbers:
            self._known, self._numbers = self.ready.known_with(self.env), len(self.env)
        return self._known

    def _result(self, operand: Operand) -> Any:
        if operand.buffer in self.objects:
            return owned(self.objects[operand.buffer])
        x = self._elements(operand)
        if operand.buffer in self.skeleton.fresh and x.flags.c_contiguous:
            return x  # nobody else has it
        return np.array(x, order="C")

    # ---- steps ------------------------------------------------------------------------------

    def _native(self, run: BoundRun, block: Block) -> None:
        elsewhere = [self._address(b) for b in run.run.elsewhere_buffers]
        run(block.address, elsewhere, self.executor.threads)

    def _address(self, number: int) -> int:
        base, start = self._base(number)
        return base.ctypes.data + start

    def _put(self, operand: Operand, result: Any) -> None:
        target = self._elements(operand)
        np.copyto(target, self._checked(operand, target.shape, result))

    def run(self, body: Graph, inputs: Sequence[Any]) -> list[Any]:
        """Run a control-flow body on its own plan."""
        return self.executor.body(body, inputs, self.env, self.streams)
