"""Steps that read nothing but constants are computed once, when the plan is made.

The optimizer leaves such nodes alone where their results are much larger than what they are made
from, such as weights of four bits: the graph stays as small as its file. A device wants them whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from kn_graph.context import RunContext
from kn_graph.errors import KnError
from kn_graph.ops.control import ControlOp
from kn_graph.random_bits import RandomStreams
from kn_plan.plan import Home, Operand, Plan, Step

__all__ = ["fold_constants"]

Array = np.ndarray[Any, Any]

GROWTH = 16
"""How many times as large as the constants a result may be."""

FREE_BYTES = 1 << 22
"""Bytes of a result that always are worth it."""


def fold_constants(plan: Plan) -> Plan:
    """Return a plan without lifetimes whose constant steps are done."""
    folding = _Folding(plan)
    done = {i for i, step in enumerate(plan.steps) if folding.folds(step)}
    if not done:
        return plan
    steps = tuple(step for i, step in enumerate(plan.steps) if i not in done)
    read = {o.buffer for step in steps for o in step.inputs}
    read |= {o.buffer for o in plan.outputs.values()}
    constants = {b: a for b, a in folding.constants.items() if b in read or b in plan.constants}
    buffers = tuple(
        replace(b, home=Home.CONSTANT) if b.number in folding.made & read else b
        for b in plan.buffers
    )
    return replace(
        plan,
        steps=steps,
        buffers=buffers,
        constants=constants,
        done=tuple(plan.steps[i] for i in sorted(done)),
    )


class _Folding:
    """Computes steps, in the order of the plan."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.constants: dict[int, Array] = dict(plan.constants)
        self.made: set[int] = set()
        self._kept = {o.buffer for o in plan.outputs.values()}
        counts: dict[int, int] = {}
        for step in plan.steps:
            for operand in step.writes:
                counts[operand.buffer] = counts.get(operand.buffer, 0) + 1
        self._shared = {b for b, n in counts.items() if n > 1}

    def folds(self, step: Step) -> bool:
        """Return whether a step is computed now."""
        if not self._is_constant(step):
            return False
        try:
            results = self._results(step)
        except (KnError, MemoryError):
            return False  # let it happen where somebody asks for the result
        budget = max(FREE_BYTES, GROWTH * self._source_bytes(step))
        if sum(r.nbytes for r in results) > budget:
            return False
        for operand, result in zip(step.writes, results, strict=True):
            self._store(operand, result)
        return True

    def _is_constant(self, step: Step) -> bool:
        op, buffers = step.op, self.plan.buffers
        if step.binds or not step.inputs or (op is not None and not op.pure):
            return False
        if isinstance(op, ControlOp) or any(o.buffer not in self.constants for o in step.inputs):
            return False
        for operand in step.writes:
            b = buffers[operand.buffer]
            known = all(isinstance(n, int) for n in (*operand.layout.numbers, b.numel))
            alone = b.number not in self._shared and b.number not in self._kept
            if not known or not alone or b.home is not Home.ARENA or b.dtype is None:
                return False
        operands = (*step.inputs, *step.writes)
        return all(isinstance(n, int) for o in operands for n in o.layout.numbers)

    def _source_bytes(self, step: Step) -> int:
        return sum(self.constants[b].nbytes for b in {o.buffer for o in step.inputs})

    def _results(self, step: Step) -> Sequence[Array]:
        context = RunContext({}, RandomStreams(0))
        results: list[Any] = []
        if step.node is not None:
            out = step.node.op.eval(context, *map(self._view, step.reads))
            results = list(out) if isinstance(out, tuple) else [out]
        if step.program is not None:
            arrays = [np.asarray(r) for r in results] + [self._view(o) for o in step.extras]
            results = step.program.evaluate(context, arrays)
        return [np.asarray(r) for r in results]

    def _view(self, operand: Operand) -> Array:
        flat = np.ascontiguousarray(self.constants[operand.buffer]).reshape(-1)
        return operand.layout.of(flat)

    def _store(self, operand: Operand, result: Array) -> None:
        """Put a result where readers of the buffer look for it."""
        b, layout = self.plan.buffers[operand.buffer], operand.layout
        sizes: Any = layout.sizes
        whole = layout.is_contiguous and layout.offset == 0 and layout.numel == b.numel
        count: Any = b.numel
        self.constants[b.number] = (
            np.array(np.broadcast_to(result, sizes), order="C").reshape(-1)
            if whole
            else np.zeros(count, result.dtype)
        )
        self.made.add(b.number)
        if not whole:
            self._view(operand)[...] = result
