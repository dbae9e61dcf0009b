"""Memory of the host in place of a GPU's, which tells of what is done beside it.

Each piece lies between two fences, pages that nobody may touch, and directly at one of them: at
the front one, so that nothing in front of it can be read, or at the back one. What is between it
and the other fence holds a pattern, as it does itself at first.
"""

from __future__ import annotations

import ctypes
import mmap
from functools import cache
from typing import Any
from weakref import WeakSet, finalize

import numpy as np

from kn_cuda.backend import VECTOR_BYTES, Memory
from kn_graph.errors import InternalError, OutOfMemoryError

__all__ = ["FencedMemory"]

Array = np.ndarray[Any, Any]

FENCE_BYTES = 16 * mmap.PAGESIZE


class FencedMemory:
    """Allocates memory between fences.

    Attributes:
        pattern: fills fresh memory and what is around it.
        at_end: whether memory ends at its back fence, else it begins at the front one.
    """

    def __init__(self, pattern: int, *, at_end: bool) -> None:
        self.pattern, self.at_end = pattern, at_end
        self._pieces: WeakSet[Memory] = WeakSet()
        self._damaged: list[int] = []

    def allocate(self, nbytes: int) -> Memory:
        """Return memory; its address is a multiple of `VECTOR_BYTES`.

        Raises:
            OutOfMemoryError: the system has not as much.
        """
        inside = max(1, -(-nbytes // mmap.PAGESIZE)) * mmap.PAGESIZE
        try:
            pages = mmap.mmap(-1, inside + 2 * FENCE_BYTES, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except OSError as error:
            raise OutOfMemoryError(f"no {nbytes:,} bytes of host memory: {error}") from None
        whole = np.frombuffer(pages, np.uint8)
        for fence in (0, FENCE_BYTES + inside):
            _forbid(whole.ctypes.data + fence, FENCE_BYTES)
        raw = whole[FENCE_BYTES : FENCE_BYTES + inside]
        raw.fill(self.pattern)
        start = inside - -(-nbytes // VECTOR_BYTES) * VECTOR_BYTES if self.at_end else 0
        memory = Memory(raw.ctypes.data + start, nbytes, raw)
        self._pieces.add(memory)
        finalize(memory, self._look, raw, start, nbytes).atexit = False
        return memory

    def check(self) -> None:
        """Look whether something was written beside memory, also such that was given back.

        Raises:
            InternalError: it was.
        """
        for memory in list(self._pieces):
            start = memory.address - memory.owner.ctypes.data
            self._look(memory.owner, start, memory.nbytes)
        if self._damaged:
            nbytes = self._damaged[0]
            self._damaged.clear()
            raise InternalError(f"something was written beside {nbytes} bytes. Please report this.")

    def _look(self, raw: Array, start: int, nbytes: int) -> None:
        """Note the size of memory around which something was written, and mend that."""
        around = (raw[:start], raw[start + nbytes :])
        if any((part != self.pattern).any() for part in around):
            self._damaged.append(nbytes)
            for part in around:
                part.fill(self.pattern)


@cache
def _library() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _forbid(address: int, nbytes: int) -> None:
    """End whoever touches pages.

    Raises:
        OutOfMemoryError: the system keeps no more pieces apart.
    """
    if _library().mprotect(ctypes.c_void_p(address), ctypes.c_size_t(nbytes), 0):
        code = ctypes.get_errno()
        raise OutOfMemoryError(f"no fence can be put around memory of the host: error {code}")
