"""Whether what happened on a device is what a graph asks for.

What must appear follows from the graph, not from the plan: a planner that forgets a step, an
executor that computes on the host in silence, and a kernel that is never launched all show.
"""

from __future__ import annotations

from collections.abc import Mapping

from kn_cuda.lower import WRITERS
from kn_cuda.proof import Proof
from kn_cuda.target import CudaTarget
from kn_graph.dim import Symbol, evaluate, symbols_of
from kn_graph.graph import Graph
from kn_graph.liveness import live_nodes
from kn_graph.types import TensorType
from kn_graph.value import Node
from kn_plan.expand import expand_graph

__all__ = ["required_kinds", "shortfall"]


def required_kinds(graph: Graph, env: Mapping[Symbol, int]) -> set[str]:
    """Return the kinds of steps that launch something whenever the graph runs.

    Elementwise operations are not among them, since they run in other kernels, nor is what lies in
    bodies of control flow, which may not run.

    Args:
        graph: what runs.
        env: numbers of its symbols; what depends on others is left out.
    """
    graph = expand_graph(graph, CudaTarget())
    nodes = live_nodes(graph, graph.outputs.values())
    return {n.op.title for n in nodes if type(n.op) in WRITERS and _has_elements(n, env)}


def _has_elements(node: Node, env: Mapping[Symbol, int]) -> bool:
    types = [v.type for v in node.results]
    shapes = [t.shape for t in types if isinstance(t, TensorType)]
    sizes = [size for shape in shapes for size in shape]
    known = all(symbols_of(size) <= env.keys() for size in sizes)
    return known and any(all(evaluate(n, env) for n in shape) for shape in shapes)


def shortfall(graph: Graph, env: Mapping[Symbol, int], proof: Proof) -> list[str]:
    """Return what is missing of a proof that a graph ran on a device; nothing where all is there.

    Args:
        graph: what ran, at least once.
        env: numbers of its symbols.
        proof: what was counted.
    """
    absent = sorted(required_kinds(graph, env) - proof.launches.keys())
    found = [f"{kind}: nothing was launched" for kind in absent]
    return found + [
        f"{kind}: {count} steps ran on the host" for kind, count in proof.host_steps.items()
    ]
