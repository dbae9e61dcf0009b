"""Boxes and arrows: a picture still without a format."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Literal

from kn_graph.render.families import OTHER

__all__ = ["Album", "Arrow", "Box", "Level", "Picture", "Shape"]

Level = Literal["ops", "blocks"]
Shape = Literal["op", "small", "block", "end"]
"""An operation, one that only arranges elements, several that are folded, what goes in or out."""


@dataclass
class Box:
    """A node of a picture.

    Attributes:
        title: first line.
        lines: further lines.
        family: what it is coloured by.
        shape: how it is drawn.
        details: all there is to say, one fact a line.
        names: what the model file calls it: nodes and tensors, of every block that looks the same.
        cluster: the part of the model that it is framed with.
        opens: numbers of the pictures of what is inside.
        marked: whether to show it with emphasis.
    """

    title: str
    lines: list[str] = field(default_factory=list)
    family: str = OTHER
    shape: Shape = "op"
    details: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    cluster: str = ""
    opens: list[int] = field(default_factory=list)
    marked: bool = False

    @property
    def look(self) -> Hashable:
        """What two boxes have in common that stand at the same place of equal blocks."""
        texts = (self.title, *self.lines, "", *self.details)
        return (texts, self.family, self.shape, self.cluster, tuple(self.opens))


@dataclass(frozen=True)
class Arrow:
    """An edge between two boxes, given by their positions, with the type that flows along it."""

    source: int
    target: int
    label: str = ""


@dataclass
class Picture:
    """Boxes and arrows."""

    name: str
    boxes: list[Box] = field(default_factory=list)
    arrows: list[Arrow] = field(default_factory=list)

    @property
    def look(self) -> Hashable:
        """Equal for blocks that differ in nothing but names and weights."""
        return (tuple(b.look for b in self.boxes), tuple(self.arrows))


@dataclass
class Album:
    """The pictures of one graph: some boxes open others, which show what is inside.

    Attributes:
        name: of the graph.
        pages: the pictures, referred to by number.
        first: the one that shows the whole graph, which one sees first.
        other: the one that shows it folded into blocks, if there is such a one besides.
    """

    name: str
    pages: list[Picture]
    first: int = 0
    other: int | None = None

    @property
    def picture(self) -> Picture:
        """What one sees first."""
        return self.pages[self.first]
