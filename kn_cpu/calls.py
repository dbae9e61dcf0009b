"""Calls of native kernels over symbolic sizes: what the steps of a plan become."""

from __future__ import annotations

from dataclasses import dataclass

from kn_cpu.axes import KernelCall
from kn_graph.dim import Size
from kn_plan.calls import Pointer

__all__ = ["NativeCall"]


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
