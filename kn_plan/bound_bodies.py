"""Control-flow bodies as runs come to them: again and again, mostly with inputs of equal sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from kn_graph.binding import bind_symbols
from kn_graph.dim import Symbol
from kn_graph.graph import Graph
from kn_plan.recent import Recent

__all__ = ["BoundBodies", "passed_inputs"]

Ready = TypeVar("Ready")


def passed_inputs(body: Graph) -> list[int] | None:
    """Return which inputs a body hands on, if it does nothing else."""
    places = {v: i for i, v in enumerate(body.inputs)}
    if body.guards or body.constraints or not all(v in places for v in body.outputs.values()):
        return None
    return [places[v] for v in body.outputs.values()]


class BoundBodies(Recent[Ready]):
    """Bodies made ready for the shapes of their inputs and the sizes around them."""

    def __init__(self) -> None:
        super().__init__()
        self._passed: dict[Graph, list[int] | None] = {}

    def passed(self, body: Graph, inputs: Sequence[Any]) -> list[Any] | None:
        """Return the results of a body that only hands on inputs; None of others."""
        if body not in self._passed:
            self._passed[body] = passed_inputs(body)
        passed = self._passed[body]
        return None if passed is None else [inputs[i] for i in passed]

    def at(
        self,
        body: Graph,
        inputs: Sequence[Any],
        env: Mapping[Symbol, int],
        make: Callable[[Mapping[Symbol, int]], Ready],
    ) -> Ready:
        """Return a body for its inputs, kept for the next time.

        Args:
            body: what runs.
            inputs: arrays, and objects without a shape.
            env: numbers of the symbols around it.
            make: makes it ready, for these numbers and those that its inputs show.
        """
        shapes = [getattr(x, "shape", None) for x in inputs]
        key = (body, *shapes, *env.items())
        found = self.get(key)
        if found is None:
            found = make(bind_symbols(body.inputs, list(inputs), env))
            if None not in shapes:
                self.keep(key, found)
        return found
