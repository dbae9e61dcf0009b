"""The largest and the smallest of sizes."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from math import gcd

from kn_graph.dim.polynomial import (
    REMEMBERED,
    Max,
    Size,
    intern,
    named_if_large,
    of_atom,
    size_add,
    size_of,
    term_key,
    terms_of,
    to_size,
)

__all__ = ["size_max", "size_min"]


def size_max(*sizes: Size) -> Size:
    """Return the largest.

    Canonical under order, nesting, translation and scaling: of all arguments each monomial's
    smallest coefficient moves out, then the common factor; arguments that another one dominates
    go.
    """
    if all(isinstance(s, int) for s in sizes):
        return max(sizes)  # type: ignore[type-var]
    return _largest(sizes)


@lru_cache(maxsize=REMEMBERED)
def _largest(sizes: tuple[Size, ...]) -> Size:
    kept = _undominated(_flattened(map(to_size, sizes)))
    if len(kept) == 1:
        return kept[0]
    tables = [dict(terms_of(s)) for s in kept]
    monomials = {m: None for t in tables for m in t}
    base = size_of({m: min(t.get(m, 0) for t in tables) for m in monomials})
    kept = [s - base for s in kept]
    common = gcd(*(c for s in kept for _, c in terms_of(s)))
    args = [size_of({m: c // common for m, c in terms_of(s)}) for s in kept]
    atom = intern(Max, *sorted(args, key=_sort_key))
    return named_if_large(size_add(base, of_atom(atom, common)))


def _sort_key(size: Size) -> list[tuple[int, list[tuple[int, int]], int]]:
    return [(*term_key(t), t[1]) for t in terms_of(size)]


def _flattened(sizes: Iterable[Size]) -> list[list[Size]]:
    """Return the arguments in groups, those of `max(..) + x` taken apart as one group."""
    groups: list[list[Size]] = []
    for s in sizes:
        inner = [m[0] for m, c in terms_of(s) if c == 1 and len(m) == 1 and isinstance(m[0], Max)]
        if len(inner) == 1:
            rest = s - of_atom(inner[0])
            groups.append([rest + x for x in inner[0].args])
        else:
            groups.append([s])
    return groups


def _undominated(groups: list[list[Size]]) -> list[Size]:
    """Return the arguments without those that are never larger than another one.

    Within a group that has been settled when its maximum was made.
    """
    from kn_graph.dim_facts import surely_ge

    kept: list[Size] = []
    for group in groups:
        new = [s for s in group if not any(surely_ge(other, s) for other in kept)]
        kept = [s for s in kept if not any(surely_ge(other, s) for other in new)]
        kept += new
    return kept


def size_min(*sizes: Size) -> Size:
    """Return the smallest."""
    if all(isinstance(s, int) for s in sizes):
        return min(sizes)  # type: ignore[type-var]
    return -size_max(*(-to_size(s) for s in sizes))
