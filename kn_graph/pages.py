"""Memory that is not needed any more goes back to the system."""

from __future__ import annotations

import ctypes
import mmap
from functools import cache
from typing import Any

import numpy as np

__all__ = ["forget_pages", "trim_heap"]

Array = np.ndarray[Any, Any]

LEAST = 16 * mmap.PAGESIZE
"""Bytes below which asking the system is not worth it."""

LEAST_FREED = 2 << 20
"""Bytes below which the heap is left as it is."""


def forget_pages(x: Array) -> None:
    """Let the system take back the memory of a part of a file; reading it again is still right.

    What has been read of a mapped file counts as memory of this process until somebody else needs
    it. Of mapped memory that is no file the contents are lost. Does nothing for other arrays.
    """
    if x.nbytes < LEAST or not hasattr(mmap, "MADV_DONTNEED"):
        return
    base: Any = x
    while isinstance(base, np.ndarray):
        base = base.base
    if isinstance(base, memoryview):
        base = base.obj
    if not isinstance(base, mmap.mmap) or not x.flags.c_contiguous:
        return
    offset = x.ctypes.data - np.frombuffer(base, np.uint8, 1).ctypes.data
    first = -(-offset // mmap.PAGESIZE) * mmap.PAGESIZE
    length = (offset + x.nbytes - first) // mmap.PAGESIZE * mmap.PAGESIZE
    if length > 0:
        base.madvise(mmap.MADV_DONTNEED, first, length)


@cache
def _malloc_trim() -> Any:
    try:
        return ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError, TypeError):
        return None  # another libc


def trim_heap(weights: int) -> None:
    """Give back what loading and optimizing have freed, which the allocator would keep.

    Takes less than a millisecond; does nothing where the C library has no such function.

    Args:
        weights: bytes of weights; what was freed is about as much. Little is not worth the time.
    """
    trim = _malloc_trim() if weights >= LEAST_FREED else None
    if trim is not None:
        trim(0)
