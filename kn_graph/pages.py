"""Memory that is not needed any more goes back to the system."""

from __future__ import annotations

import ctypes
import mmap
from functools import cache
from typing import Any

import numpy as np

__all__ = ["OwnPages", "forget_pages", "lose_pages", "trim_heap"]

Array = np.ndarray[Any, Any]

LEAST = 16 * mmap.PAGESIZE
"""Bytes below which asking the system is not worth it."""

LEAST_FREED = 2 << 20
"""Bytes below which the heap is left as it is."""


class OwnPages(mmap.mmap):
    """Memory that this library has asked for; its contents may be lost when it says so."""


def forget_pages(x: Array) -> None:
    """Let the system take back the memory of a part of a file; reading it again is still right.

    What has been read of a mapped file counts as memory of this process until somebody else needs
    it. Does nothing for other arrays, nor where a mapping can be written to: what a caller has
    written to pages of his own would be gone.
    """
    mapping = _mapping(x)
    if mapping is not None:
        with memoryview(mapping) as content:
            is_of_file = content.readonly
        if is_of_file:
            _give_back(mapping, x)


def lose_pages(x: Array) -> None:
    """Give back memory of `OwnPages` that nobody reads again; does nothing for other arrays."""
    mapping = _mapping(x)
    if isinstance(mapping, OwnPages):
        _give_back(mapping, x)


def _mapping(x: Array) -> mmap.mmap | None:
    """Return the mapping that an array lies in without gaps, if it is worth asking the system."""
    if x.nbytes < LEAST or not hasattr(mmap, "MADV_DONTNEED") or not x.flags.c_contiguous:
        return None
    base: Any = x
    while isinstance(base, np.ndarray):
        base = base.base
    if isinstance(base, memoryview):
        base = base.obj
    return base if isinstance(base, mmap.mmap) else None


def _give_back(mapping: mmap.mmap, x: Array) -> None:
    offset = x.ctypes.data - np.frombuffer(mapping, np.uint8, 1).ctypes.data
    first = -(-offset // mmap.PAGESIZE) * mmap.PAGESIZE
    length = (offset + x.nbytes - first) // mmap.PAGESIZE * mmap.PAGESIZE
    if length > 0:
        mapping.madvise(mmap.MADV_DONTNEED, first, length)


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
