"""What one run of a plan does on the host, whatever device carries out the rest."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kn_graph.context import RunContext
from kn_graph.dim import Symbol
from kn_graph.dim_facts import Constraint
from kn_graph.errors import InternalError, KnError, OutOfMemoryError
from kn_graph.random_bits import RandomStreams
from kn_plan.plan import Operand, Plan, Step

__all__ = ["PlanRun"]

Array = np.ndarray[Any, Any]


class PlanRun(RunContext, ABC):
    """One run of a plan; executors say where the elements of tensors are, and how bodies run.

    Attributes:
        plan: what runs.
        objects: what is no tensor of numbers, by buffer.
        pending: what the graph requires of sizes that have not shown yet.
    """

    def __init__(
        self,
        plan: Plan,
        env: Mapping[Symbol, int],
        objects: Mapping[int, Any],
        pending: Sequence[Constraint],
        streams: RandomStreams,
    ) -> None:
        super().__init__(dict(env), streams)
        self.plan, self.objects, self.pending = plan, dict(objects), list(pending)

    @abstractmethod
    def _elements(self, operand: Operand) -> Array:
        """Return the elements of a tensor; perhaps a copy."""

    @abstractmethod
    def _put(self, operand: Operand, result: Any) -> None:
        """Bring what the host computed to where a tensor is."""

    def _read(self, operand: Operand) -> Any:
        """Return a tensor or an object."""
        if self.plan.buffers[operand.buffer].dtype is None:
            return self.objects[operand.buffer]
        return self._elements(operand)

    def _operands(self, step: Step) -> list[Any]:
        """Return what the operation of a step reads."""
        return [self._read(o) for o in step.reads]

    def _host(self, step: Step) -> None:
        """Carry a step out on the host."""
        try:
            results = self._computed(step)
        except KnError as error:
            error.add_context(f"node {step.label} ({step.kind})")
            raise
        except MemoryError as error:
            raise OutOfMemoryError(f"node {step.label} ({step.kind}): {error}") from error
        for operand, result in zip(step.writes, results, strict=True):
            if self.plan.buffers[operand.buffer].dtype is None:
                self.objects[operand.buffer] = result
            else:
                self._put(operand, result)

    def _computed(self, step: Step) -> list[Any]:
        reads = self._operands(step)
        results: list[Any] = []
        if step.node is not None:
            out = step.node.op.eval(self, *reads)
            results = list(out) if isinstance(out, tuple) else [out]
            if step.binds:
                self.bind_shapes(step.node, results)
                if self.pending:
                    where, required = f"node {step.label}: ", self.plan.required
                    self.pending = required.check_constraints(self.pending, self.env, where)
        if step.program is not None:
            extras = [self._read(o) for o in step.extras]
            arrays = [np.asarray(r) for r in results] + extras
            results = [np.array(r) for r in step.program.evaluate(self, arrays)]
        return results

    def _checked(self, operand: Operand, shape: tuple[int, ...], result: Any) -> Array:
        """Return a result as an array.

        Raises:
            InternalError: it is not of the type and shape that the plan has room for.
        """
        b, found = self.plan.buffers[operand.buffer], np.asarray(result)
        assert b.dtype is not None
        if found.dtype != b.dtype.numpy or found.shape != shape:
            raise InternalError(
                f"a step gave {found.dtype}{list(found.shape)} for {b.name}, expected "
                f"{b.dtype}{list(shape)}. Please report this."
            )
        return found
