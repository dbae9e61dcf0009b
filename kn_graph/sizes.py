"""Shapes that follow from other shapes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import index
from typing import Any

from kn_graph.dim import Dim, Size, size_max, size_min
from kn_graph.dim_facts import provably_ge
from kn_graph.errors import ShapeError
from kn_graph.types import Shape, format_shape

__all__ = ["Decide", "as_size", "as_sizes", "broadcast_shapes", "broadcast_size"]

Decide = Callable[[Size, Size], "bool | None"]
"""Says whether two sizes are equal, as far as that can be decided."""


def as_size(size: Any) -> Size:
    """Return a size as an int or a symbolic size; integers of NumPy are taken, too.

    Raises:
        ShapeError: it is neither.
    """
    if type(size) is int or isinstance(size, Dim):
        return size
    try:
        if isinstance(size, bool):
            raise TypeError
        return index(size)
    except TypeError:
        raise ShapeError(f"a size is an integer or symbolic, got {size!r}") from None


def as_sizes(sizes: Iterable[Any]) -> Shape:
    """Return sizes as `as_size` does."""
    return tuple(map(as_size, sizes))


def broadcast_size(a: Size, b: Size, decide: Decide | None = None) -> Size | None:
    """Return the size of two axes broadcast together, or None where they do not fit.

    Two different symbolic sizes are equal or one of them is 1. Where `decide` cannot tell, the
    result is `max(a, b)`, and 0 where one is 0.
    """
    if a == b or b == 1:
        return a
    if a == 1:
        return b
    if isinstance(a, int) and isinstance(b, int):
        return None
    if isinstance(a, int) or isinstance(b, int):
        number, symbolic = (a, b) if isinstance(a, int) else (b, a)
        return number if provably_ge(number, symbolic) is not False else None
    equal = None if decide is None else decide(a, b)
    if equal:
        return min(a, b, key=lambda s: len(str(s)))
    if equal is False and decide is not None:
        return b if decide(a, 1) else a
    largest = size_max(a, b)
    if provably_ge(a, 1) and provably_ge(b, 1):
        return largest
    return largest * size_min(1, a, b)


def broadcast_shapes(shapes: Sequence[Shape], what: str, decide: Decide | None = None) -> Shape:
    """Return the common shape of several by NumPy's rule.

    Args:
        shapes: at least one.
        what: names the tensors in the error.
        decide: see `broadcast_size`.

    Raises:
        ShapeError: two sizes differ and neither is 1.
    """
    rank = max(map(len, shapes))
    out: list[Size] = [1] * rank
    for shape in shapes:
        for i, size in enumerate(shape, rank - len(shape)):
            common = broadcast_size(out[i], size, decide)
            if common is None:
                texts = " and ".join(map(format_shape, shapes))
                raise ShapeError(
                    f"cannot broadcast {texts} together ({what}): sizes {out[i]} and {size}"
                )
            out[i] = common
    return tuple(out)
