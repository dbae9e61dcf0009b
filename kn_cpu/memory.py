"""Memory that kernels read and write."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["aligned", "as_bytes", "dense"]

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
    return np.require(x, requirements=["C_CONTIGUOUS", "ALIGNED"])
