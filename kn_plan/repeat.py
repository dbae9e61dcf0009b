"""Axes that are repeated have size 1, or the size that they get: nothing else may run.

A layout of other sizes would point behind the end of its buffer. The reference finds that when it
repeats; a plan repeats nowhere, so it has to look before it runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from kn_graph.dim import Symbol, evaluate, symbols_of
from kn_graph.errors import ExecutionError
from kn_graph.ops.layout import Broadcast
from kn_graph.types import Shape
from kn_graph.value import Node
from kn_plan.access import is_layout

__all__ = ["Repeat", "repeats_of"]


@dataclass(frozen=True)
class Repeat:
    """One operation that repeats axes of symbolic sizes.

    Attributes:
        label: the ONNX node that it stands for.
        have: the sizes of what it repeats.
        want: the sizes that it gets.
    """

    label: str
    have: Shape
    want: Shape

    @cached_property
    def symbols(self) -> frozenset[Symbol]:
        """What has to be known for a check."""
        return frozenset().union(*map(symbols_of, (*self.have, *self.want)))

    def holds(self, env: Mapping[Symbol, int]) -> bool:
        """Return whether the sizes fit."""
        pairs = zip(self.have, self.want, strict=True)
        return all(evaluate(a, env) in (1, evaluate(b, env)) for a, b in pairs)

    def check(self, env: Mapping[Symbol, int]) -> None:
        """Compare the sizes.

        Raises:
            ExecutionError: one is neither 1 nor what it should be.
        """
        if not self.holds(env):
            have, want = ([evaluate(s, env) for s in shape] for shape in (self.have, self.want))
            raise ExecutionError(
                f"node {self.label} (Broadcast): cannot broadcast {have} to {want}"
            )


def repeats_of(nodes: Iterable[Node]) -> tuple[Repeat, ...]:
    """Return the repetitions of which no size says that they are possible."""
    found: dict[tuple[Shape, Shape], Repeat] = {}
    for node in nodes:
        if isinstance(node.op, Broadcast) and is_layout(node):
            have, want = node.operands[0].shape, node.op.shape
            if any(a not in (1, b) for a, b in zip(have, want, strict=True)):
                found.setdefault((have, want), Repeat(node.label, have, want))
    return tuple(found.values())
