"""The optimizer: a graph in, a faster graph with the same results out."""

from __future__ import annotations

from kn_graph.dim_facts import provably_ge
from kn_graph.garbage import uncollected
from kn_graph.graph import Graph
from kn_graph.ops.source import ReadSizes
from kn_graph.optimizer.report import OptimizerReport
from kn_graph.optimizer.settings import OptimizerSettings
from kn_graph.value import Node
from kn_graph.variants import Assumptions

__all__ = ["OptimizerReport", "OptimizerSettings", "optimize_graph", "optimize_graph_report"]


def optimize_graph(graph: Graph, settings: OptimizerSettings | None = None) -> Graph:
    """Return a graph with the same inputs, outputs and results, and less to do.

    Args:
        graph: any graph; it stays as it is.
        settings: what is allowed.
    """
    return optimize_graph_report(graph, settings)[0]


@uncollected
def optimize_graph_report(
    graph: Graph, settings: OptimizerSettings | None = None
) -> tuple[Graph, OptimizerReport]:
    """Optimize a graph, and say which rules fired and which were refused."""
    # imported when first used: whoever only loads or draws does not wait for the rules
    from kn_graph.liveness import live_nodes
    from kn_graph.optimizer.bodies import with_bodies

    chosen = settings or OptimizerSettings()
    report = OptimizerReport(nodes_before=len(live_nodes(graph, graph.outputs.values())))
    ready = with_bodies(graph, lambda body: _optimized(body, chosen, report))
    optimized = _optimized(ready, chosen, report)
    report.nodes_after = len(optimized.nodes)
    source = graph.variant_source
    if source is not None:

        def rebuild(assumed: Assumptions) -> Graph:
            return optimize_graph(source(assumed), chosen)

        optimized.variant_source = rebuild
    return optimized.seal(), report


def _optimized(graph: Graph, settings: OptimizerSettings, report: OptimizerReport) -> Graph:
    """Apply the rules to one graph, its bodies aside."""
    from kn_graph.optimizer.driver import rewrite_graph
    from kn_graph.optimizer.quantization import has_codes
    from kn_graph.optimizer.rules import FIRST, RULES
    from kn_graph.transform import copy_graph

    phases = (FIRST, RULES) if has_codes(graph) else (RULES,)
    optimized = rewrite_graph(graph, phases, settings, report)
    while any(_reads_known_sizes(n) for n in optimized.nodes):
        # sizes that were only to be known at run time became numbers: a copy has them everywhere
        report.fired["known_sizes"] += 1
        copy = copy_graph(optimized, {}, parent=optimized.parent)
        optimized = rewrite_graph(copy, (RULES,), settings, report)
    return optimized


def _reads_known_sizes(node: Node) -> bool:
    """Return whether symbols are bound to sizes that are known, and legal."""
    if not isinstance(node.op, ReadSizes) or node.operands[0].content is None:
        return False
    sizes = node.operands[0].content.ravel().tolist()
    bounds = [s.as_symbol for s in node.op.symbols]
    return all(
        symbol is not None and provably_ge(size, symbol.lo)
        for size, symbol in zip(sizes, bounds, strict=True)
    )
