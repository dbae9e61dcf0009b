"""Memory that kernels read and write."""

from __future__ import annotations

from typing import Any

import numpy as np

from kn_plan.arena import round_up

__all__ = ["Block", "BlockPool", "aligned", "as_bytes", "dense"]

Array = np.ndarray[Any, Any]

CACHE_LINE = 64


def aligned(nbytes: int) -> Array:
    """Return zeroed bytes that begin at a cache line."""
    raw = np.zeros(nbytes + CACHE_LINE, np.uint8)
    start = -raw.ctypes.data % CACHE_LINE
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
