"""Graphs in which operations without a kernel are written as others, before they are planned.

In the graph they stay what the file says, with one reference each; kernels have to know the others
only, and both devices get the same. Where a case has no expansion, the operation stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from kn_graph.graph import Graph
from kn_graph.liveness import live_nodes
from kn_graph.op import Op
from kn_graph.ops.attention import Attention
from kn_graph.ops.deform import DeformConv
from kn_graph.ops.fold import Col2Im
from kn_graph.ops.nms import NonMaxSuppression
from kn_graph.ops.nonzero import NonZero, Unique
from kn_graph.ops.pool import Pool
from kn_graph.ops.reduce import Det
from kn_graph.ops.resize import Resize
from kn_graph.ops.signal import Dft
from kn_graph.transform import clone_node, copy_facts
from kn_graph.types import TensorType
from kn_graph.value import Node, Value
from kn_plan.expand.attention import attention_with_scores, keeps_scores
from kn_plan.expand.deform import deform_conv, is_divided
from kn_plan.expand.fold import col2im, has_windows
from kn_plan.expand.nms import non_max_suppression
from kn_plan.expand.nonzero import is_number, nonzero
from kn_plan.expand.pool import has_many_axes, pool
from kn_plan.expand.reduce import det, is_small
from kn_plan.expand.resize import resize, resizes_many_axes
from kn_plan.expand.signal import dft, has_factors
from kn_plan.expand.unique import is_flat, unique
from kn_plan.target import Target

__all__ = ["EXPANSIONS", "Expansion", "expand_graph"]


@dataclass(frozen=True)
class Expansion:
    """How an operation is written as others.

    Attributes:
        write: computes the results of a node of another graph from operands in this one.
        applies: whether it can, and there is no kernel for the node.
    """

    write: Callable[[Graph, Node, Sequence[Value]], Sequence[Value]]
    applies: Callable[[Node], bool] = lambda node: True


EXPANSIONS: Mapping[type[Op], Expansion] = {
    Attention: Expansion(attention_with_scores, keeps_scores),
    Col2Im: Expansion(col2im, has_windows),
    DeformConv: Expansion(deform_conv, is_divided),
    Det: Expansion(det, is_small),
    Dft: Expansion(dft, has_factors),
    NonMaxSuppression: Expansion(non_max_suppression),
    NonZero: Expansion(nonzero, is_number),
    Pool: Expansion(pool, has_many_axes),
    Resize: Expansion(resize, resizes_many_axes),
    Unique: Expansion(unique, is_flat),
}
"""The operations that are; others have kernels, or stay with the host."""


def expand_graph(graph: Graph, device: Target) -> Graph:
    """Return a graph that computes the same without operations that have an expansion.

    Bodies of control flow stay as they are: each is planned as a graph of its own.

    Args:
        graph: any graph; it is returned itself where there is nothing to do.
        device: says which operations it wants as others.
    """
    nodes = live_nodes(graph, graph.outputs.values())
    wanted = {n for n in nodes if _is_expanded(n, device)}
    if not wanted:
        return graph
    target = Graph(graph.name, parent=graph.parent)
    if graph.parent is None:
        target.symbols = dict(graph.symbols)
    copy_facts(graph, target)
    values: dict[Value, Value] = {}
    for node in nodes:
        operands = [values[v] for v in node.operands]
        write = _expanded if node in wanted else clone_node
        values.update(zip(node.results, write(target, node, operands), strict=True))
    target.inputs = [values[v] for v in graph.inputs]
    target.outputs = {n: values[v] for n, v in graph.outputs.items()}
    return target.seal()


def _is_expanded(node: Node, device: Target) -> bool:
    expansion = EXPANSIONS.get(type(node.op))
    return expansion is not None and device.expands(node.op) and expansion.applies(node)


def _expanded(target: Graph, node: Node, operands: Sequence[Value]) -> Sequence[Value]:
    before = len(target.nodes)
    results = EXPANSIONS[type(node.op)].write(target, node, operands)
    made = [_as_declared(target, new, old) for new, old in zip(results, node.results, strict=True)]
    for added in target.nodes[before:]:
        added.origins = node.origins
    for new, old in zip(made, node.results, strict=True):
        new.names += tuple(n for n in old.names if n not in new.names)
    return made


def _as_declared(target: Graph, new: Value, old: Value) -> Value:
    """Return a result under the sizes that the graph has for it, written as they are there."""
    assert isinstance(old.type, TensorType)
    assert new.dtype is old.dtype, f"{old} became {new}"
    return new if new.type == old.type else target.view(new, old.shape)
