"""Determinants as elimination with pivots, one column after another, for all matrices at once."""

from __future__ import annotations

from collections.abc import Sequence

from kn_graph.dtype import DType
from kn_graph.graph import Graph
from kn_graph.value import Node, Value

__all__ = ["det"]

MOST_COLUMNS = 16
"""Larger matrices stay with LAPACK: they are many steps here."""


def det(g: Graph, node: Node, operands: Sequence[Value]) -> Sequence[Value] | None:
    """Eliminate columns; None for large matrices, or of sizes that are no numbers."""
    (x,) = operands
    n = x.shape[-1]
    if not isinstance(n, int) or n > MOST_COLUMNS or x.shape[-2] != n:
        return None
    wide = DType.FLOAT64 if x.dtype is DType.FLOAT64 else DType.FLOAT32
    rest = g.cast(x, wide)
    total = g.broadcast(g.scalar(1, wide), x.shape[:-2])
    while n > 1:
        pivot, rest = _eliminated(g, rest, n)
        total, n = g.mul(total, pivot), n - 1
    if n:
        total = g.mul(total, g.view(rest, x.shape[:-2]))
    return [g.cast(total, x.dtype)]


def _eliminated(g: Graph, x: Value, n: int) -> tuple[Value, Value]:
    """Return the factor of the first column, [..], and the matrices without it, [.., n-1, n-1]."""
    lead, row, column = x.rank - 2, x.rank - 2, x.rank - 1
    zero = g.scalar(0, x.dtype)
    first = g.slice(x, column, 0, 1)  # [.., n, 1]
    found = g.arg_reduce(g.unary("abs", first), row, keep=True)  # [.., 1, 1]
    chosen = g.compare("eq", g.view(g.iota(n), (n, 1)), found)
    pivots = g.reduce("sum", g.select(chosen, x, zero), [row], keep=True)  # [.., 1, n]
    pivot = g.slice(pivots, column, 0, 1)
    # the first row goes where the pivot was; that turns the sign around
    rest = g.select(chosen, g.slice(x, row, 0, 1), x)
    rest = g.slice(rest, row, 1, n - 1)
    share = g.div(g.slice(rest, column, 0, 1), pivot)
    share = g.select(g.compare("eq", pivot, zero), zero, share)
    rest = g.slice(rest, column, 1, n - 1)
    rest = g.sub(rest, g.mul(share, g.slice(pivots, column, 1, n - 1)))
    moved = g.compare("ne", found, g.scalar(0, DType.INT64))
    signed = g.select(moved, g.neg(pivot), pivot)
    return g.view(signed, x.shape[:lead]), rest
