"""What there is to draw of a graph, divided into pictures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property

from kn_graph.graph import Graph
from kn_graph.liveness import bodies_of, live_nodes
from kn_graph.ops.source import Input, ReadSizes
from kn_graph.render.blocks import Parts, Path, paths_of
from kn_graph.render.families import family_of
from kn_graph.render.labels import constant_of
from kn_graph.value import Node, Value

__all__ = ["Part", "Scene", "read_by"]

CHAINED = frozenset({"scalar", "layout"})

FLAT_BODY = 40
"""Bodies of control flow of so many nodes are not folded."""


class Scene:
    """A graph, those of its nodes that get boxes, and who reads what.

    Attributes:
        graph: the graph.
        nodes: live nodes, without constants and nodes that only bind sizes.
    """

    def __init__(self, graph: Graph, nodes: Sequence[Node] | None = None) -> None:
        self.graph = graph
        live = live_nodes(graph, graph.outputs.values()) if nodes is None else nodes
        self.nodes = tuple(n for n in live if not _is_folded_away(n))

    def near(self, center: Node, distance: int) -> Scene:
        """Return what a node is computed from and what is computed from it, so many steps away.

        What else those results are computed from belongs to it, one step.
        """
        above = _reached(center, distance, lambda n: [v.node for v in read_by(n)])
        readers = self.readers
        below = _reached(
            center, distance, lambda n: [m for v in n.results for m in readers.get(v, ())]
        )
        beside = {v.node for n in below for v in read_by(n)}
        scene = Scene(self.graph, [n for n in self.nodes if n in above | below | beside])
        scene.parts = self.parts
        return scene

    @cached_property
    def node_set(self) -> frozenset[Node]:
        """The nodes, for asking whether one is among them."""
        return frozenset(self.nodes)

    @cached_property
    def parts(self) -> Parts:
        """The parts of the model."""
        return Parts(paths_of(self.nodes))

    @cached_property
    def readers(self) -> dict[Value, list[Node]]:
        """Who reads each value."""
        found: dict[Value, list[Node]] = {}
        for node in self.nodes:
            for v in read_by(node):
                found.setdefault(v, []).append(node)
        return found

    @cached_property
    def outputs(self) -> dict[Value, list[str]]:
        """The names of the values that are results of the graph."""
        found: dict[Value, list[str]] = {}
        for name, v in self.graph.outputs.items():
            found.setdefault(v, []).append(name)
        return found


class Part:
    """What one picture shows: nodes of a scene.

    Attributes:
        scene: the whole graph.
        nodes: the nodes that are inside.
        inside: the part of the model that they are; () for the whole.
        folds: the inner part that each node is folded into, () for those that have boxes.
    """

    def __init__(
        self, scene: Scene, nodes: Sequence[Node], inside: Path = (), *, flat: bool = False
    ) -> None:
        self.scene, self.nodes, self.inside = scene, nodes, inside
        unfolded: dict[Node, Path] = dict.fromkeys(nodes, ())
        self.folds = unfolded if flat else scene.parts.fold(nodes, inside)

    @cached_property
    def members(self) -> dict[Path, list[Node]]:
        """The nodes of each inner part that is folded."""
        found: dict[Path, list[Node]] = {}
        for node in self.nodes:
            if self.folds[node]:
                found.setdefault(self.folds[node], []).append(node)
        return found

    @cached_property
    def chained(self) -> dict[Node, Node]:
        """Operations that share a box with the one that they follow, where parts are folded.

        These are scalar and layout operations that read nothing else, and are all that reads it.
        """
        found: dict[Node, Node] = {}
        for node in self.nodes if self.members else ():
            read = read_by(node)
            if len(read) != 1 or family_of(node.op) not in CHAINED or self.folds[node]:
                continue
            before = read[0].node
            alone = len(self.scene.readers[read[0]]) == 1 and read[0] not in self.scene.outputs
            if alone and not isinstance(before.op, Input) and self.folds.get(before) == ():
                found[node] = found.get(before, before)
        return found

    @cached_property
    def followers(self) -> dict[Node, list[Node]]:
        """What is chained to each node, in order."""
        found: dict[Node, list[Node]] = {}
        for node, head in self.chained.items():
            found.setdefault(head, []).append(node)
        return found

    def inner(self) -> Iterator[tuple[Path | Node, Part]]:
        """Yield what boxes open: folded parts, and bodies of control flow."""
        for path, nodes in self.members.items():
            yield path, Part(self.scene, nodes, path)
        for node in self.nodes:
            for body in bodies_of(node) if not self.folds[node] else ():
                scene = Scene(body)
                yield node, Part(scene, scene.nodes, flat=len(scene.nodes) <= FLAT_BODY)


def _reached(center: Node, distance: int, step: Callable[[Node], list[Node]]) -> set[Node]:
    reached, border = {center}, {center}
    for _ in range(distance):
        border = {m for n in border for m in step(n)} - reached
        reached |= border
    return reached


def read_by(node: Node) -> list[Value]:
    """Return what a node reads and is drawn, seen through nodes that only bind sizes."""
    found = []
    for v in node.operands:
        while isinstance(v.node.op, ReadSizes):
            (v,) = v.node.operands
        if constant_of(v) is None:
            found.append(v)
    return found


def _is_folded_away(node: Node) -> bool:
    """Constants, and arrangements of them, are lines in the boxes of their readers."""
    if isinstance(node.op, ReadSizes):
        return True
    return bool(node.results) and constant_of(node.results[0]) is not None
