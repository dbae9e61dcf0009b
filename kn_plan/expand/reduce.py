"""Determinants of small matrices as sums of products, for all matrices at once."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from kn_graph.dtype import DType
from kn_graph.graph import Graph
from kn_graph.value import Node, Value

__all__ = ["det", "is_small"]

MOST_ROWS = 4
"""Maps of space have as many; larger matrices are LAPACK's."""


def is_small(node: Node) -> bool:
    """Return whether matrices have few rows."""
    n = node.operands[0].shape[-1]
    return isinstance(n, int) and n <= MOST_ROWS and node.operands[0].shape[-2] == n


def det(g: Graph, node: Node, operands: Sequence[Value]) -> Sequence[Value]:
    """Expand along one row after another.

    A minor of the last rows and as many columns is a sum over its columns, of the element in its
    first row times the minor of the rows below without that column.
    """
    (x,) = operands
    n, last = x.shape[-1], x.rank - 1
    assert isinstance(n, int)
    wide = DType.FLOAT64 if x.dtype is DType.FLOAT64 else DType.FLOAT32
    rest, shape = g.cast(x, wide), x.shape[:-2]
    one = g.broadcast(g.scalar(1, wide), shape)
    minors: dict[tuple[int, ...], Value] = {(): one}
    for size in range(1, n + 1):
        row = g.slice(rest, last - 1, n - size, 1)
        cells = [g.view(g.slice(row, last, column, 1), shape) for column in range(n)]
        below = minors
        minors = {c: _minor(g, c, cells, below) for c in combinations(range(n), size)}
    return [g.cast(minors[tuple(range(n))], x.dtype)]


def _minor(
    g: Graph,
    columns: tuple[int, ...],
    row: Sequence[Value],
    below: dict[tuple[int, ...], Value],
) -> Value:
    """Return the determinant of a row and those below it, in some columns."""
    terms = [
        g.mul(row[column], below[columns[:place] + columns[place + 1 :]])
        for place, column in enumerate(columns)
    ]
    total = terms[0]
    for place, term in enumerate(terms[1:], 1):
        total = g.sub(total, term) if place % 2 else g.add(total, term)
    return total
