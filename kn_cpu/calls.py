"""Calls of native kernels over symbolic sizes: what the steps of a plan become."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kn_cpu.axes import KernelCall
from kn_graph.dim import Size, Symbol
from kn_graph.errors import KnError
from kn_plan.plan import Operand

__all__ = [
    "NativeCall",
    "PackedConstant",
    "Pointer",
    "Refusal",
    "Status",
    "Table",
    "UnsupportedError",
]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class PackedConstant:
    """A constant in the order that a kernel reads it in.

    Attributes:
        number: its place in `Lowering.packed`.
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
    """Three int64 that are 0 before a run, and tell of an error behind it.

    Attributes:
        error: makes the error of what the kernel left and the numbers of symbols; None for none.
    """

    error: Callable[[Sequence[int], Mapping[Symbol, int]], KnError | None]


Pointer = Operand | PackedConstant | Table | Status | None
"""What a kernel reads or writes. An operand may be a buffer of the plan or a temporary."""


@dataclass(frozen=True)
class NativeCall:
    """One call of a kernel.

    Attributes:
        family: which table it is in.
        call: name and numbers.
        pointers: what it reads and writes.
        guard: 1 where it runs, 0 where not: of alternatives, sizes choose.
    """

    family: str
    call: KernelCall
    pointers: tuple[Pointer, ...]
    guard: Size = 1


@dataclass(frozen=True)
class Refusal:
    """Why a step runs on the host."""

    reason: str


class UnsupportedError(Exception):
    """There is no kernel for a step; becomes a `Refusal`."""
