"""Plans carried out with NumPy, step by step, on the memory that they say.

This is no executor: every kernel is the reference of its operation. It shows that a plan is right
without the device it is for, and `check` that no step reads what was not written or is gone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kn_graph.binding import bind_symbols
from kn_graph.context import RunContext
from kn_graph.dim import Symbol, evaluate
from kn_graph.errors import InternalError
from kn_graph.graph import Graph
from kn_graph.random_bits import RandomStreams
from kn_graph.reference import reference_outputs
from kn_plan.memory import arenas
from kn_plan.options import PlanOptions
from kn_plan.plan import Home, Operand, Plan, Step

__all__ = ["Replay", "replay"]

Array = np.ndarray[Any, Any]

NOBODY = -1
"""Owner of bytes that were never written."""


def replay(
    plan: Plan,
    inputs: Sequence[Any],
    env: Mapping[Symbol, int],
    options: PlanOptions | None = None,
    *,
    check: bool = False,
    seed: int = 0,
) -> dict[str, Any]:
    """Carry out a plan.

    Args:
        plan: what to run.
        inputs: as `kn_graph.variants.open_call` returns them.
        env: numbers of the input symbols.
        options: those that the plan was made with.
        check: whether to verify that each step reads what was written for it.
        seed: for random operations.

    Raises:
        InternalError: with `check`, the plan reads or writes what it must not.
    """
    return Replay(plan, inputs, env, options or PlanOptions(), check, seed).outputs()


class Replay(RunContext):
    """One run of a plan; the context of the operations in it."""

    def __init__(
        self,
        plan: Plan,
        inputs: Sequence[Any],
        env: Mapping[Symbol, int],
        options: PlanOptions,
        check: bool,
        seed: int,
    ) -> None:
        super().__init__(dict(env), RandomStreams(seed))
        self.plan, self.check = plan, check
        self.arenas = arenas(plan, options)
        self.memory: dict[int, Array] = {}  # bytes by root buffer
        self.owners: dict[int, Array] = {}  # who wrote each byte last
        self.objects: dict[int, Any] = {}
        for number, x in zip(plan.inputs, inputs, strict=True):
            self._given(number, x)
        for number, array in plan.constants.items():
            self._given(number, array)

    def _given(self, number: int, x: Any) -> None:
        if self.plan.buffers[number].dtype is None:
            self.objects[number] = x
            return
        data = np.frombuffer(np.ascontiguousarray(x).tobytes(), np.uint8).copy()
        self.memory[number] = data
        self.owners[number] = np.full(data.size, number, np.int32)

    def outputs(self) -> dict[str, Any]:
        """Run all stages and return the results by name."""
        for stage, arena in zip(self.plan.stages, self.arenas, strict=True):
            self.plan.required.check_repeats(self.env)
            allocation = arena.allocate(self.plan, self.env)
            block = np.zeros(allocation.total, np.uint8)
            owner = np.full(allocation.total, NOBODY, np.int32)
            places = zip(arena.members, allocation.offsets, allocation.sizes, strict=True)
            for member, start, size in places:
                self.memory[member] = block[start : start + size]
                self.owners[member] = owner[start : start + size]
            for index in stage:
                self._step(index, self.plan.steps[index])
        return {name: self._result(o) for name, o in self.plan.outputs.items()}

    def _result(self, operand: Operand) -> Any:
        self._verify(operand, "the caller")
        return self._read(operand)

    # ---- memory -----------------------------------------------------------------------------

    def _view(self, operand: Operand, table: dict[int, Array], dtype: np.dtype[Any]) -> Array:
        """Return elements of a buffer as a strided view."""
        root = self.plan.root(operand.buffer)
        itemsize = self._itemsize(operand)
        layout: Any = operand.layout.at(self.env)
        if 0 in layout.sizes:
            return np.empty(layout.sizes, dtype)
        base = table[root]
        low, high = layout.span
        size = evaluate(self.plan.buffers[operand.buffer].nbytes, self.env)
        if low < 0 or (high + 1) * itemsize > min(size, len(base)):
            raise InternalError(f"{operand} leaves its buffer of {size} bytes")
        unit = itemsize * base.itemsize
        strides = [s * unit for s in layout.strides]
        return np.ndarray(layout.sizes, dtype, base.data, layout.offset * unit, strides)

    def _itemsize(self, operand: Operand) -> int:
        dtype = self.plan.buffers[operand.buffer].dtype
        assert dtype is not None
        return dtype.numpy.itemsize

    def _read(self, operand: Operand) -> Any:
        dtype = self.plan.buffers[operand.buffer].dtype
        if dtype is None:
            return self.objects[operand.buffer]
        return self._view(operand, self.memory, dtype.numpy)

    def _verify(self, operand: Operand, who: str) -> None:
        b = self.plan.buffers[operand.buffer]
        if not self.check or b.dtype is None:
            return
        owners = self._view(operand, self.owners, np.dtype(np.int32))
        wrong = owners[owners != operand.buffer]
        if wrong.size:
            other = int(wrong.flat[0])
            state = "was never written" if other == NOBODY else f"now holds b{other}"
            raise InternalError(f"{who} reads {operand}, but that memory {state}")

    # ---- steps ------------------------------------------------------------------------------

    def _step(self, index: int, step: Step) -> None:
        who = f"step {index} ({step.label})"
        for operand in step.inputs:
            self._verify(operand, who)
        reads = [self._read(o) for o in step.reads]
        extras = [self._read(o) for o in step.extras]
        results: list[Any] = []
        if step.node is not None:
            out = step.node.op.eval(self, *reads)
            results = list(out) if isinstance(out, tuple) else [out]
            self.bind_shapes(step.node, results)
        if step.program is not None:
            # an operand may be the memory of the result: read all before anything is written
            results = step.program.evaluate(self, [np.asarray(r) for r in results] + extras)
            results = [np.array(r) for r in results]
        for operand, result in zip(step.writes, results, strict=True):
            self._write(operand, result, who)

    def _write(self, operand: Operand, result: Any, who: str) -> None:
        b = self.plan.buffers[operand.buffer]
        if b.dtype is None:
            self.objects[operand.buffer] = result
            return
        if b.home in (Home.INPUT, Home.CONSTANT):
            raise InternalError(f"{who} writes {operand}, which belongs to the caller")
        if b.home in (Home.LATE, Home.OUTPUT) and b.number not in self.memory:
            size = evaluate(b.nbytes, self.env)
            self.memory[b.number] = np.zeros(size, np.uint8)
            self.owners[b.number] = np.full(size, NOBODY, np.int32)
        target = self._view(operand, self.memory, b.dtype.numpy)
        result = np.asarray(result)
        if result.dtype != b.dtype.numpy:
            raise InternalError(f"{who} gives {result.dtype}, its buffer holds {b.dtype}")
        np.copyto(target, np.broadcast_to(result, target.shape))
        if self.check and target.size:
            self._own(operand)

    def _own(self, operand: Operand) -> None:
        """Mark the bytes of the elements as written."""
        root, itemsize = self.plan.root(operand.buffer), self._itemsize(operand)
        layout: Any = operand.layout.at(self.env)
        base = self.owners[root]
        unit = itemsize * base.itemsize
        shape, strides = (*layout.sizes, itemsize), [s * unit for s in layout.strides]
        strides.append(base.itemsize)
        elements = np.ndarray(shape, base.dtype, base.data, layout.offset * unit, strides)
        elements[...] = operand.buffer

    def run(self, body: Graph, inputs: Sequence[Any]) -> list[Any]:
        """Run a control-flow body on the reference."""
        return reference_outputs(body, inputs, bind_symbols(body.inputs, list(inputs), self.env))
