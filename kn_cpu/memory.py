"""Memory that kernels read and write."""

from __future__ import annotations

import mmap
from contextlib import suppress
from typing import Any

import numpy as np

from kn_graph.pages import OwnPages
from kn_plan.arena import round_up

__all__ = ["Block", "BlockPool", "ConstantMemory", "aligned", "as_bytes", "dense"]

Array = np.ndarray[Any, Any]

CACHE_LINE = 64

HUGE_PAGE = 2 << 20
"""Bytes of a page that takes one entry of the processor's page tables, where 512 are usual.

Weights are read once in a run, and tiles of a convolution go to dozens of places: looking up pages
takes up to a tenth of a run of ResNet-50, more in a virtual machine. NumPy asks for huge pages only
in arrays of 4 MB, and gets them where these happen to begin.
"""


def aligned(nbytes: int) -> Array:
    """Return zeroed bytes that begin at a cache line, and at a huge page if they fill one.

    Raises:
        MemoryError: there is no room for them.
    """
    if nbytes >= HUGE_PAGE and hasattr(mmap, "MADV_HUGEPAGE"):
        return _mapped(nbytes)
    raw = np.zeros(nbytes + CACHE_LINE, np.uint8)
    start = -raw.ctypes.data % CACHE_LINE
    return raw[start : start + nbytes]


def _mapped(nbytes: int) -> Array:
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    try:
        area = OwnPages(-1, nbytes + HUGE_PAGE, flags=flags)
    except OSError as error:
        raise MemoryError(f"no room for {nbytes:,} bytes: {error}") from error
    raw = np.frombuffer(area, np.uint8)
    start = -raw.ctypes.data % HUGE_PAGE
    with suppress(OSError):  # a kernel without huge pages
        # whole ones: the rest would take memory that nobody uses
        area.madvise(mmap.MADV_HUGEPAGE, start, nbytes // HUGE_PAGE * HUGE_PAGE)
    return raw[start : start + nbytes]


def as_bytes(x: Array) -> Array:
    """Return the bytes of an array in row-major order; of its own memory where that is so."""
    return dense(x).reshape(-1).view(np.uint8)


def dense(x: Array) -> Array:
    """Return an array in row-major order that is aligned; weights may lie anywhere in a file."""
    flags = x.flags
    if flags.c_contiguous and flags.aligned:
        return x
    return np.require(x, requirements=["C_CONTIGUOUS", "ALIGNED"])


class Block:
    """Memory of one run at a time.

    Attributes:
        data: the bytes; what is in them does not matter.
        nbytes: how many there are.
        address: of the first.
    """

    __slots__ = ("address", "data", "nbytes")

    def __init__(self, nbytes: int) -> None:
        self.data = aligned(nbytes)
        self.nbytes, self.address = nbytes, int(self.data.ctypes.data)


PIECE = 32 << 20


class ConstantMemory:
    """Memory for constants that live as long as a prepared graph.

    They lie behind one another in large pieces, so that small ones share huge pages. Only what has
    been taken of a piece counts as memory, up to the end of a huge page. The first piece has none:
    small graphs need less.
    """

    def __init__(self) -> None:
        self._left = np.zeros(0, np.uint8)
        self._piece = HUGE_PAGE - CACHE_LINE

    def take(self, nbytes: int) -> Array:
        """Return zeroed bytes that begin at a cache line.

        Raises:
            MemoryError: there is no room for them.
        """
        end = -(-nbytes // CACHE_LINE) * CACHE_LINE
        if end > self._left.nbytes:
            size = self._piece if end <= self._piece else max(end, PIECE)
            self._left, self._piece = aligned(-(-size // CACHE_LINE) * CACHE_LINE), PIECE
        found, self._left = self._left[:nbytes], self._left[end:]
        return found


KEPT_BLOCKS = 4
"""How many blocks are kept for the next runs."""


class BlockPool:
    """Lends memory to runs; safe among threads, since lists are."""

    def __init__(self) -> None:
        self._free: list[Block] = []

    def take(self, nbytes: int) -> Block:
        """Return a block with room for some bytes; one that is too small is given up for it."""
        try:
            block = self._free.pop()
        except IndexError:
            return Block(round_up(nbytes))
        return block if block.nbytes >= nbytes else Block(round_up(nbytes))

    def give(self, block: Block) -> None:
        """Take a block back."""
        if len(self._free) < KEPT_BLOCKS:
            self._free.append(block)
