"""Parts of graphs: cut out, or put into another graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kn_graph.condition import Condition, Guard, size_eq, size_ge, truth_not
from kn_graph.dim import Dim, Size, of_atom, symbols_of
from kn_graph.errors import DTypeError, GraphError, ShapeError
from kn_graph.graph import Graph
from kn_graph.liveness import live_nodes, mentioned_symbols
from kn_graph.ops.source import Input
from kn_graph.transform import GraphCopier
from kn_graph.types import TensorType, tensor_types_of
from kn_graph.value import Node, Value

__all__ = ["extract", "inline"]


def extract(graph: Graph, inputs: Sequence[str | Value], outputs: Sequence[str | Value]) -> Graph:
    """Return the part of a graph between some values and others.

    Args:
        graph: the whole.
        inputs: values that become inputs of the part; original inputs that the part needs and that
            are not listed stay inputs.
        outputs: values that become its outputs, named as they are.

    Raises:
        GraphError: a name is unknown, or an operand of the part depends on nothing given.
    """
    cut = [graph.find(v) if isinstance(v, str) else v for v in inputs]
    ends = [graph.find(v) if isinstance(v, str) else v for v in outputs]
    graph._check_owned((*cut, *ends))
    target = Graph(f"{graph.name}[part]")
    copier = GraphCopier(target)
    for v in cut:
        copier.values[v] = target.input_of_type(v.name, v.type)
    for node in _between(graph, set(cut), ends):
        copier.copy(node)
        if isinstance(node.op, Input):
            target.inputs.append(copier.values[node.results[0]])
    for name, v in zip(outputs, ends, strict=True):
        target.output(name if isinstance(name, str) else v.name, copier.values[v])
    known = frozenset().union(*map(mentioned_symbols, target.nodes))
    target.symbols = {n: d for n, d in graph.symbols.items() if d.symbols <= known}
    copier.constrain(c for c in graph.constraints if c.symbols <= known)
    target.guards = [g for g in graph.guards if g.condition.symbols <= known]
    names = {v.name for v in target.inputs}
    target.defaults = {n: x for n, x in graph.defaults.items() if n in names}
    target.metadata = dict(graph.metadata)
    return target


def _between(graph: Graph, cut: set[Value], ends: Sequence[Value]) -> list[Node]:
    """Return what the ends need, down to the cut; sizes that it shows need no node."""
    shown = {s for v in cut for t in tensor_types_of(v.type) for s in t.shape}
    sources = {s: n for s, n in graph.size_sources.items() if of_atom(s) not in shown}
    needed: set[int] = set()
    stack = [v.node for v in ends if v not in cut]
    while stack:
        node = stack.pop()
        if node.index not in needed:
            needed.add(node.index)
            stack.extend(v.node for v in node.operands if v not in cut)
            if sources:
                stack.extend(sources[s] for s in mentioned_symbols(node) if s in sources)
    return [n for n in graph.nodes if n.index in needed]


def inline(target: Graph, other: Graph, inputs: Mapping[str, Value]) -> dict[str, Value]:
    """Copy a graph into another one.

    Args:
        target: receives the nodes.
        other: the graph to copy; it stays as it is.
        inputs: a value of `target` for each input of `other`; sizes are matched.

    Returns:
        The outputs of `other` as values of `target`, by name.

    Raises:
        GraphError: an input is missing.
        ShapeError: sizes do not fit.
    """
    names = [v.name for v in other.inputs]
    extra = [n for n in inputs if n not in names]
    if extra:
        raise GraphError(f"{other.name!r} has no input {extra[0]!r}; its inputs are {names}")
    target._check_owned(inputs.values())
    copier = GraphCopier(target)
    for v in other.inputs:
        if v.name in inputs:
            copier.values[v] = inputs[v.name]
        elif v.name in other.defaults:
            copier.values[v] = target.constant(other.defaults[v.name])
        else:
            raise GraphError(f"inline of {other.name!r}: input {v.name!r} is not given")
    _match_inputs(copier, other)
    for node in live_nodes(other, other.outputs.values()):
        if not isinstance(node.op, Input):
            copier.copy(node)
    copier.constrain(other.constraints)
    for guard in other.guards:
        _inline_guard(target, other.name, guard, copier.size(guard.condition.dim))
    return {name: copier.values[v] for name, v in other.outputs.items()}


def _match_inputs(copier: GraphCopier, other: Graph) -> None:
    """Find what the symbols of a graph's inputs stand for, and require that everything fits."""
    pairs: list[tuple[Size, Size, str]] = []
    for v in other.inputs:
        declared, given = v.type, copier.values[v].type
        if not isinstance(declared, TensorType):
            if type(declared) is not type(given):
                raise DTypeError(f"inline input {v.name!r} is {declared}, got {given}")
            continue
        if not isinstance(given, TensorType) or given.dtype is not declared.dtype:
            raise DTypeError(f"inline input {v.name!r} is {declared}, got {given}")
        if given.rank != declared.rank:
            raise ShapeError(f"inline input {v.name!r} is {declared}, got {given}")
        for axis, (a, b) in enumerate(zip(declared.shape, given.shape, strict=True)):
            pairs.append((a, b, f"inline input {v.name!r} at axis {axis}"))
    found = copier.symbols
    for a, b, _ in pairs:
        if isinstance(a, Dim) and a.as_symbol is not None:
            found.setdefault(a.as_symbol, b)
    for a, b, _ in pairs:
        unknown = [] if isinstance(a, int) else [s for s in a.symbols if s not in found]
        if len(unknown) == 1 and unknown[0] not in symbols_of(a - of_atom(unknown[0])):
            found[unknown[0]] = b - copier.size(a - of_atom(unknown[0]))  # past + seq
    for name, d in other.symbols.items():
        if d.as_symbol is not None and d.as_symbol not in found:
            found[d.as_symbol] = copier.target.symbol(name, lo=d.as_symbol.lo)
    for a, b, why in pairs:
        copier.target.require_eq(copier.size(a), b, why)


def _inline_guard(target: Graph, name: str, guard: Guard, size: Size) -> None:
    """Assume in the target what the graph put into it was built for."""
    condition = guard.condition
    truth = size_eq(size, 0) if condition.equal else size_ge(size, 0)
    truth = truth_not(truth) if condition.negated else truth
    if isinstance(truth, Condition) and truth.symbols <= target.root.input_symbols():
        assumed = Guard(truth, guard.decided, guard.why)
        if assumed not in target.root.guards:
            target.root.guards.append(assumed)
    elif truth is not guard.decided:
        raise GraphError(f"inline of {name!r}: it holds only where {guard}")
