"""What the executor asks of a device: memory, launches, libraries. There is no other way to one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from kn_cuda.calls import Request
from kn_cuda.source import KernelSource

if TYPE_CHECKING:
    from kn_cuda.array import DeviceArray

__all__ = ["ALIGNMENT", "VECTOR_BYTES", "Backend", "DeviceCall", "Grid", "Memory"]

Array = np.ndarray[Any, Any]
Ints = np.ndarray[Any, np.dtype[np.int64]]
Grid = tuple[int, int, int]

ALIGNMENT = 256
"""Bytes that every piece of memory begins at a multiple of."""

VECTOR_BYTES = 16
"""Bytes that kernels and libraries move at once: memory of others begins at a multiple of these."""

DeviceCall = Callable[[], object]
"""A method of a backend with its arguments, such as `partial(backend.zero, address, nbytes)`."""


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

    def fetch(self, address: int, into: Array) -> None:
        """Begin to copy device memory; it is there behind `synchronize`.

        Args:
            address: where it begins.
            into: uint8 of `pinned`, as many as are copied.
        """

    def copy(self, to: int, source: int, nbytes: int) -> None:
        """Copy device memory to an address that it does not overlap."""

    def pinned(self, nbytes: int) -> Array:
        """Return host memory, uint8 [nbytes], which the device reads and writes by itself."""

    def synchronize(self) -> None:
        """Wait for all calls so far."""

    def wait(self, mark: Any) -> None:
        """Wait until the device has come to a mark; see `mark`."""

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

    def capture(self, calls: Sequence[DeviceCall]) -> DeviceCall | None:
        """Return what makes calls again, all at once; None where the device cannot.

        Args:
            calls: launches, libraries, zeros and copies, each made before; addresses and numbers
                stay what they are.
        """

    def mark(self) -> Any:
        """Note when the device comes here; see `seconds`."""

    def seconds(self, start: Any, end: Any) -> float:
        """Return the time between two marks, behind `synchronize`."""

    @property
    def clock(self) -> str:
        """What measures `seconds`."""

    def adopt(self, x: Any) -> DeviceArray | None:
        """Return an array that lies on this device already; None for others.

        It is copied on the device where it is not in row-major order, or begins at no multiple of
        `VECTOR_BYTES`.

        Args:
            x: one of ours, or with DLPack or `__cuda_array_interface__`.
        """

    def exported(self, array: DeviceArray, use: Callable[[Any], Any]) -> Any:
        """Hand an array of the device's own library, on the same memory, to a function.

        Args:
            array: one of ours.
            use: is called in the order of the stream.
        """

    def available_bytes(self) -> int:
        """Return how much memory could be allocated."""
