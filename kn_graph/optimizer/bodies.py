"""Control-flow bodies are graphs of their own, optimized like any other, the innermost first."""

from __future__ import annotations

from collections.abc import Callable

from kn_graph.graph import Graph
from kn_graph.liveness import bodies_of
from kn_graph.transform import clone_graph, map_bodies

__all__ = ["with_bodies"]


def with_bodies(graph: Graph, optimize: Callable[[Graph], Graph]) -> Graph:
    """Return the graph with every body, however deep, replaced by what `optimize` makes of it.

    Inputs and outputs of a body stay in place, and so do the types of its control-flow node.
    """
    done: dict[Graph, Graph] = {}
    for body in reversed(_bodies(graph)):
        done[body] = optimize(_replaced(body, done)).seal()
    return _replaced(graph, done)


def _bodies(graph: Graph) -> list[Graph]:
    """Return all bodies, each after the one around it."""
    found: list[Graph] = []
    pending = [graph]
    while pending:
        inside = [b for node in pending.pop().nodes for b in bodies_of(node)]
        found += inside
        pending += inside
    return found


def _replaced(graph: Graph, done: dict[Graph, Graph]) -> Graph:
    if not done or not any(map(bodies_of, graph.nodes)):
        return graph
    return clone_graph(graph, lambda op: map_bodies(op, done.__getitem__))
