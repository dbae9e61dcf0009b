"""Pictures as text: the language of Graphviz, and Mermaid."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from kn_graph.render.picture import Box, Picture

__all__ = ["dot_text", "mermaid_text"]

FONT = "Helvetica"
GRAPH = {"rankdir": "TB", "nodesep": "0.25", "ranksep": "0.35", "fontname": FONT}
NODE = {
    "shape": "box",
    "style": "filled,rounded",
    "fontname": FONT,
    "fontsize": "10",
    "margin": "0.1,0.05",
    "color": "#888888",
    "penwidth": "0.8",
}
EDGE = {
    "fontname": FONT,
    "fontsize": "8",
    "color": "#777777",
    "fontcolor": "#555555",
    "arrowsize": "0.6",
}
CLUSTER = {"style": "rounded,dashed", "color": "#bbbbbb", "fontcolor": "#777777", "fontsize": "9"}


def dot_text(picture: Picture) -> str:
    """Return a picture in the language of Graphviz; parts of the model are clusters."""
    from graphviz import Digraph, escape

    keys = {box.key: f"b{i}" for i, box in enumerate(picture.boxes)}
    drawing = Digraph(picture.name, graph_attr=GRAPH, node_attr=NODE, edge_attr=EDGE)
    groups: dict[str, list[Box]] = {}
    for box in picture.boxes:
        groups.setdefault("/".join(box.block[:3]), []).append(box)
    for number, (block, boxes) in enumerate(groups.items()):
        if not block or len(boxes) == 1:
            _add_boxes(drawing, boxes, keys)
            continue
        with drawing.subgraph(name=f"cluster_{number}") as cluster:
            cluster.attr(label=escape(block), **CLUSTER)
            _add_boxes(cluster, boxes, keys)
    for arrow in picture.arrows:
        drawing.edge(keys[arrow.source], keys[arrow.target], escape(arrow.label))
    return str(drawing.source)


def _add_boxes(drawing: Any, boxes: Sequence[Box], keys: Mapping[str, str]) -> None:
    from graphviz import escape

    for box in boxes:
        drawing.node(
            keys[box.key],
            "\\n".join(escape(line) for line in [box.title, *filter(None, box.lines)]),
            tooltip="\\n".join(escape(line) for line in box.tooltip.split("\n")),
            fillcolor=box.colour,
            **{"class": box.family},
        )


def mermaid_text(picture: Picture) -> str:
    """Return a picture as a Mermaid flowchart."""
    keys = {box.key: f"b{i}" for i, box in enumerate(picture.boxes)}
    lines = ["flowchart TD"]
    for box in picture.boxes:
        label = "<br/>".join(_plain(x) for x in [box.title, *filter(None, box.lines)])
        lines.append(f'  {keys[box.key]}["{label}"]')
        lines.append(f"  style {keys[box.key]} fill:{box.colour}")
    for arrow in picture.arrows:
        label = f'|"{_plain(arrow.label)}"|' if arrow.label else ""
        lines.append(f"  {keys[arrow.source]} -->{label} {keys[arrow.target]}")
    return "\n".join(lines) + "\n"


def _plain(text: str) -> str:
    return re.sub(r'["\[\]{}|<>]', lambda m: f"#{ord(m[0])};", text)
