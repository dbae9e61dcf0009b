"""Subgraphs of control-flow nodes: as bodies, or in place of the node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kn_graph.errors import MalformedModelError
from kn_graph.graph import Graph

if TYPE_CHECKING:
    import onnx

    from kn_graph.onnx.loader import Scope
    from kn_graph.types import ValueType
    from kn_graph.value import Value

__all__ = ["convert_bodies", "convert_inline"]


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
    scope.loader.convert_nodes(proto.node, scope)
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
        scope.loader.convert_nodes(proto.node, scope)
        for output, value in zip(proto.output, _outputs(proto, scope), strict=True):
            scope.graph.output(_free_name(output.name, scope.graph), value)
        captured = list(scope.captures)
        scopes.append(scope)
    for scope in scopes:
        for value in captured:  # what only later subgraphs read: an input that nobody reads
            scope.captured(value, value.name)
    return [scope.graph.seal() for scope in scopes], captured


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
