"""What control flow only hands on: that need not leave the device."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from typing import Any

from kn_graph.op import Op
from kn_graph.ops.control import If, Loop, Scan

__all__ = ["HandedOn", "handed_on"]

MANY = 1 << 30
"""More than any operation has operands."""


@dataclass(frozen=True)
class HandedOn:
    """What an operation does not look at.

    Attributes:
        operands: by number.
        results: of its bodies, by number.
    """

    operands: Container[int]
    results: Container[int]


def handed_on(op: Op | None) -> HandedOn:
    """Return what an operation hands on: nothing, but for control flow."""
    found = TABLE.get(type(op))
    return HandedOn((), ()) if found is None else found(op)


def _if(op: If) -> HandedOn:
    return HandedOn(range(1, MANY), range(MANY))


def _loop(op: Loop) -> HandedOn:
    """All but the limits; all but the condition and the rows, which the host stacks."""
    return HandedOn(range(op.has_trip + op.has_condition, MANY), range(1, 1 + op.carried))


def _scan(op: Scan) -> HandedOn:
    """What is carried; the host cuts the tensors into slices and stacks the rows."""
    first = int(op.has_length)
    return HandedOn(range(first, first + op.carried), range(op.carried))


TABLE: Mapping[type[Any], Callable[[Any], HandedOn]] = {If: _if, Loop: _loop, Scan: _scan}
