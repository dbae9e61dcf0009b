"""What the steps of a plan become: launches of kernels and calls of libraries, as data.

Everything is over symbolic sizes, and nothing here knows a device.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kn_cuda.conv_graph import ConvGraph
from kn_cuda.options import Math
from kn_cuda.source import KernelSource
from kn_graph.dim import Size
from kn_graph.dtype import DType
from kn_plan.calls import Pointer

__all__ = ["Call", "Gemm", "Given", "Launch", "LibraryCall", "Request", "Rounds"]


@dataclass(frozen=True, eq=False)
class Rounds:
    """Neighbouring calls that happen again and again, in turn: once for each step of a sequence.

    Kernels with a number called `round` are told which time it is, from 0 on.

    Attributes:
        times: how often.
    """

    times: Size


@dataclass(frozen=True)
class Given:
    """A number that a kernel has in the place of a pointer, so that it serves for others as well.

    Attributes:
        number: a float32, or a whole number of at most 32 bits.
    """

    number: float | int

    @property
    def bits(self) -> int:
        """What stands where an address would, the number in its low bytes."""
        if isinstance(self.number, int):
            return self.number
        return int(np.float32(self.number).view(np.int32))


@dataclass(frozen=True)
class Launch:
    """One launch of a kernel; it does not happen where the grid is empty.

    Attributes:
        kernel: what is launched.
        pointers: what it reads and writes, and numbers of its programs, in the order of the
            kernel's pointers.
        numbers: sizes and strides, in the order of the kernel's numbers.
        grid: blocks.
        block: threads of a block.
        shared: bytes of dynamic shared memory.
        guard: 1 where it runs, 0 where not: of alternatives, sizes choose.
        extent: a bound of what the kernel counts to, where neither a number nor a buffer is as
            large; decides with them whether indices have 32 or 64 bits.
        rounds: what is repeated with the calls beside it; None for what happens once.
    """

    kernel: KernelSource
    pointers: tuple[Pointer | Given, ...]
    numbers: tuple[Size, ...]
    grid: tuple[Size, Size, Size]
    block: tuple[int, int, int]
    shared: Size = 0
    guard: Size = 1
    extent: Size = 0
    rounds: Rounds | None = None

    @property
    def title(self) -> str:
        """What counters call it."""
        return self.kernel.entry


@dataclass(frozen=True)
class Gemm:
    """c = a b for matrices, as a library computes it.

    Rows or columns of a and b lie side by side, rows of c do. The numbers of a call are, in this
    order: m, n, k, the step from line to line of a, b and c, the size of the outer batch and its
    strides in a, b and c, the size of the inner batch and its strides.

    Attributes:
        dtype: of a and b.
        out: of c.
        a_turned: whether it is the columns of a that lie side by side.
        b_turned: likewise.
        math: how float32 is multiplied: strictly, or rounded to TF32 first.
    """

    dtype: DType
    out: DType
    a_turned: bool
    b_turned: bool
    math: Math = "fp32"

    title = "gemm"


Request = Gemm | ConvGraph
"""What is asked of a library; `Backend.library` has a function for each."""


@dataclass(frozen=True)
class LibraryCall:
    """One call of a library; it does not happen where `work` is 0.

    Attributes:
        request: what is asked.
        pointers: what it reads and writes, as the request says.
        numbers: sizes and strides, as the request says.
        work: how many elements come out.
        guard: 1 where it runs, 0 where not.
        rounds: see `Launch`.
    """

    request: Request
    pointers: tuple[Pointer, ...]
    numbers: tuple[Size, ...]
    work: Size
    guard: Size = 1
    rounds: Rounds | None = None

    @property
    def title(self) -> str:
        """What counters call it."""
        return self.request.title


Call = Launch | LibraryCall
