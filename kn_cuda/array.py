"""Arrays that stay on the device, between calls and between libraries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kn_cuda.backend import Backend, Memory
from kn_graph.dtype import DType

__all__ = ["DeviceArray", "lies_on_gpu"]

Array = np.ndarray[Any, Any]

GPU_KINDS = (2, 13)
"""DLPack's numbers of memory of CUDA: ordinary, and managed."""


@dataclass(frozen=True, eq=False)
class DeviceArray:
    """An array in device memory, in row-major order.

    `torch.from_dlpack(x)`, `cupy.from_dlpack(x)` and whatever reads `__cuda_array_interface__` take
    it without a copy.

    Attributes:
        memory: where it lies.
        dtype: of the elements.
        shape: sizes of the axes.
        backend: the device.
    """

    memory: Memory
    dtype: DType
    shape: tuple[int, ...]
    backend: Backend

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.numpy.itemsize

    def numpy(self) -> Array:
        """Return a copy in host memory, behind all calls so far."""
        data = self.backend.read(self.memory.address, self.nbytes) if self.nbytes else b""
        return np.frombuffer(data, self.dtype.numpy).reshape(self.shape)

    def stand_in(self) -> Array:
        """Return an array of the same type and shape that takes no memory and means nothing."""
        return np.broadcast_to(np.zeros((), self.dtype.numpy), self.shape)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Where the array lies, for libraries on the same device.

        Raises:
            AttributeError: the device is no GPU.
        """
        found: dict[str, Any] = self.backend.exported(self, lambda x: x.__cuda_array_interface__)
        return found

    def __dlpack__(self, **options: Any) -> Any:
        """Return a DLPack capsule on the same memory."""
        return self.backend.exported(self, lambda x: x.__dlpack__(**options))

    def __dlpack_device__(self) -> Any:
        """Return DLPack's kind and number of the device."""
        return self.backend.exported(self, lambda x: x.__dlpack_device__())

    def __repr__(self) -> str:
        """Return type, shape and device."""
        return f"DeviceArray({self.dtype}{list(self.shape)} on {self.backend.name})"


def lies_on_gpu(x: Any) -> bool:
    """Return whether another library has an array on a GPU."""
    if hasattr(x, "__dlpack_device__"):
        return int(x.__dlpack_device__()[0]) in GPU_KINDS
    return hasattr(x, "__cuda_array_interface__")
