"""One run of a plan that native kernels and the host carry out together, stage after stage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kn_cpu.bound import BoundRun, BoundStage
from kn_cpu.memory import Block, as_bytes
from kn_cpu.program import NativeRun
from kn_cpu.ready import Place, Ready
from kn_graph.context import RunContext
from kn_graph.dim import evaluate, symbols_of
from kn_graph.errors import InternalError, KnError, OutOfMemoryError
from kn_graph.graph import Graph
from kn_graph.memory import available_bytes
from kn_graph.random_bits import RandomStreams
from kn_graph.reference import check_constraints, owned
from kn_plan.plan import Operand, Step

if TYPE_CHECKING:
    from kn_cpu.executor import CpuExecutor

__all__ = ["SMALL", "Evaluation", "memory_limit"]

Array = np.ndarray[Any, Any]

SMALL = 1 << 24
"""Bytes that are there without a look."""


def memory_limit(most: int | None) -> int:
    """Return how many bytes a call may take: those allowed, if there are as many."""
    return available_bytes() if most is None else min(most, available_bytes())


class Evaluation(RunContext):
    """One run of a plan."""

    def __init__(self, executor: CpuExecutor, ready: Ready, streams: RandomStreams) -> None:
        super().__init__(dict(ready.env), streams)
        self.executor, self.ready = executor, ready
        self.skeleton, self.plan = ready.skeleton, ready.skeleton.plan
        self.memory: dict[int, Array] = {}  # of the caller, and what is as large as a step finds
        self.stages: list[tuple[BoundStage, Block]] = []
        self.objects = dict(self.skeleton.objects)
        self.pending = list(ready.pending)

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
                    self.plan.check_repeats(self.env)
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
        return found or self.executor.bound(self.skeleton, index, self.env)

    def _stage(self, bound: BoundStage, block: Block) -> None:
        runs, checked = iter(bound.runs), bool(bound.memory.statuses)
        if checked:
            bound.clear_status(block.data)
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
        nbytes = evaluate(b.nbytes, self.env)
        most = self.executor.memory_limit
        if (nbytes > SMALL or most is not None) and nbytes > (limit := memory_limit(most)):
            raise OutOfMemoryError(f"{b.name} would take {nbytes:,} bytes; {limit:,} are available")
        made = self.memory[number] = np.empty(nbytes, np.uint8)
        return made

    def _view(self, operand: Operand) -> Array:
        b = self.plan.buffers[operand.buffer]
        assert b.dtype is not None
        place = self.ready.places.get(id(operand)) or self._place(operand, b.dtype.numpy.itemsize)
        if 0 in place.shape:
            return np.empty(place.shape, b.dtype.numpy)
        base, start = self._base(operand.buffer)
        return np.ndarray(place.shape, b.dtype.numpy, base.data, start + place.start, place.strides)

    def _place(self, operand: Operand, itemsize: int) -> Place:
        """Return where an operand is; what inputs show of it is the same in the next run."""
        layout: Any = operand.layout.at(self.env)
        strides = tuple(s * itemsize for s in layout.strides)
        place = Place(layout.sizes, strides, layout.offset * itemsize)
        if all(symbols_of(n) <= self.ready.env.keys() for n in operand.layout.numbers):
            self.ready.places[id(operand)] = place
        return place

    def _read(self, operand: Operand) -> Any:
        if self.plan.buffers[operand.buffer].dtype is None:
            return self.objects[operand.buffer]
        return self._view(operand)

    def _result(self, operand: Operand) -> Any:
        x = self._read(operand)
        if operand.buffer in self.objects:
            return owned(x)
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

    def _host(self, step: Step) -> None:
        try:
            results = self._computed(step)
        except KnError as error:
            error.add_context(f"node {step.label} ({step.kind})")
            raise
        except MemoryError as error:
            raise OutOfMemoryError(f"node {step.label} ({step.kind}): {error}") from error
        for operand, result in zip(step.writes, results, strict=True):
            self._write(operand, result)

    def _computed(self, step: Step) -> list[Any]:
        reads = [self._read(o) for o in step.reads]
        results: list[Any] = []
        if step.node is not None:
            out = step.node.op.eval(self, *reads)
            results = list(out) if isinstance(out, tuple) else [out]
            if step.binds:
                self._bind_results(step, results)
        if step.program is not None:
            extras = [self._read(o) for o in step.extras]
            arrays = [np.asarray(r) for r in results] + extras
            results = [np.array(r) for r in step.program.evaluate(self, arrays)]
        return results

    def _write(self, operand: Operand, result: Any) -> None:
        b = self.plan.buffers[operand.buffer]
        if b.dtype is None:
            self.objects[operand.buffer] = result
            return
        target, result = self._view(operand), np.asarray(result)
        if result.dtype != target.dtype or result.shape != target.shape:
            raise InternalError(
                f"a step gave {result.dtype}{list(result.shape)} for {b.name}, expected "
                f"{target.dtype}{list(target.shape)}. Please report this."
            )
        np.copyto(target, result)

    def _bind_results(self, step: Step, results: Sequence[Any]) -> None:
        assert step.node is not None
        self.bind_shapes(step.node, results)
        if self.pending:
            self.pending = check_constraints(self.pending, self.env, f"node {step.label}: ")

    def run(self, body: Graph, inputs: Sequence[Any]) -> list[Any]:
        """Run a control-flow body on its own plan."""
        return self.executor.body(body, inputs, self.env, self.streams)
