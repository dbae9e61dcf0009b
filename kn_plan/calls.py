"""What calls of kernels read and write, and why a step has none: the same for every device."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kn_graph.dim import Symbol
from kn_graph.errors import KnError
from kn_graph.ops.control import ControlOp
from kn_graph.ops.source import ReadSizes
from kn_plan.plan import Operand, Step

__all__ = [
    "DRAW_BYTES",
    "STATUS_BYTES",
    "Constant",
    "ControlStep",
    "Draw",
    "HostStep",
    "Pointer",
    "Refusal",
    "Status",
    "Table",
    "UnsupportedError",
]

Array = np.ndarray[Any, Any]

STATUS_BYTES = 24
"""Three int64; see `Status`."""

DRAW_BYTES = 24
"""Three uint64; see `Draw`."""


@dataclass(frozen=True)
class Constant:
    """An array that is made ready once, in the form that a kernel reads.

    Attributes:
        number: its place in the list of the lowering.
    """

    number: int


@dataclass(frozen=True, eq=False)
class Table:
    """What a kernel reads that depends on sizes in ways no arithmetic on sizes says.

    Attributes:
        make: computes it for numbers of symbols; called once for each binding.
    """

    make: Callable[[Mapping[Symbol, int]], Array]


@dataclass(frozen=True, eq=False)
class Status:
    """Three int64 that are 0 before a stage; the first is 1 behind it where something is wrong.

    Attributes:
        error: makes the error of what the kernel left and the numbers of symbols.
    """

    error: Callable[[Sequence[int], Mapping[Symbol, int]], KnError]


@dataclass(frozen=True, eq=False)
class Draw:
    """Three uint64 that say which random numbers are next: the seed, the stream, the first block.

    They are written before a stage runs, so that what is repeated draws other numbers each time.

    Attributes:
        stream: of the node.
        key: takes the place of the run's seed.
    """

    stream: int
    key: int | None


Pointer = Operand | Constant | Table | Status | Draw | None
"""What a call reads or writes. An operand may be a buffer of the plan or a temporary."""


# ---- steps without calls --------------------------------------------------------------------


class UnsupportedError(Exception):
    """There is no kernel for a step; becomes a `Refusal`."""


@dataclass(frozen=True)
class Refusal:
    """Why a step has no calls."""

    reason: str

    def segment(self, step: Step) -> HostStep | ControlStep:
        """Return what runs in their place."""
        if isinstance(step.op, ControlOp):
            return ControlStep(step)
        return HostStep(step, self.reason)


@dataclass(frozen=True)
class HostStep:
    """A step that the reference computes on the host.

    Attributes:
        step: what it is.
        reason: why there is no kernel.
    """

    step: Step
    reason: str

    @property
    def reads_sizes(self) -> bool:
        """Whether it only reads back what sizes are: no device can spare that."""
        return isinstance(self.step.op, ReadSizes)


@dataclass(frozen=True)
class ControlStep:
    """A step that runs other plans: a branch, a loop.

    Attributes:
        step: what it is.
    """

    step: Step
