"""Subgraphs of control-flow nodes: as bodies, or in place of the node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kn_graph.errors import MalformedModelError
from kn_graph.graph import Graph
from kn_graph.types import UnrankedType

if TYPE_CHECKING:
    import onnx

    from kn_graph.onnx.loader import Scope
    from kn_graph.types import ValueType
    from kn_graph.value import Value

__all__ = ["branch_off", "convert_bodies", "convert_inline"]


def convert_inline(
    proto: onnx.GraphProto, outer: Scope, inputs: Sequence[Value] = ()
) -> list[Value]:
    """Convert a subgraph into the graph around it, with values for its inputs.

    Returns:
        Its outputs.
    """
    _check_count(proto, len(inputs))
    scope = outer.inside(outer.graph, proto)
    for info, value in zip(proto.input, inputs, strict=True):
        scope.values[info.name] = value
    scope.loader.convert_nodes(proto.node, scope, _names(proto))
    return _outputs(proto, scope)


def convert_bodies(
    protos: Sequence[onnx.GraphProto], types: Sequence[ValueType], outer: Scope, name: str
) -> tuple[list[Graph], list[Value]]:
    """Convert subgraphs that get the same values.

    Args:
        protos: the subgraphs.
        types: types of the declared inputs of each.
        outer: the scope of the node.
        name: its name.

    Returns:
        The bodies, sealed, and the values of the graph around that any of them reads: the further
        inputs of each.
    """
    scopes: list[Scope] = []
    captured: list[Value] = []
    for proto in protos:
        scope = outer.inside(Graph(proto.name or name, parent=outer.graph), proto)
        _declare_inputs(proto, types, scope)
        for value in captured:
            scope.captured(value, value.name)
        scope.loader.convert_nodes(proto.node, scope, _names(proto))
        for output, value in zip(proto.output, _outputs(proto, scope), strict=True):
            scope.graph.output(_free_name(output.name, scope.graph), value)
        captured = list(scope.captures)
        scopes.append(scope)
    return _sealed(scopes, captured), captured


def _sealed(scopes: Sequence[Scope], captured: Sequence[Value]) -> list[Graph]:
    """Give all bodies the same inputs: what only another one reads, nobody reads in this one."""
    for scope in scopes:
        for value in captured:
            scope.captured(value, value.name)
    return [scope.graph.seal() for scope in scopes]


# ---- ranks that differ ----------------------------------------------------------------------

MAX_BRANCHED = 8
"""Decisions at run time that the rest of a graph is converted for twice each."""


def branch_off(
    nodes: Sequence[onnx.NodeProto], done: int, wanted: Sequence[str], scope: Scope
) -> bool:
    """Move what follows an `If` into its branches, since a node needs a rank that they give.

    Args:
        nodes: of one graph or function, in order.
        done: how many of them were converted; the next one failed.
        wanted: the names among their outputs that are read afterwards; they are defined anew.
        scope: their scope.

    Returns:
        False where no branches before it differ in rank.
    """
    first = next((i for i, n in enumerate(nodes[:done]) if _differs(n, scope)), None)
    if first is None or scope.loader.branched >= MAX_BRANCHED:
        return False
    scope.loader.branched += 1
    node, rest = nodes[first], nodes[first + 1 :]
    made = {o for n in nodes[first:] for o in n.output}
    names = [n for n in dict.fromkeys(wanted) if n in made]
    by_name = {a.name: a.g for a in node.attribute}
    scopes: list[Scope] = []
    captured: list[Value] = []
    for proto in (by_name["then_branch"], by_name["else_branch"]):
        inner = scope.inside(Graph(proto.name or node.name, parent=scope.graph), proto)
        for value in captured:
            inner.captured(value, value.name)
        _convert_rest(node, proto, rest, names, inner)
        captured = list(inner.captures)
        scopes.append(inner)
    condition = scope.lookup(node.input[0], f"node {node.name}")
    then, otherwise = _sealed(scopes, captured)
    results = scope.graph.if_else(condition, then, otherwise, captured)
    for name, value in zip(names, results, strict=True):
        scope.values[name] = value
        value.names = (*value.names, name)
    return True


def _differs(node: onnx.NodeProto, scope: Scope) -> bool:
    values = (scope.values.get(o) for o in node.output)
    return node.op_type == "If" and any(
        v is not None and isinstance(v.type, UnrankedType) for v in values
    )


def _convert_rest(
    node: onnx.NodeProto,
    proto: onnx.GraphProto,
    rest: Sequence[onnx.NodeProto],
    names: Sequence[str],
    inner: Scope,
) -> None:
    """Convert a branch and what follows it into one body, whose outputs are `names`."""
    inner.loader.convert_nodes(proto.node, inner, _names(proto))
    tail = inner.inside(inner.graph)
    tail.values.update(zip(node.output, _outputs(proto, inner), strict=False))
    inner.loader.convert_nodes(rest, tail, names)
    for name in names:
        inner.graph.output(name, tail.lookup(name, f"outputs of subgraph {proto.name!r}"))


def _names(proto: onnx.GraphProto) -> list[str]:
    return [output.name for output in proto.output]


def _declare_inputs(proto: onnx.GraphProto, types: Sequence[ValueType], scope: Scope) -> None:
    _check_count(proto, len(types))
    for info, type in zip(proto.input, types, strict=True):
        scope.values[info.name] = scope.graph.input_of_type(info.name, type)


def _check_count(proto: onnx.GraphProto, expected: int) -> None:
    if len(proto.input) != expected:
        raise MalformedModelError(
            f"subgraph {proto.name!r} has {len(proto.input)} inputs, expected {expected}"
        )


def _outputs(proto: onnx.GraphProto, scope: Scope) -> list[Value]:
    where = f"outputs of subgraph {proto.name!r}"
    return [scope.lookup(output.name, where) for output in proto.output]


def _free_name(name: str, graph: Graph) -> str:
    return name if name not in graph.outputs else f"{name}'{len(graph.outputs)}"
