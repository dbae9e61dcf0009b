"""A graph that is being rewritten: values are replaced in place, and uses are always known.

The graph itself only grows. A replaced value is forwarded to its replacement, so nobody's operands
change; whoever looks at operands resolves them here. `finish` copies what is left into a clean
graph.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from kn_graph.errors import InternalError
from kn_graph.graph import Graph
from kn_graph.transform import clone_graph, clone_node, copy_facts
from kn_graph.types import TensorType
from kn_graph.value import Node, Value

__all__ = ["Editor"]


class Editor:
    """See the module.

    Attributes:
        graph: where rules build; do not read `node.operands` of its nodes, ask `operands`.
        uniform: the number that a constant repeats, or None, once it was looked at.
        compact: constants behind layout operations, once they were found.
        steps: what scalar functions do with constants, once it was computed (see `affine`).
    """

    def __init__(self, source: Graph) -> None:
        self._source = source
        self.graph = clone_graph(source)
        self.uniform: dict[Value, np.generic | None] = {}
        self.compact: dict[Value, np.ndarray[Any, Any]] = {}
        self.steps: dict[tuple[Value, str, int], Any] = {}
        self._forward: dict[Value, Value] = {}
        self._operands: dict[Node, tuple[Value, ...]] = {}
        self._users: dict[Value, dict[Node, int]] = {}
        self._pinned: dict[Value, int] = {}
        self._alive: set[Node] = set()
        for v in self.graph.outputs.values():
            self._pin(v)
        for node in {*self.graph.size_sources.values()}:
            self._pin(node.results[0])

    def _pin(self, v: Value) -> None:
        self._pinned[v] = self._pinned.get(v, 0) + 1
        self._revive(v.node)

    # ---- looking ----------------------------------------------------------------------------

    def resolve(self, v: Value) -> Value:
        """Return what a value has become."""
        while v in self._forward:
            v = self._forward[v]
        return v

    def operands(self, node: Node) -> tuple[Value, ...]:
        """Return the operands of a node as they are now."""
        known = self._operands.get(node)  # of living nodes
        return self._resolved(node) if known is None else known

    def _resolved(self, node: Node) -> tuple[Value, ...]:
        if self._forward.keys().isdisjoint(node.operands):
            return node.operands
        return tuple([self.resolve(v) for v in node.operands])

    def users(self, v: Value) -> list[Node]:
        """Return the living nodes that read a value."""
        return list(self._users.get(self.resolve(v), ()))

    def uses(self, v: Value) -> int:
        """Return how often a value is read by living nodes and as an output of the graph."""
        v = self.resolve(v)
        return sum(self._users.get(v, {}).values()) + self._pinned.get(v, 0)

    def is_output(self, v: Value) -> bool:
        """Return whether a value is an output, or must stay for its sizes."""
        return self.resolve(v) in self._pinned

    def alive(self, node: Node) -> bool:
        """Return whether the outputs need a node."""
        return node in self._alive

    def only_inside(self, values: Iterable[Value], inside: set[Node]) -> bool:
        """Return whether values are read by some nodes and by nobody else."""
        return all(
            not self.is_output(v) and all(u in inside for u in self.users(v)) for v in values
        )

    # ---- changing ---------------------------------------------------------------------------

    def replace(self, old: Value, new: Value) -> None:
        """Let a value take the place of another one everywhere.

        Nodes that nobody needs any more die; the replacement inherits the names of the value and of
        the nodes that died.

        Raises:
            InternalError: the types differ, or the replacement is the value itself.
        """
        old, new = self.resolve(old), self.resolve(new)
        if old is new:
            raise InternalError(f"{old!r} replaced by itself")
        if not _same_type(old, new):
            raise InternalError(f"{old!r} replaced by {new!r}: the types differ")
        self._forward[old] = new
        # built again, the node would be its replacement: in circles, where that is built on it
        self.graph.forget(old.node)
        users = self._users.pop(old, {})
        mine = self._users.setdefault(new, {})
        for node, count in users.items():
            mine[node] = mine.get(node, 0) + count
            self._operands[node] = self._resolved(node)
        pins = self._pinned.pop(old, 0)
        if pins:
            self._pinned[new] = self._pinned.get(new, 0) + pins
        if users or pins:
            self._revive(new.node)
        died = self._bury(old.node)
        _inherit(new, old, died)

    def _needed(self, node: Node) -> bool:
        return any(map(self._is_read, node.results))

    def _is_read(self, v: Value) -> bool:
        return bool(self._users.get(v)) or v in self._pinned

    def _revive(self, node: Node) -> None:
        """Count the operands of a node that has become needed, and of those that so become."""
        stack = [node]
        while stack:
            current = stack.pop()
            if current in self._alive:
                continue
            self._alive.add(current)
            self._operands[current] = operands = self._resolved(current)
            for v in operands:
                users = self._users.setdefault(v, {})
                users[current] = users.get(current, 0) + 1
                stack.append(v.node)

    def _bury(self, node: Node) -> list[Node]:
        """Remove a node that nobody needs, and those that only it needed; return them."""
        died = []
        stack = [node]
        while stack:
            current = stack.pop()
            if current not in self._alive or self._needed(current):
                continue
            self._alive.discard(current)
            died.append(current)
            for v in self._operands.pop(current):
                users = self._users.get(v, {})
                users.pop(current, None)
                stack.append(v.node)
        return died

    # ---- the result -------------------------------------------------------------------------

    def order(self) -> list[Node]:
        """Return the living nodes so that operands come first.

        Raises:
            InternalError: a rewrite made a node depend on itself.
        """
        done: set[Node] = set()
        opened: set[Node] = set()  # and not done: what needs the node at hand
        ordered: list[Node] = []
        roots = [v.node for v in self.graph.inputs]
        roots += sorted({*self.graph.size_sources.values()}, key=lambda n: n.index)
        roots += [self.resolve(v).node for v in self.graph.outputs.values()]
        stack = roots[::-1]
        while stack:
            node = stack[-1]
            if node in done:
                stack.pop()
                continue
            if node not in opened:
                opened.add(node)
                below = [v.node for v in self.operands(node) if v.node not in done]
                if not opened.isdisjoint(below):
                    raise InternalError(
                        f"a rewrite made {node!r} depend on itself; please report this"
                    )
                if below:
                    stack += below
                    continue
            opened.discard(node)
            done.add(node)
            ordered.append(stack.pop())
        return ordered

    def finish(self, order: Sequence[Node]) -> Graph:
        """Return the rewritten graph: a new one, with the inputs and outputs of the source.

        The one that was edited is taken apart, so that no collector has to find it.

        Args:
            order: what `order` returned.
        """
        target = Graph(self._source.name, parent=self._source.parent)
        if self._source.parent is None:
            target.symbols = dict(self.graph.symbols)
        values: dict[Value, Value] = {}
        for node in order:
            results = clone_node(target, node, [values[v] for v in self.operands(node)])
            values.update(zip(node.results, results, strict=True))
        target.inputs = [values[v] for v in self.graph.inputs]
        target.outputs = {n: values[self.resolve(v)] for n, v in self.graph.outputs.items()}
        copy_facts(self.graph, target)
        for node in self.graph.seal().nodes:
            node.results = ()
        self.graph.nodes.clear()
        return target


def _same_type(old: Value, new: Value) -> bool:
    if old.type == new.type:
        return True
    if not isinstance(old.type, TensorType) or not isinstance(new.type, TensorType):
        return False
    # sizes may be written differently where a constraint of the graph makes them equal
    return old.type.dtype is new.type.dtype and old.type.rank == new.type.rank


def _inherit(new: Value, old: Value, died: Sequence[Node]) -> None:
    new.names += tuple(n for n in old.names if n not in new.names)
    for node in died:
        new.node.origins += tuple(n for n in node.origins if n not in new.node.origins)
