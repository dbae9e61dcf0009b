"""The optimizer: a graph in, a faster graph with the same results out."""

from __future__ import annotations

from dataclasses import dataclass

from kn_graph.graph import Graph
from kn_graph.transform import copy_graph
from kn_graph.variants import Assumptions

__all__ = ["OptimizerSettings", "optimize_graph"]


@dataclass(frozen=True)
class OptimizerSettings:
    """What the optimizer may do. There are no rules yet that could be switched off."""


def optimize_graph(graph: Graph, settings: OptimizerSettings | None = None) -> Graph:
    """Return a graph with the same inputs, outputs and results, and less to do.

    So far: dead nodes go, equal ones merge.

    Args:
        graph: any graph; it stays as it is.
        settings: what is allowed.
    """
    optimized = copy_graph(graph, {})
    source = graph.variant_source
    if source is not None:

        def rebuild(assumed: Assumptions) -> Graph:
            return optimize_graph(source(assumed), settings)

        optimized.variant_source = rebuild
    return optimized.seal()
