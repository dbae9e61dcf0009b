"""Which nodes a result needs, and when values are read for the last time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kn_graph.dim import Symbol, symbols_of
from kn_graph.graph import Graph
from kn_graph.op import op_symbols
from kn_graph.ops.control import ControlOp
from kn_graph.types import tensor_types_of
from kn_graph.value import Node, Value

__all__ = ["bodies_of", "last_uses", "live_nodes", "mentioned_symbols"]


def bodies_of(node: Node) -> list[Graph]:
    """Return the control-flow bodies of a node, in the order of its attributes."""
    if not isinstance(node.op, ControlOp):
        return []
    return [x for x in vars(node.op).values() if isinstance(x, Graph)]


def live_nodes(graph: Graph, values: Iterable[Value]) -> list[Node]:
    """Return the nodes needed for some values, in order; inputs always are.

    A node that mentions a data symbol needs the node that binds it, too.
    """
    sources = graph.size_sources
    live = {v.node.index for v in graph.inputs}
    stack = [v.node for v in values]
    while stack:
        node = stack.pop()
        if node.index in live:
            continue
        live.add(node.index)
        stack += [v.node for v in node.operands]
        if sources:
            stack.extend(
                source
                for s in mentioned_symbols(node)
                if (source := sources.get(s)) is not None and source is not node
            )
    return [n for n in graph.nodes if n.index in live]


def mentioned_symbols(node: Node) -> set[Symbol]:
    """Return the symbols in a node's attributes, result types and bodies."""
    found = set(op_symbols(node.op))
    for v in node.results:
        for t in tensor_types_of(v.type):
            for s in t.shape:
                found |= symbols_of(s)
    for body in bodies_of(node):
        for inner in body.nodes:
            found |= mentioned_symbols(inner)
    return found


def last_uses(nodes: Sequence[Node], outputs: Iterable[Value]) -> dict[Node, list[Value]]:
    """Return the values to free after each node: read there for the last time, or never read."""
    last: dict[Value, Node] = {}
    for node in nodes:
        for v in node.results:
            last[v] = node
        for v in node.operands:
            last[v] = node
    kept = set(outputs)
    frees: dict[Node, list[Value]] = {}
    for v, node in last.items():
        if v not in kept:
            frees.setdefault(node, []).append(v)
    return frees
