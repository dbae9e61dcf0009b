"""Invariants of graphs, checked."""

from __future__ import annotations

from kn_graph.errors import KnError, VerifyError
from kn_graph.graph import Graph
from kn_graph.liveness import bodies_of
from kn_graph.ops.source import Input
from kn_graph.types import TensorType, ValueType
from kn_graph.value import Node

__all__ = ["verify"]


def verify(graph: Graph) -> None:
    """Check operand order and ownership, result types, inputs, outputs, and all bodies.

    Raises:
        VerifyError: naming the node and what is wrong.
    """
    pending = [graph]
    while pending:
        current = pending.pop()
        for index, node in enumerate(current.nodes):
            _check_node(current, index, node)
            for body in bodies_of(node):
                if not body.sealed:
                    raise VerifyError(f"{node.label}: body {body.name!r} is not sealed")
                pending.append(body)
        _check_ends(current)


def _check_node(graph: Graph, index: int, node: Node) -> None:
    where = f"graph {graph.name!r}, {node!r}"
    if node.index != index or node.graph is not graph:
        raise VerifyError(f"{where}: stands at place {index}")
    for v in node.operands:
        if v.node.graph is not graph or v.node.index >= index:
            raise VerifyError(f"{where}: operand {v!r} does not come before it")
        if v.node.results[v.result] is not v:
            raise VerifyError(f"{where}: operand {v!r} is a foreign handle")
    scratch = Graph(parent=graph)
    try:
        types = node.op.infer(scratch, *[v.type for v in node.operands])
    except KnError as error:
        raise VerifyError(f"{where}: {error}") from error
    expected = types if isinstance(types, tuple) else (types,)
    got = [v.type for v in node.results]
    if len(expected) != len(got) or not all(map(_same_kind, expected, got)):
        raise VerifyError(f"{where}: results are {got}, the type rule says {expected}")


def _same_kind(a: ValueType, b: ValueType) -> bool:
    """Compare types up to the identity of data symbols, which each inference makes anew."""
    if isinstance(a, TensorType) and isinstance(b, TensorType):
        fixed = [(x, y) for x, y in zip(a.shape, b.shape, strict=False) if isinstance(x, int)]
        return a.dtype is b.dtype and a.rank == b.rank and all(x == y for x, y in fixed)
    return type(a) is type(b)


def _check_ends(graph: Graph) -> None:
    inputs = [n.results[0] for n in graph.nodes if isinstance(n.op, Input)]
    if inputs != graph.inputs:
        raise VerifyError(f"graph {graph.name!r}: the list of inputs is not that of Input nodes")
    for name, v in graph.outputs.items():
        if v.node.graph is not graph:
            raise VerifyError(f"graph {graph.name!r}: output {name!r} is of another graph")
