"""What the executor asks of a device: memory, launches, libraries. There is no other way to one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from kn_cuda.calls import Request
from kn_cuda.source import KernelSource

__all__ = ["ALIGNMENT", "Backend", "Grid", "Memory"]

Array = np.ndarray[Any, Any]
Ints = np.ndarray[Any, np.dtype[np.int64]]
Grid = tuple[int, int, int]

ALIGNMENT = 256
"""Bytes that every piece of memory begins at a multiple of."""


@dataclass(frozen=True, eq=False)
class Memory:
    """A piece of device memory, which is there as long as this is.

    Attributes:
        address: of the first byte, on the device.
        nbytes: how many there are.
        owner: what keeps it.
    """

    address: int
    nbytes: int
    owner: Any


class Backend(Protocol):
    """A device. Calls happen in the order in which they are made; several threads may make some."""

    @property
    def name(self) -> str:
        """What texts call it."""

    @property
    def arch(self) -> str:
        """What kernels are compiled for."""

    def prepare(self, kernels: Sequence[KernelSource]) -> int:
        """Compile and load kernels that are not loaded yet; return how many these are.

        Raises:
            CompileError: one does not compile.
        """

    def allocate(self, nbytes: int) -> Memory:
        """Return memory; what is in it does not matter.

        Raises:
            OutOfMemoryError: there is not enough.
        """

    def write(self, address: int, data: Array) -> None:
        """Copy the bytes of a contiguous host array to the device."""

    def read(self, address: int, nbytes: int) -> Array:
        """Return a copy of device memory as uint8 [nbytes], behind all calls so far."""

    def zero(self, address: int, nbytes: int) -> None:
        """Set bytes to 0."""

    def launch(
        self,
        kernel: KernelSource,
        grid: Grid,
        block: Grid,
        shared: int,
        pointers: Ints,
        numbers: Array,
    ) -> None:
        """Launch a kernel; the grid is not empty.

        Args:
            kernel: one that is prepared.
            grid: blocks.
            block: threads of a block.
            shared: bytes of dynamic shared memory.
            pointers: int64, the struct of the kernel's pointers.
            numbers: int32 or int64, the struct of its numbers.
        """

    def library(self, request: Request, pointers: Ints, numbers: Ints) -> int:
        """Have a library do something; return how many kernels that launches.

        Args:
            request: what.
            pointers: addresses, as the request says.
            numbers: sizes and strides, as the request says.
        """

    def available_bytes(self) -> int:
        """Return how much memory could be allocated."""
