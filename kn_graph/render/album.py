"""From a graph to its pictures."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kn_graph.graph import Graph
from kn_graph.render.drawing import picture_of
from kn_graph.render.labels import Labels
from kn_graph.render.picture import Album, Level, Picture
from kn_graph.render.scene import Part, Scene
from kn_graph.value import Node

__all__ = ["Options", "album_of"]


@dataclass(frozen=True)
class Options:
    """What to draw of a graph, and how much of it.

    Attributes:
        hide_const: leave constants out altogether; else they are lines of their readers.
        show_ids: begin each box with the number of its node.
        values: intermediate values by ONNX tensor name or `%number`: their range is shown.
        level: what one sees first: every operation, or one box for each block of the model.
        around: an ONNX node or tensor, or `%number`: draw only what is near it.
        distance: how many steps near is.
    """

    hide_const: bool = False
    show_ids: bool = False
    values: Mapping[str, Any] | None = None
    level: Level = "ops"
    around: str | None = None
    distance: int = 3


def album_of(graph: Graph, options: Options | None = None, *, inner: bool = True) -> Album:
    """Return the pictures of a graph; dead nodes are left out.

    Args:
        graph: any graph.
        options: what to draw.
        inner: draw what is inside of boxes as well, not only the first picture.

    Raises:
        GraphError: there is nothing of the name that `around` gives.
    """
    options = options or Options()
    scene = Scene(graph)
    center = _node_of(scene, options.around) if options.around is not None else None
    if center is not None:
        scene = scene.near(center, options.distance)
    labels = Labels(options.hide_const, options.show_ids, options.values or {})
    painter = _Painter(labels, center, inner)
    flat = options.level == "ops" or center is not None
    first = painter.paint(Part(scene, scene.nodes, flat=flat))
    other = None
    if inner and flat and center is None:
        folded = Part(scene, scene.nodes)
        other = painter.paint(folded) if folded.members else None
    return Album(graph.name, painter.pages, first, other)


def _node_of(scene: Scene, name: str) -> Node:
    """Return the node that an ONNX node or tensor became, or that makes `%number`."""
    for node in scene.nodes:
        if name in node.origins:
            return node
    return scene.graph.find(name).node


@dataclass
class _Painter:
    """Paints inner pictures before outer ones: equal ones are then found by their looks."""

    labels: Labels
    center: Node | None
    inner: bool
    pages: list[Picture] = field(default_factory=list)
    known: dict[Hashable, int] = field(default_factory=dict)

    def paint(self, whole: Part) -> int:
        """Paint a picture and all that its boxes open; return its number."""
        parts: list[Part] = [whole]
        owners: list[tuple[int, Hashable]] = [(0, None)]
        for i, part in enumerate(parts):  # grows while it is walked
            inner = list(part.inner()) if self.inner else []
            parts += [p for _, p in reversed(inner)]
            owners += [(i, key) for key, _ in reversed(inner)]
        opens: list[dict[Any, list[int]]] = [{} for _ in parts]
        number = 0
        for i in reversed(range(len(parts))):
            number = self._number_of(picture_of(parts[i], self.labels, opens[i], self.center))
            owner, key = owners[i]
            opens[owner].setdefault(key, []).append(number)
        return number

    def _number_of(self, picture: Picture) -> int:
        """Return the number of a picture that looks the same, which gets its names too."""
        number = self.known.setdefault(picture.look, len(self.pages))
        if number == len(self.pages):
            self.pages.append(picture)
        for mine, theirs in zip(self.pages[number].boxes, picture.boxes, strict=True):
            mine.names = list(dict.fromkeys((*mine.names, *theirs.names)))
        return number
