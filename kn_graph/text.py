"""Graphs as text."""

from __future__ import annotations

from kn_graph.graph import Graph
from kn_graph.liveness import bodies_of
from kn_graph.ops.source import Input
from kn_graph.value import Node

__all__ = ["graph_text"]


def graph_text(graph: Graph) -> str:
    """Return a listing: inputs, one node a line in order, outputs, then what must hold for sizes.

    ```
    graph 'digits'
      input  image: float32[batch, 1, 8, 8]
      %2 = relu(%1): float32[batch, 16, 8, 8]   # /conv1/Relu
      output probabilities = %9
    ```
    """
    lines = [f"graph {graph.name!r}"]
    stack: list[tuple[Graph, int, int]] = [(graph, 0, 1)]
    while stack:
        current, at, depth = stack.pop()
        pad = "  " * depth
        if at == 0:
            lines += [f"{pad}input  {v.name}: {v.type}" for v in current.inputs]
        if at == len(current.nodes):
            lines += [f"{pad}output {name} = {v.name}" for name, v in current.outputs.items()]
            lines += [f"{pad}require {c}" for c in current.constraints]
            lines += [f"{pad}assume {g}" for g in current.guards]
            continue
        stack.append((current, at + 1, depth))
        node = current.nodes[at]
        if isinstance(node.op, Input):
            continue
        lines.append(pad + _node_line(node))
        stack.extend((body, 0, depth + 2) for body in reversed(bodies_of(node)))
    return "\n".join(lines)


def _node_line(node: Node) -> str:
    results = ", ".join(v.name for v in node.results)
    types = ", ".join(str(v.type) for v in node.results)
    operands = ", ".join(v.name for v in node.operands)
    origins = f"   # {', '.join(node.origins)}" if node.origins else ""
    attributes = node.op.describe()
    return f"{results} = {attributes} <- ({operands}): {types}{origins}"
