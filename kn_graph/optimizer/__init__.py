"""The optimizer: a graph in, a faster graph with the same results out."""

from __future__ import annotations

from kn_graph.graph import Graph
from kn_graph.optimizer.report import OptimizerReport
from kn_graph.optimizer.settings import OptimizerSettings
from kn_graph.variants import Assumptions

__all__ = ["OptimizerReport", "OptimizerSettings", "optimize_graph", "optimize_graph_report"]


def optimize_graph(graph: Graph, settings: OptimizerSettings | None = None) -> Graph:
    """Return a graph with the same inputs, outputs and results, and less to do.

    Args:
        graph: any graph; it stays as it is.
        settings: what is allowed.
    """
    return optimize_graph_report(graph, settings)[0]


def optimize_graph_report(
    graph: Graph, settings: OptimizerSettings | None = None
) -> tuple[Graph, OptimizerReport]:
    """Optimize a graph, and say which rules fired and which were refused."""
    # imported when first used: whoever only loads or draws does not wait for the rules
    from kn_graph.liveness import live_nodes
    from kn_graph.optimizer.driver import rewrite_graph
    from kn_graph.optimizer.rules import RULES

    chosen = settings or OptimizerSettings()
    report = OptimizerReport(nodes_before=len(live_nodes(graph, graph.outputs.values())))
    optimized = rewrite_graph(graph, RULES, chosen, report)
    report.nodes_after = len(optimized.nodes)
    source = graph.variant_source
    if source is not None:

        def rebuild(assumed: Assumptions) -> Graph:
            return optimize_graph(source(assumed), chosen)

        optimized.variant_source = rebuild
    return optimized.seal(), report
