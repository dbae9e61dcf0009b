"""The order of nodes, and how far a model may nest and unfold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from kn_graph.errors import MalformedModelError, UnsupportedModelError
from kn_graph.onnx.attributes import attribute_kind, node_name, plain_attribute
from kn_graph.onnx.registry import normal_domain

if TYPE_CHECKING:
    import onnx

__all__ = ["check_extent", "differentiated", "in_order", "nested_nodes"]

MAX_NESTING = 50
"""Subgraphs and functions within each other; conversion recurses that deep."""

MAX_NODES = 2_000_000
"""Of a model with all calls of functions unfolded."""


def nested_nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[tuple[onnx.NodeProto, int]]:
    """Yield nodes and those of the subgraphs in them, depth first, with the depth of nesting."""
    stack = [(iter(nodes), 0)]
    while stack:
        iterator, depth = stack[-1]
        node = next(iterator, None)
        if node is None:
            stack.pop()
            continue
        yield node, depth
        if node.attribute:
            stack += [(iter(g.node), depth + 1) for g in _subgraphs(node)]


def differentiated(nodes: Iterable[onnx.NodeProto]) -> frozenset[str]:
    """Return the tensors by which nodes ask for gradients."""
    found = [n for n, _ in nested_nodes(nodes) if n.op_type == "Gradient"]
    given = [a for n in found for a in n.attribute if a.name == "xs"]
    lists = [plain_attribute(a, attribute_kind(a)) for a in given]
    return frozenset(name for names in lists for name in names)


MAYBE_GRAPHS = frozenset({0, 5, 10})
"""Types of attributes: none given, as in old files, GRAPH and GRAPHS."""


def _subgraphs(node: onnx.NodeProto) -> list[onnx.GraphProto]:
    found: list[onnx.GraphProto] = []
    for attribute in node.attribute:
        if attribute.type in MAYBE_GRAPHS:
            found += [attribute.g] if attribute.HasField("g") else []
            found += attribute.graphs
    return found


# ---- order ----------------------------------------------------------------------------------


def in_order(nodes: Sequence[onnx.NodeProto]) -> Sequence[onnx.NodeProto]:
    """Return nodes so that each comes after those whose outputs it reads.

    The order of the file stays wherever it is right.

    Raises:
        MalformedModelError: nodes wait for each other.
    """
    if _is_ordered(nodes):
        return nodes
    makers = {name: i for i, node in enumerate(nodes) for name in node.output if name}
    needs = [{makers[n] for n in _names_read(node) if n in makers} for node in nodes]
    sorter = TopologicalSorter(dict(enumerate(needs)))
    try:
        sorter.prepare()
    except CycleError as error:
        names = [node_name(nodes[i]) for i in error.args[1]]
        shown = " -> ".join(names if len(names) <= 8 else [*names[:4], "...", *names[-3:]])
        raise MalformedModelError(f"nodes wait for each other in a circle: {shown}") from None
    ordered = []
    ready: list[int] = []
    while sorter.is_active():
        for i in sorter.get_ready():
            heappush(ready, i)
        first = heappop(ready)
        ordered.append(nodes[first])
        sorter.done(first)
    return ordered


def _is_ordered(nodes: Sequence[onnx.NodeProto]) -> bool:
    """Return whether no node reads what is made by it or after it."""
    made: set[str] = set()
    others: set[str] = set()
    for node in nodes:
        others.update(set(_names_read(node)) - made)
        made.update(node.output)
    return others.isdisjoint(made - {""})


def _names_read(node: onnx.NodeProto) -> list[str]:
    names = list(node.input)
    for g in _subgraphs(node) if node.attribute else ():
        names += _free_names(g)
    return names


def _free_names(graph: onnx.GraphProto) -> set[str]:
    """Return the names that a subgraph reads from around it."""
    own = {i.name for i in graph.input} | {t.name for t in graph.initializer}
    own |= {t.values.name for t in graph.sparse_initializer}
    own |= {name for node in graph.node for name in node.output}
    read = {name for node in graph.node for name in _names_read(node)}
    return (read | {o.name for o in graph.output}) - own


# ---- extent ---------------------------------------------------------------------------------

_Key = tuple[str, str, str]


def check_extent(model: onnx.ModelProto) -> None:
    """Refuse models that could only be unfolded with a great deal of time, memory or stack.

    Raises:
        MalformedModelError: functions are defined twice, or call each other in a circle.
        UnsupportedModelError: subgraphs and functions nest too deeply, or calls are too many.
    """
    extents: dict[_Key, tuple[int, int]] = {}
    for key, nodes in _callees_first(model):
        extents[key] = _extent(nodes, extents)
    count, depth = _extent(model.graph.node, extents)
    if depth > MAX_NESTING:
        raise UnsupportedModelError(
            f"subgraphs and functions are nested {depth} deep, at most {MAX_NESTING} are supported"
        )
    if count > MAX_NODES:
        raise UnsupportedModelError(
            f"with all calls of functions unfolded the model has {count:,} nodes, "
            f"at most {MAX_NODES:,} are supported"
        )


def _callees_first(model: onnx.ModelProto) -> Iterator[tuple[_Key, Sequence[onnx.NodeProto]]]:
    """Yield the functions of a model, each after those that it calls."""
    bodies: dict[_Key, Sequence[onnx.NodeProto]] = {}
    for f in model.functions:
        key = (normal_domain(f.domain), f.name, f.overload)
        if key in bodies:
            raise MalformedModelError(
                f"function {f.name!r} of domain {f.domain!r} is defined twice"
            )
        bodies[key] = f.node
    calls = {
        key: {called for n, _ in nested_nodes(nodes) if (called := _key(n)) in bodies}
        for key, nodes in bodies.items()
    }
    try:
        for key in TopologicalSorter(calls).static_order():
            yield key, bodies[key]
    except CycleError as error:
        names = " -> ".join(name for _, name, _ in error.args[1])
        raise MalformedModelError(f"functions call each other in a circle: {names}") from None


def _extent(
    nodes: Sequence[onnx.NodeProto], extents: Mapping[_Key, tuple[int, int]]
) -> tuple[int, int]:
    """Return the number of nodes and the depth of nesting, called functions unfolded."""
    count = deepest = 0
    for node, depth in nested_nodes(nodes):
        called, below = extents.get(_key(node), (0, -1)) if extents else (0, -1)
        count += 1 + called
        deepest = max(deepest, depth + 1 + below)
    return count, deepest


def _key(node: onnx.NodeProto) -> _Key:
    return normal_domain(node.domain), node.op_type, node.overload
