"""Pictures as text: the language of Graphviz, and Mermaid."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from kn_graph.render.families import FAMILIES, colour_of
from kn_graph.render.markup import escaped, printable
from kn_graph.render.picture import Box, Picture

__all__ = ["FONT", "dot_text", "mermaid_text"]

FONT = "Helvetica"
GRAPH = {"rankdir": "TB", "nodesep": "0.2", "ranksep": "0.3", "fontname": FONT, "pad": "0.05"}
NODE = {
    "shape": "box",
    "style": "filled,rounded",
    "fontname": FONT,
    "fontsize": "11",
    "margin": "0.12,0.06",
    "height": "0.3",
    "width": "0.6",
    "color": "#7a7a7a",
    "penwidth": "0.7",
}
EDGE = {
    "fontname": FONT,
    "fontsize": "8",
    "color": "#8a8a8a",
    "fontcolor": "#4a4a4a",
    "arrowsize": "0.5",
    "penwidth": "0.9",
}
CLUSTER = {"style": "rounded,dashed", "color": "#b5b5b5", "fontcolor": "#777777", "fontsize": "9"}
SHAPES = {
    "op": {},
    "small": {"fontsize": "9", "margin": "0.06,0.03", "height": "0.2", "width": "0.3"},
    "block": {"margin": "0.16,0.09"},
    "end": {"style": "filled"},
}
OPENS = {"penwidth": "2", "color": "#555555"}
MARK = {"color": "#d00000", "penwidth": "2.5"}

QUICK = {"nslimit": "2", "nslimit1": "2", "mclimit": "0.3", "splines": "polyline"}
QUICK_FROM = 800
"""Pictures of more boxes are laid out less carefully, which takes seconds instead of minutes."""

ROOM = "  "
"""Beside the text along an arrow: not every engine and browser has the same font."""


def dot_text(picture: Picture, *, details: bool = True) -> str:
    """Return a picture in the language of Graphviz; parts of the model are clusters.

    Args:
        picture: what to write.
        details: write what the boxes' tooltips say.
    """
    from graphviz import Digraph

    attributes = GRAPH | QUICK if len(picture.boxes) >= QUICK_FROM else GRAPH
    drawing = Digraph(_quoted(picture.name), graph_attr=attributes, node_attr=NODE, edge_attr=EDGE)
    clusters: dict[str, list[int]] = {}
    for i, box in enumerate(picture.boxes):
        clusters.setdefault(box.cluster, []).append(i)
    for number, (name, members) in enumerate(clusters.items()):
        if not name or len(members) == 1:
            _add_boxes(drawing, picture, members, details)
            continue
        with drawing.subgraph(name=f"cluster_{number}") as cluster:
            cluster.attr(label=_quoted(name), **CLUSTER)
            _add_boxes(cluster, picture, members, details)
    for arrow in picture.arrows:
        label = f"{ROOM}{_quoted(arrow.label)}{ROOM}" if arrow.label else None
        drawing.edge(f"b{arrow.source}", f"b{arrow.target}", label)
    return str(drawing.source)


def _add_boxes(drawing: Any, picture: Picture, members: Sequence[int], details: bool) -> None:
    for i in members:
        box = picture.boxes[i]
        drawing.node(
            f"b{i}",
            _label(box),
            fillcolor=colour_of(box.family),
            tooltip=_quoted(*_told(box)) if details else " ",
            **{"class": " ".join([box.shape, *(f"opens-{n}" for n in box.opens)])},
            **SHAPES[box.shape],
            **(MARK if box.marked else OPENS if box.opens else {}),
        )


def _told(box: Box) -> list[str]:
    return [*box.details, "names in the model file:", *box.names] if box.names else box.details


def _label(box: Box) -> str:
    """Return a label in Graphviz's own dialect of HTML: the title bold, the rest smaller."""
    title = escaped(box.title) or "&#160;"
    title = title if box.shape == "small" else f"<b>{title}</b>"
    lines = [f'<font point-size="9">{escaped(line)}</font>' for line in box.lines]
    return f"<{'<br/>'.join([title, *lines])}>"


def _quoted(*lines: str) -> str:
    """Return text that Graphviz shows as it is: it knows backslashes, and entities of HTML."""
    from graphviz import escape

    return escape("&#10;".join(printable(line).replace("&", "&amp;") for line in lines))  # type: ignore[no-any-return]


def mermaid_text(picture: Picture) -> str:
    """Return a picture as a Mermaid flowchart."""
    lines = ["flowchart TD"]
    used: dict[str, list[str]] = {}
    for i, box in enumerate(picture.boxes):
        label = "<br/>".join(_entities(x) for x in [box.title, *box.lines]) or " "
        start, end = ("([", "])") if box.shape == "end" else ("[", "]")
        lines.append(f'  b{i}{start}"{label}"{end}')
        used.setdefault(box.family, []).append(f"b{i}")
    for arrow in picture.arrows:
        label = f'|"{_entities(arrow.label)}"|' if arrow.label else ""
        lines.append(f"  b{arrow.source} -->{label} b{arrow.target}")
    for number, family in enumerate(FAMILIES):
        if family in used:
            lines.append(f"  classDef f{number} fill:{colour_of(family)},stroke:#7a7a7a,color:#000")
            lines.append(f"  class {','.join(used[family])} f{number}")
    return "\n".join(lines) + "\n"


def _entities(text: str) -> str:
    """Return text for a quoted label of Mermaid, which knows `#number;` and Markdown."""
    return re.sub(r'["\[\]{}|<>#;&`*_\\]', lambda m: f"#{ord(m[0])};", printable(text))
