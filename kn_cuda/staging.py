"""Ways between arrays of the host and one piece of device memory, through pinned memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from kn_cuda.array import DeviceArray
from kn_graph.dtype import DType

if TYPE_CHECKING:
    from kn_cuda.executor import CudaExecutor

__all__ = ["Staged", "Staging"]

Array = np.ndarray[Any, Any]


class Staged:
    """Arrays of the host in pinned memory, each beside one of the device.

    Attributes:
        views: the arrays of the host, by name.
    """

    def __init__(self, executor: CudaExecutor, arrays: Mapping[str, DeviceArray]) -> None:
        """Allocate.

        Args:
            executor: whose device and counters are used.
            arrays: what `CudaExecutor.arrays` made: they lie in one piece of memory.
        """
        self.executor, self.arrays = executor, dict(arrays)
        places = [x.memory.address for x in arrays.values()]
        self.start = min(places, default=0)
        ends = [x.memory.address + x.nbytes for x in arrays.values()]
        self.pinned = executor.backend.pinned(max(ends, default=0) - self.start)
        self.views = {name: self._view(x) for name, x in arrays.items()}

    def _view(self, x: DeviceArray) -> Array:
        first = x.memory.address - self.start
        part = self.pinned[first : first + x.nbytes]
        return part.view(x.dtype.numpy).reshape(x.shape)

    def begin(self) -> None:
        """Begin to bring everything to the host, in one copy."""
        if self.pinned.nbytes:
            self.executor.backend.fetch(self.start, self.pinned)
            self.executor.proof.downloads += self.pinned.nbytes

    def fetch(self) -> dict[str, Array]:
        """Bring everything to the host, and wait for it."""
        self.begin()
        self.executor.backend.synchronize()
        return self.views


class Staging:
    """Inputs that the host gives: what has changed is uploaded, in one copy."""

    def __init__(self, executor: CudaExecutor, given: Mapping[str, Array]) -> None:
        """Make room on both sides.

        Args:
            executor: whose device and counters are used.
            given: arrays that are looked at for each upload.
        """
        self._given = dict(given)
        kinds = {n: (DType.from_numpy(x.dtype), x.shape) for n, x in given.items()}
        self.arrays = executor.arrays(kinds)
        self._staged = Staged(executor, self.arrays)
        self._is_first = True

    def forget(self, names: Iterable[str]) -> None:
        """Look at some inputs no more."""
        for name in names:
            self._given.pop(name, None)

    def upload(self) -> None:
        """Bring what has changed to the device, with what lies between."""
        executor, staged = self._staged.executor, self._staged
        changed = [n for n, x in self._given.items() if self._has_changed(n, x)]
        changed = [n for n in changed if self._given[n].nbytes]
        if changed:
            executor.backend.synchronize()  # the last upload may still read the pinned memory
            for name in changed:
                np.copyto(staged.views[name], self._given[name])
            places = [self.arrays[n] for n in changed]
            low = min(x.memory.address for x in places)
            high = max(x.memory.address + x.nbytes for x in places)
            executor.backend.write(low, staged.pinned[low - staged.start : high - staged.start])
            executor.proof.uploads += high - low
        self._is_first = False

    def _has_changed(self, name: str, x: Array) -> bool:
        """Compare bits, so that a NaN is equal to itself."""
        if self._is_first:
            return True
        there, here = _bits(self._staged.views[name]), _bits(x)
        return not np.array_equal(there, here)


def _bits(x: Array) -> Array:
    return np.ascontiguousarray(x).reshape(-1).view(np.uint8)
