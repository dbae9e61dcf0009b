"""One picture: boxes for nodes and folded parts, arrows for the values between them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kn_graph.ops.source import Input
from kn_graph.render.blocks import Path
from kn_graph.render.families import HEAVY, OTHER, SOURCE, family_of
from kn_graph.render.labels import (
    TITLE_WIDTH,
    Labels,
    elided,
    is_arranging,
    type_text,
)
from kn_graph.render.picture import Arrow, Box, Picture
from kn_graph.render.scene import Part, read_by
from kn_graph.value import Node, Value

__all__ = ["picture_of"]

MAX_KINDS = 5
"""Kinds of operations that the box of a block lists."""

Opens = Mapping[Path | Node, list[int]]


def picture_of(part: Part, labels: Labels, opens: Opens, center: Node | None = None) -> Picture:
    """Return the picture of a part.

    Args:
        part: what to draw.
        labels: how to write.
        opens: numbers of the pictures that folded parts and control flow open.
        center: a node to mark.
    """
    inside = "/".join(part.inside[-1:])
    drawing = _Drawing(part, labels, opens, Picture(inside or part.scene.graph.name))
    drawing.add_boxes(center)
    drawing.add_arrows()
    drawing.add_outputs()
    return drawing.picture


@dataclass
class _Drawing:
    part: Part
    labels: Labels
    opens: Opens
    picture: Picture
    places: dict[Path | Node | Value, int] = field(default_factory=dict)
    joined: set[tuple[int, int, Value]] = field(default_factory=set)

    def add_boxes(self, center: Node | None) -> None:
        part = self.part
        titles = _titles(list(part.members), len(part.inside))
        frames = {} if part.members else part.scene.parts.frames(part.nodes, part.inside)
        for node in part.nodes:
            path = part.folds[node]
            if path and path not in self.places:
                self._add(path, _block(titles[path], part.members[path]))
            elif not path and node not in part.chained:
                box = self._chain_box(node)
                box.marked = node is center
                box.cluster = "/".join(frames.get(node, ())[len(part.inside) :])
                self._add(node, box)

    def _chain_box(self, node: Node) -> Box:
        """Return the box of a node, together with those that are chained to it."""
        box = self.labels.box_of(node)
        for follower in self.part.followers.get(node, ()):
            other = self.labels.box_of(follower)
            box.lines.append(f"+ {', '.join([other.title, *other.lines])}")
            box.details += other.details
            box.names += other.names
        return box

    def _add(self, key: Path | Node | Value, box: Box) -> int:
        box.opens = self.opens.get(key, []) if not isinstance(key, Value) else []
        place = self.places[key] = len(self.picture.boxes)
        self.picture.boxes.append(box)
        return place

    def _place(self, node: Node) -> int | None:
        node = self.part.chained.get(node, node)
        return self.places.get(self.part.folds.get(node) or node)

    def add_arrows(self) -> None:
        known = self.part.scene.node_set
        for node in self.part.nodes:
            target = self._place(node)
            assert target is not None
            for v in read_by(node):
                if v.node not in known:
                    continue
                source = self._place(v.node)
                if source is None:
                    source = self.places.get(v)
                if source is None:
                    source = self._add(v, _end("input", v, _labels_of([v.node])))
                self._join(source, target, v)

    def _join(self, source: int, target: int, v: Value) -> None:
        """An operation that reads a value twice has two arrows, a block one."""
        boxes = self.picture.boxes
        folded = "block" in (boxes[source].shape, boxes[target].shape)
        if source == target or (folded and (source, target, v) in self.joined):
            return
        self.joined.add((source, target, v))
        self.picture.arrows.append(Arrow(source, target, type_text(v.type)))

    def add_outputs(self) -> None:
        """Results of the graph, and values that are read outside the part."""
        scene, mine = self.part.scene, set(self.part.nodes)
        for node in self.part.nodes:
            for v in node.results:
                outside = [n for n in scene.readers.get(v, ()) if n not in mine]
                ends = [_end(name, v, [name]) for name in scene.outputs.get(v, ())]
                if outside and self.part.inside:
                    ends.append(_end("output", v, _labels_of(outside)))
                for box in ends:
                    source = self._place(node)
                    assert source is not None
                    self.picture.boxes.append(box)
                    self.picture.arrows.append(Arrow(source, len(self.picture.boxes) - 1))


def _end(title: str, v: Value, names: Sequence[str]) -> Box:
    text = elided(title, TITLE_WIDTH)
    return Box(text, [type_text(v.type)], SOURCE, "end", [f"{title}: {v.type}"], list(names))


def _labels_of(nodes: Sequence[Node]) -> list[str]:
    return [n.op.name if isinstance(n.op, Input) else n.label for n in nodes]


def _titles(paths: Sequence[Path], depth: int) -> dict[Path, str]:
    """Return short names of parts: the last component, or all where that is not unique."""
    last = Counter(p[-1] for p in paths)
    shown = {p: p[-1] if last[p[-1]] == 1 else "/".join(p[depth:]) for p in paths}
    return {p: elided(text, TITLE_WIDTH) for p, text in shown.items()}


def _block(title: str, nodes: Sequence[Node]) -> Box:
    shown = Counter(n.op.title for n in nodes if not is_arranging(n.op))
    counts = shown or Counter(n.op.title for n in nodes)
    lines = [f"{n} × {kind}" if n > 1 else kind for kind, n in counts.most_common(MAX_KINDS)]
    if len(counts) > MAX_KINDS:
        lines.append(f"and {len(counts) - MAX_KINDS} more kinds")
    families = {family_of(n.op) for n in nodes}
    family = next((f for f in HEAVY if f in families), OTHER)
    details = [f"{title}: {len(nodes)} operations"]
    details += [f"{n} × {kind}" for kind, n in Counter(n.op.title for n in nodes).most_common()]
    return Box(title, lines, family, "block", details)
