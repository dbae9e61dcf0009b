"""What kernels over any strides share: axes put in order and joined, and what divides them."""

from __future__ import annotations

from collections.abc import Sequence

from kn_graph.dim import Dim, Size, ceildiv, evaluate, size_min, symbols_of
from kn_graph.types import Shape

__all__ = ["MAX_RANK", "MOST_BLOCKS", "blocks_for", "divides", "in_order", "joined", "typical"]

MAX_RANK = 14
"""How many axes kernels have room for among their arguments."""

MOST_BLOCKS = 1 << 16
"""Blocks of a grid whose threads go on where others stopped."""


def blocks_for(count: Size, threads: int, most: int = MOST_BLOCKS) -> Size:
    """Return how many blocks compute `count` elements; none for none."""
    return size_min(ceildiv(count, threads), most)


def typical(size: Size) -> int:
    """Return a number that a size may have: what orders by it is only ever a guess."""
    return evaluate(size, {s: max(s.lo, 64) for s in symbols_of(size)})


def in_order(strides: Shape) -> list[int]:
    """Return axes such that an operand is met as it lies in memory, the densest axis last."""
    return sorted(range(len(strides)), key=lambda a: -abs(typical(strides[a])))


def joined(sizes: Shape, *strides: Shape) -> tuple[Shape, tuple[Shape, ...]]:
    """Return as few axes as give the same elements in the same order, and at least one.

    Args:
        sizes: of the axes.
        strides: of each operand.
    """
    kept: list[tuple[Size, tuple[Size, ...]]] = []
    for axis, n in enumerate(sizes):
        steps = tuple(s[axis] for s in strides)
        if n == 1:
            continue
        if kept and all(a == n * b for a, b in zip(kept[-1][1], steps, strict=True)):
            kept[-1] = (kept[-1][0] * n, steps)
        else:
            kept.append((n, steps))
    kept = kept or [(1, (0,) * len(strides))]
    by_operand = tuple(tuple(steps[i] for _, steps in kept) for i in range(len(strides)))
    return tuple(n for n, _ in kept), by_operand


def divides(divisor: int, sizes: Sequence[Size]) -> bool:
    """Return whether every size is a multiple for sure."""
    return all(
        c % divisor == 0
        for size in sizes
        for c in ([c for _, c in size.terms] if isinstance(size, Dim) else [size])
    )
