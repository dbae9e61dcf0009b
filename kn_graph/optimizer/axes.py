"""How axes correspond across reshapes and permutations."""

from __future__ import annotations

from collections.abc import Sequence

from kn_graph.dim import Size
from kn_graph.types import Shape

__all__ = ["axis_groups", "inverse", "long_axes", "same_order"]


def long_axes(shape: Shape) -> list[int]:
    """Return the axes that are not known to have size 1."""
    return [a for a, s in enumerate(shape) if s != 1]


def same_order(shape: Shape, axes: Sequence[int]) -> bool:
    """Return whether a permutation leaves the axes in order but for those of size 1."""
    moved = [a for a in axes if shape[a] != 1]
    return moved == sorted(moved)


def inverse(axes: Sequence[int]) -> tuple[int, ...]:
    """Return the inverse permutation."""
    out = [0] * len(axes)
    for i, a in enumerate(axes):
        out[a] = i
    return tuple(out)


def axis_groups(
    before: Shape, after: Shape
) -> list[tuple[tuple[int, ...], tuple[int, ...]]] | None:
    """Return which axes of a tensor a reshape turns into which: the finest partition.

    Axes of size 1 are left out. None where sizes are 0 or do not multiply to the same expression.
    """
    if 0 in before or 0 in after:
        return None
    left, right = long_axes(before), long_axes(after)
    products: dict[Size, int] = {}
    total: Size = 1
    for i, a in enumerate(left):
        total = total * before[a]
        products[total] = i + 1
    groups = []
    start = first = 0
    running: Size = 1
    for j, b in enumerate(right):
        running = running * after[b]
        end = products.get(running)
        if end is not None and end > start:
            groups.append((tuple(left[start:end]), tuple(right[first : j + 1])))
            start, first = end, j + 1
    return groups if start == len(left) and first == len(right) else None
