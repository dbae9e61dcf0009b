"""Elements that are not zero, found by running totals: one number has to be read, their count."""

from __future__ import annotations

from collections.abc import Sequence

from kn_graph.dim import Dim, size_prod
from kn_graph.dtype import DType, Kind
from kn_graph.graph import Graph
from kn_graph.ops.scatter import ScatterElements
from kn_graph.ops.source import ReadSizes
from kn_graph.types import Shape
from kn_graph.value import Node, Value

__all__ = ["is_number", "nonzero", "places_of"]


def is_number(node: Node) -> bool:
    """Return whether what is searched are real numbers."""
    return node.operands[0].dtype.kind in (Kind.BOOL, Kind.INT, Kind.UINT, Kind.FLOAT)


def nonzero(g: Graph, node: Node, operands: Sequence[Value]) -> Sequence[Value]:
    """Number what is not zero."""
    (x,) = operands
    held = x if x.dtype is DType.BOOL else g.compare("ne", x, g.scalar(0, x.dtype))
    count = node.results[0].shape[1]
    assert isinstance(count, Dim)
    places = places_of(g, held, count)
    return [g.view(g.concat(places, 0), (x.rank, count)) if places else g.iota(0)]


def places_of(g: Graph, held: Value, count: Dim) -> list[Value]:
    """Return where a bool tensor holds, in row-major order: int64 [count] for each axis.

    Args:
        g: the graph.
        held: of any shape.
        count: the data symbol that becomes the number of places.
    """
    total = size_prod(held.shape)
    flat = g.view(held, (total,))
    numbers = g.cumulative("sum", g.cast(flat, DType.INT64), 0)
    found = g.reduce("sum", g.cast(flat, DType.INT64), keep=True)
    g.push(ReadSizes((count,)), found)
    # what does not hold goes behind the end
    target = g.select(flat, g.sub(numbers, g.scalar(1, DType.INT64)), g.size_tensor(total))
    room = g.broadcast(g.scalar(0, DType.INT64), (total + 1,))
    places = g.slice(g.push(ScatterElements(0), room, target, g.iota(total)), 0, 0, count)
    return _coordinates(g, places, held.shape)


def _coordinates(g: Graph, places: Value, shape: Shape) -> list[Value]:
    """Take numbers in row-major order apart."""
    found: list[Value] = []
    for size in reversed(shape[1:]):
        outer = g.div(places, g.size_tensor(size))
        found.append(g.sub(places, g.mul(outer, g.size_tensor(size))))
        places = outer
    return [places, *found[::-1]] if shape else []
