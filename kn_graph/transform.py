"""Copies of graphs, with sizes replaced or as they are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from kn_graph.condition import Guard
from kn_graph.dim import Dim, Size, Symbol, SymbolKind, substitute
from kn_graph.dim_facts import Constraint, ConstraintKind
from kn_graph.errors import ShapeError, SymbolError
from kn_graph.graph import Graph
from kn_graph.liveness import live_nodes
from kn_graph.op import Op, field_names, map_op_sizes
from kn_graph.ops.source import Input, ReadSizes
from kn_graph.types import TensorType, map_type_sizes
from kn_graph.value import Node, Value
from kn_graph.variants import Assumptions, symbols_by_name

__all__ = [
    "GraphCopier",
    "clone_graph",
    "clone_node",
    "copy_facts",
    "copy_graph",
    "map_bodies",
    "specialize",
]


class GraphCopier:
    """Copies nodes of one graph into another, replacing sizes on the way.

    Nodes are built anew, so what became constant folds and what became equal merges.

    Attributes:
        values: what each copied value became.
        symbols: what each replaced symbol became.
    """

    def __init__(self, target: Graph, symbols: Mapping[Symbol, Size] | None = None) -> None:
        self.target = target
        self.values: dict[Value, Value] = {}
        self.symbols: dict[Symbol, Size] = dict(symbols or {})

    def size(self, size: Size) -> Size:
        """Return a size with the symbols replaced."""
        return substitute(size, self.symbols) if self.symbols else size

    def copy(self, node: Node) -> None:
        """Copy one node whose operands were copied before."""
        operands = [self.values[v] for v in node.operands]
        if isinstance(node.op, ReadSizes):
            self._copy_read_sizes(node, node.op, operands[0])
            return
        op = self._op(node.op)
        results = self.target.push_all(op, *operands)
        for old, new in zip(node.results, results, strict=True):
            self.values[old] = new
            self._meet_sizes(old, new)
            self._unite(old, new)

    def constrain(self, constraints: Iterable[Constraint]) -> None:
        """Require in the copy what is required of the sizes that its own stand for."""
        target = self.target
        for c in constraints:
            require = target.require_eq if c.kind is ConstraintKind.EQ else target.require_ge
            require(self.size(c.dim), 0, c.why)

    def _op(self, op: Op) -> Op:
        if self.symbols:
            op = map_op_sizes(op, self.size)
            if isinstance(op, Input):
                op = replace(op, type=map_type_sizes(op.type, self.size))
        return map_bodies(op, self._body)

    def _body(self, body: Graph) -> Graph:
        if not self.symbols and body.parent is self.target:
            return body
        return copy_graph(body, self.symbols, parent=self.target)

    def _copy_read_sizes(self, node: Node, op: ReadSizes, operand: Value) -> None:
        content = operand.content
        if content is not None:
            self.symbols.update(self._pairs(op.symbols, content.ravel().tolist()))
        else:
            base = [s.as_symbol for s in op.symbols]
            lo = base[0].lo if base and base[0] is not None else 0
            before = len(self.target.nodes)
            new = self.target.read_sizes(operand, lo=lo)
            for made in self.target.nodes[before:]:
                made.origins = node.origins
            self.symbols.update(self._pairs(op.symbols, new))
        self.values[node.results[0]] = operand

    def _pairs(self, old: Sequence[Dim], new: Sequence[Size]) -> Iterable[tuple[Symbol, Size]]:
        for a, b in zip(old, new, strict=True):
            symbol = a.as_symbol
            assert symbol is not None
            if a != b:
                yield symbol, b

    def _meet_sizes(self, old: Value, new: Value) -> None:
        """Learn what the data symbols of a result became."""
        if not (isinstance(old.type, TensorType) and isinstance(new.type, TensorType)):
            return
        for a, b in zip(old.type.shape, new.type.shape, strict=True):
            symbol = None if isinstance(a, int) else a.as_symbol
            if symbol is not None and symbol.kind is SymbolKind.DATA and a != b:
                self.symbols.setdefault(symbol, b)

    def _unite(self, old: Value, new: Value) -> None:
        new.names += tuple(n for n in old.names if n not in new.names)
        new.node.origins += tuple(n for n in old.node.origins if n not in new.node.origins)


def map_bodies(op: Op, f: object) -> Op:
    """Return the operation with `f` applied to each control-flow body among its attributes."""
    assert callable(f)
    changed = {
        name: f(x) for name in field_names(type(op)) if isinstance(x := getattr(op, name), Graph)
    }
    return replace(op, **changed) if changed else op


def clone_node(target: Graph, node: Node, operands: Sequence[Value]) -> tuple[Value, ...]:
    """Repeat a node in another graph as it is: no type is inferred, nothing folds.

    An equal pure node of the target is used again.
    """
    return target.adopt(node, tuple(operands))


def clone_graph(graph: Graph, change: Callable[[Op], Op] | None = None) -> Graph:
    """Return an open copy of a graph, dead nodes left out, with equal types and symbols.

    Args:
        graph: any graph.
        change: applied to each operation; what it returns must give results of the same types.
    """
    target = Graph(graph.name, parent=graph.parent)
    if graph.parent is None:
        target.symbols = dict(graph.symbols)
    values: dict[Value, Value] = {}
    for node in live_nodes(graph, graph.outputs.values()):
        op = node.op if change is None else change(node.op)
        results = target.adopt(node, tuple(values[v] for v in node.operands), op)
        values.update(zip(node.results, results, strict=True))
    target.inputs = [values[v] for v in graph.inputs]
    target.outputs = {n: values[v] for n, v in graph.outputs.items()}
    copy_facts(graph, target)
    return target


def copy_facts(source: Graph, target: Graph) -> None:
    """Give a graph what is known about another one beside its nodes."""
    target.constraints = source.constraints.copy()
    target.guards = list(source.guards)
    target.body_guards = list(source.body_guards)
    target.defaults = dict(source.defaults)
    target.metadata = dict(source.metadata)
    target.overridable = source.overridable
    target.assumed_values = dict(source.assumed_values)


def copy_graph(
    graph: Graph,
    symbols: Mapping[Symbol, Size],
    *,
    parent: Graph | None = None,
) -> Graph:
    """Return a copy of a graph with symbols replaced; only what the outputs need.

    Args:
        graph: what to copy.
        symbols: what takes the place of which symbol.
        parent: the graph around the copy, where it is a body.
    """
    target = Graph(graph.name, parent=parent)
    copier = GraphCopier(target, symbols)
    if parent is None:
        gone = symbols.keys()
        target.symbols = {n: d for n, d in graph.symbols.items() if d.as_symbol not in gone}
    for node in live_nodes(graph, graph.outputs.values()):
        copier.copy(node)
    target.inputs = [copier.values[v] for v in graph.inputs]
    for name, value in graph.outputs.items():
        target.output(name, copier.values[value])
    copier.constrain(graph.constraints)
    target.guards = _open_guards(graph.guards, symbols)
    target.body_guards = _open_guards(graph.body_guards, symbols)
    target.defaults = dict(graph.defaults)
    target.metadata = dict(graph.metadata)
    target.overridable = graph.overridable
    target.assumed_values = dict(graph.assumed_values)
    return target.seal() if graph.sealed else target


def _open_guards(guards: Sequence[Guard], symbols: Mapping[Symbol, Size]) -> list[Guard]:
    return [g for g in guards if not g.condition.symbols & symbols.keys()]


def specialize(graph: Graph, dims: Mapping[str, int]) -> Graph:
    """Return a copy with named symbols replaced by numbers, folded again.

    Raises:
        SymbolError: a name is unknown, or the numbers break what the graph requires.
    """
    known = symbols_by_name(graph, dims)
    graph = _legal_variant(graph, known)
    here = {n: k for n, k in dims.items() if n in graph.symbols}
    try:
        copy = copy_graph(graph, symbols_by_name(graph, here))
    except ShapeError as error:
        raise SymbolError(f"graph {graph.name!r} does not allow {dict(dims)}: {error}") from None
    source = graph.variant_source
    if source is not None:

        def rebuild(assumed: Assumptions) -> Graph:
            whole = source(assumed)
            return specialize(whole, {n: k for n, k in dims.items() if n in whole.symbols})

        copy.variant_source = rebuild
    return copy


def _legal_variant(graph: Graph, known: Mapping[Symbol, int]) -> Graph:
    """Switch to the variant that the numbers call for, when they decide every guard."""
    guards = [g for g in graph.guards if g.condition.symbols <= known.keys()]
    broken = any(g.condition.holds(known) != g.decided for g in guards)
    below = any(n < s.lo for s, n in known.items())
    if not (broken or below):
        return graph
    rest = {s: max(s.lo, 64) for d in graph.symbols.values() if (s := d.as_symbol) is not None}
    return graph.variant({**rest, **known})
