"""Which nodes become ONNX nodes, and what each reads: views and broadcasts mostly disappear.

ONNX operators broadcast by themselves, and a view of a view is a view. So `Broadcast` and `View`
nodes are written only where somebody else needs them, and a few groups of nodes that the loader
makes of one operator become that operator again (`fusion.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kn_graph.dim import Size
from kn_graph.liveness import live_nodes
from kn_graph.onnx.write.registry import WriteFunction
from kn_graph.ops.elementwise import Binary, Compare, Select
from kn_graph.ops.layout import Broadcast, View
from kn_graph.ops.matmul import MatMul
from kn_graph.sizes import broadcast_shapes
from kn_graph.types import Shape

if TYPE_CHECKING:
    from kn_graph.graph import Graph
    from kn_graph.value import Node, Value

__all__ = ["Plan", "resolved_identity"]


class Plan:
    """What of a graph is written, and how.

    Attributes:
        nodes: those that are written, in order.
        aliases: values that are written as another one.
        reads: what each node reads when it is written.
        writers: functions of nodes that stand for a group.
    """

    def __init__(self, graph: Graph) -> None:
        from kn_graph.onnx.write.fusion import FUSIONS

        self.graph = graph
        self.aliases: dict[Value, Value] = {}
        self.reads: dict[Node, tuple[Value, ...]] = {}
        self.writers: dict[Node, WriteFunction] = {}
        live = live_nodes(graph, graph.outputs.values())
        for node in live:
            self.reads[node] = self._read_by(node)
        self.outputs = set(map(self.resolve, graph.outputs.values()))
        self.uses = Counter(v for reads in self.reads.values() for v in reads)
        self.sources = graph.size_sources
        absorbed: set[Node] = set()
        shown: set[Node] = set()
        for node in live:
            for fuse in FUSIONS:
                group = fuse(self, node)
                if group is not None and node not in absorbed:
                    self.writers[node], self.reads[node] = group.write, group.reads
                    absorbed |= set(group.absorbed)
                    shown |= {node} if group.shows else set()
                    break
        self.nodes = self._needed(live, absorbed, shown)

    def resolve(self, value: Value) -> Value:
        """Return the value that stands for one that is the same."""
        return self.aliases.get(value, value)

    def only_use(self, value: Value) -> bool:
        """Return whether one node reads a value, once, and it is no output."""
        return self.uses[value] == 1 and value not in self.outputs

    def _needed(self, live: Sequence[Node], absorbed: set[Node], shown: set[Node]) -> list[Node]:
        wanted = set(self.outputs)
        needed: list[Node] = []
        for node in reversed(live):
            skips = isinstance(node.op, (View, Broadcast)) or node in absorbed
            used = node in shown or any(v in wanted for v in node.results)
            if skips and not used:
                continue
            if len(node.results) == 1 and node.results[0] in self.aliases:
                continue
            needed.append(node)
            wanted.update(self.reads[node])
        return needed[::-1]

    # ---- what nodes read ------------------------------------------------------------------------

    def _read_by(self, node: Node) -> tuple[Value, ...]:
        operands = tuple(map(self.resolve, node.operands))
        if isinstance(node.op, View):
            root = self._root(operands[0])
            if resolved_identity(root.shape, node.op.shape):
                self.aliases[node.results[0]] = root
            return (root,)
        if isinstance(node.op, (Binary, Compare, Select)):
            return self._implicit(node, operands, node.results[0].shape)
        if isinstance(node.op, MatMul):
            lead = node.results[0].shape[:-2]
            return self._implicit_matrices(operands, lead)
        return operands

    def _root(self, value: Value) -> Value:
        """Return what a chain of views starts from; roots are found in order, so one step does."""
        return self.reads[value.node][0] if isinstance(value.node.op, View) else value

    def _implicit(self, node: Node, operands: tuple[Value, ...], shape: Shape) -> tuple[Value, ...]:
        bare = tuple(map(self._bare, operands))
        if isinstance(node.op, Binary) and node.op.fn == "prelu":
            bare = (operands[0], bare[1])
        return bare if _gives([v.shape for v in bare], shape) else operands

    def _implicit_matrices(self, operands: tuple[Value, ...], lead: Shape) -> tuple[Value, ...]:
        bare = []
        for v in operands:
            b = self._bare(v)
            whole = b.rank >= 2 and b.shape[-2:] == v.shape[-2:]
            bare.append(b if whole else v)
        return tuple(bare) if _gives([v.shape[:-2] for v in bare], lead) else operands

    def _bare(self, value: Value) -> Value:
        """Return a value without the broadcast and the axes in front that made its shape."""
        while True:
            op, before = value.node.op, value
            if isinstance(op, Broadcast):
                value = self.reads[value.node][0]
            elif isinstance(op, View):
                root = self._root(value)
                ones = len(op.shape) - root.rank
                if ones > 0 and op.shape == (1,) * ones + root.shape:
                    value = root
            if value is before:
                return value


def _gives(shapes: Sequence[Shape], wanted: Shape) -> bool:
    """Return whether operands of some shapes broadcast to a shape by themselves."""
    if max(map(len, shapes)) != len(wanted):
        return False
    for axis in range(1, len(wanted) + 1):
        sizes: list[Size] = [s[-axis] for s in shapes if len(s) >= axis]
        if wanted[-axis] in sizes:
            continue
        try:
            (common,) = broadcast_shapes([(s,) for s in sizes], "operands")
        except ValueError:
            return False
        if common != wanted[-axis]:
            return False
    return True


def resolved_identity(before: Shape, after: Shape) -> bool:
    """Return whether two shapes of as many elements are one, or differ in how one size is written.

    Sizes of broadcast operands that are assumed to be equal are renamed by a view.
    """
    if len(before) != len(after):
        return False
    return sum(a != b for a, b in zip(before, after, strict=True)) <= 1
