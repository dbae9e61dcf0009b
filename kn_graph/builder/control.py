"""Building methods of control flow, and of functions that run on the host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kn_graph.builder.base import Builder
from kn_graph.dim import Size, size_max
from kn_graph.errors import ShapeError
from kn_graph.ops.control import If, Loop, Scan
from kn_graph.ops.host import HostCall

if TYPE_CHECKING:
    from kn_graph.graph import Graph
    from kn_graph.value import Value

__all__ = ["ControlBuilder"]

ANY_INTEGER = -(2**63)


class ControlBuilder(Builder):
    """See the module. Bodies are sealed graphs whose `parent` is this graph."""

    def if_else(
        self, condition: Value, then_body: Graph, else_body: Graph, captured: Sequence[Value] = ()
    ) -> tuple[Value, ...]:
        """Return the outputs of one of two bodies; `captured` are the inputs of both."""
        return self.push_all(If(then_body, else_body), condition, *captured)

    def loop(
        self,
        body: Graph,
        initial: Sequence[Value],
        *,
        trip: Value | None = None,
        condition: Value | None = None,
        captured: Sequence[Value] = (),
    ) -> tuple[Value, ...]:
        """Run a body again and again; see `Loop`.

        Args:
            body: (iteration, condition, carried.., captured..) -> (condition, carried.., rows..).
            initial: what is carried, before the first iteration.
            trip: the largest number of iterations; any by default.
            condition: whether to start; without it the body's condition does not matter.
            captured: further inputs of the body.

        Returns:
            The last values of what is carried, then the stacked rows.

        Raises:
            ShapeError: nothing would ever end the loop.
        """
        scans = len(body.outputs) - 1 - len(initial)
        if condition is not None and _goes_on(body, condition):
            condition = None  # it is always true
        count = self._iterations(trip, condition)
        if count is not None:
            op = Loop(body, len(initial), scans, False, False, count)
            return self.push_all(op, *initial, *captured)
        if condition is None and trip is None:
            raise ShapeError("nothing ends the loop: no trip count, and a condition always true")
        op = Loop(body, len(initial), scans, trip is not None, condition is not None)
        limits = [v for v in (trip, condition) if v is not None]
        return self.push_all(op, *limits, *initial, *captured)

    def _iterations(self, trip: Value | None, condition: Value | None) -> Size | None:
        """Return the number of iterations where it is known beforehand."""
        if condition is not None:
            return 0 if _truth(condition) is False else None
        if trip is None:
            return None
        (number,) = self.read_sizes(trip, name="trip", lo=ANY_INTEGER)
        return size_max(0, number)

    def scan(
        self,
        body: Graph,
        initial: Sequence[Value],
        tensors: Sequence[Value],
        *,
        length: Value | None = None,
        captured: Sequence[Value] = (),
    ) -> tuple[Value, ...]:
        """Run a body for each slice of tensors along axis 0; see `Scan`."""
        op = Scan(body, len(initial), len(tensors), length is not None)
        return self.push_all(
            op, *(() if length is None else (length,)), *initial, *tensors, *captured
        )

    def host_call(self, name: str, *operands: Value, **attributes: Any) -> tuple[Value, ...]:
        """Call a function of `kn_graph.hosted` by name."""
        return self.push_all(HostCall(name, tuple(attributes.items())), *operands)


def _truth(value: Value) -> bool | None:
    content = value.content
    truth = content.item() if content is not None and content.size == 1 else None
    return truth if isinstance(truth, bool) else None


def _goes_on(body: Graph, condition: Value) -> bool:
    """Return whether a loop that starts with a condition never ends by it."""
    after = next(iter(body.outputs.values()), None)
    if _truth(condition) is not True or after is None:
        return False
    return after is body.inputs[1] or _truth(after) is True
