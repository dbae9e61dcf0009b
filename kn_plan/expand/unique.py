"""Different elements: sort them, see where runs of equal ones begin, and number these places."""

from __future__ import annotations

from collections.abc import Sequence

from kn_graph.dim import Dim, size_prod
from kn_graph.dtype import DType, Kind
from kn_graph.graph import Graph
from kn_graph.ops.nonzero import Unique
from kn_graph.ops.scatter import ScatterElements
from kn_graph.value import Node, Value
from kn_plan.expand.nonzero import places_of

__all__ = ["is_flat", "unique"]


def is_flat(node: Node) -> bool:
    """Return whether elements are compared, not slices, and are numbers."""
    op, (x,) = node.op, node.operands
    assert isinstance(op, Unique)
    return x.dtype.kind in (Kind.INT, Kind.UINT, Kind.FLOAT) and (op.axis is None or x.rank == 1)


def unique(g: Graph, node: Node, operands: Sequence[Value]) -> Sequence[Value]:
    """Sort and number."""
    op, (x,) = node.op, operands
    assert isinstance(op, Unique)
    count = node.results[0].shape[0]
    assert isinstance(count, Dim)
    total = size_prod(x.shape)
    flat = g.view(x, (total,))
    values, order = g.top_k(flat, total, 0, largest=False)  # of equal ones the first comes first
    begins = _begins(g, values)
    (places,) = places_of(g, begins, count)
    ends = g.slice(g.concat([places, g.view(g.size_tensor(total), (1,))], 0), 0, 1, count)
    first, counts = g.gather(order, places), g.sub(ends, places)
    groups = g.cumulative("sum", g.cast(begins, DType.INT64), 0)
    inverse = _put(g, order, g.sub(groups, g.scalar(1, DType.INT64)))
    if not op.ordered:
        _, by_place = g.top_k(first, count, 0, largest=False)
        first, counts = g.gather(first, by_place), g.gather(counts, by_place)
        inverse = g.gather(_put(g, by_place, g.iota(count)), inverse)
    return [g.gather(flat, first), first, inverse, counts]


def _begins(g: Graph, values: Value) -> Value:
    """Return where an ordered element differs from the one before; all NaNs are one."""
    (total,) = values.shape
    before = g.slice(g.pad(values, [(1, 0)]), 0, 0, total)
    differs = g.compare("ne", values, before)
    if values.dtype.is_float:
        numbers = (g.compare("eq", v, v) for v in (values, before))
        differs = g.binary("logical_and", differs, g.binary("logical_or", *numbers))
    return g.binary("logical_or", differs, g.compare("eq", g.iota(total), g.scalar(0, DType.INT64)))


def _put(g: Graph, places: Value, numbers: Value) -> Value:
    """Put numbers at places, which are all there are."""
    room = g.broadcast(g.scalar(0, DType.INT64), places.shape)
    return g.push(ScatterElements(0), room, places, numbers)
