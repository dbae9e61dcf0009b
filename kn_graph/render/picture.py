"""What a picture of a graph shows: boxes, arrows and blocks, still without a format."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from kn_graph.dtype import DType
from kn_graph.graph import Graph
from kn_graph.liveness import bodies_of, live_nodes
from kn_graph.ops.layout import Broadcast, Permute, Slice, View
from kn_graph.ops.source import Constant, Input, ReadSizes
from kn_graph.render.families import family_of
from kn_graph.types import TensorType, ValueType
from kn_graph.value import Node, Value

__all__ = ["Arrow", "Box", "Level", "Picture", "picture_of"]

Level = Literal["ops", "blocks"]


@dataclass
class Box:
    """A node of the picture.

    Attributes:
        key: unique name.
        title: first line.
        lines: further lines.
        tooltip: everything there is to say.
        family: what it is coloured by.
        colour: of the filling.
        block: the part of the model it belongs to, as path components.
    """

    key: str
    title: str
    lines: list[str] = field(default_factory=list)
    tooltip: str = ""
    family: str = "other"
    colour: str = "#ffffff"
    block: tuple[str, ...] = ()


@dataclass(frozen=True)
class Arrow:
    """An edge of the picture, with the type that flows along it."""

    source: str
    target: str
    label: str = ""


@dataclass
class Picture:
    """Boxes and arrows of one graph."""

    name: str
    boxes: list[Box] = field(default_factory=list)
    arrows: list[Arrow] = field(default_factory=list)


def picture_of(
    graph: Graph,
    *,
    hide_const: bool = False,
    show_ids: bool = False,
    values: Mapping[str, Any] | None = None,
    level: Level = "ops",
    around: str | None = None,
    distance: int = 3,
) -> Picture:
    """Return what to draw of a graph; dead nodes are left out.

    Args:
        graph: any graph.
        hide_const: leave constants out altogether; else small ones stand inside their readers.
        show_ids: begin each box with the number of its node.
        values: intermediate values by ONNX tensor name or `%number`: their range is shown.
        level: every operation, or one box for each block of the model (by the paths in its names).
        around: a value (name or `%number`): draw only what is near it.
        distance: how many steps near is.
    """
    nodes = live_nodes(graph, graph.outputs.values())
    if around is not None:
        nodes = _near(nodes, graph.find(around).node, distance)
    drawn = [n for n in nodes if not _folded_away(n)]
    if level == "blocks":
        return _blocks(graph, drawn)
    picture = Picture(graph.name)
    shown = set(drawn)
    for node in drawn:
        picture.boxes.append(_box(node, show_ids, hide_const, values or {}))
        for v in node.operands:
            source = _through(v)
            if source.node in shown:
                label = _type_text(v.type)
                picture.arrows.append(Arrow(_key(source.node), _key(node), label))
    _add_outputs(picture, graph, shown)
    return picture


def _near(nodes: Sequence[Node], center: Node, distance: int) -> list[Node]:
    neighbours: dict[Node, set[Node]] = {}
    for node in nodes:
        for v in node.operands:
            neighbours.setdefault(node, set()).add(v.node)
            neighbours.setdefault(v.node, set()).add(node)
    reached, border = {center}, {center}
    for _ in range(distance):
        border = {m for n in border for m in neighbours.get(n, ())} - reached
        reached |= border
    return [n for n in nodes if n in reached]


def _constant_of(v: Value) -> np.ndarray[Any, Any] | None:
    """Return the constant behind operations that only arrange it."""
    while isinstance(v.node.op, (View, Broadcast, Permute, Slice)):
        (v,) = v.node.operands
    return v.constant


def _through(v: Value) -> Value:
    """Look through nodes that only bind sizes."""
    while isinstance(v.node.op, ReadSizes):
        (v,) = v.node.operands
    return v


def _folded_away(node: Node) -> bool:
    """Constants, and views of them, are lines in the boxes of their readers."""
    if isinstance(node.op, ReadSizes):
        return True
    return bool(node.results) and _constant_of(node.results[0]) is not None


def _key(node: Node) -> str:
    return f"n{node.index}"


def _box(node: Node, show_ids: bool, hide_const: bool, values: Mapping[str, Any]) -> Box:
    family, colour = family_of(node.op)
    op = node.op
    title = op.name if isinstance(op, Input) else _attributes(node)
    lines = [] if hide_const else _constant_lines(node)
    for body in bodies_of(node):
        lines.append(f"{body.name}: {len(body.nodes)} nodes")
    for v in node.results:
        if len(node.results) > 1 or isinstance(op, Input):
            lines.append(_type_text(v.type))
        lines += [_range_text(values[n]) for n in (*v.names, v.name) if n in values][:1]
    names = [n for v in node.results for n in v.names]
    tooltip = "\n".join([op.describe(), *node.origins, *names])
    title = f"%{node.index} {title}" if show_ids else title
    return Box(_key(node), title, lines, tooltip, family, colour, _block_of(node))


def _attributes(node: Node) -> str:
    text = node.op.describe()
    name, _, rest = text.partition("(")
    if isinstance(node.op, (View, Broadcast)) or len(rest) > 44 or rest in ("", ")"):
        return name
    return text


def _constant_lines(node: Node) -> list[str]:
    lines = []
    for v in node.operands:
        a = _constant_of(v)
        if a is None:
            continue
        if a.size == 1:
            lines.append(f"{a.reshape(-1)[0]:.6g}" if a.dtype.kind == "f" else f"{a.item()}")
        else:
            lines.append(f"{DType.from_numpy(a.dtype)}{list(a.shape)}")
    return lines


def _type_text(t: ValueType) -> str:
    if isinstance(t, TensorType):
        return f"{t.dtype} " + " × ".join(str(s) for s in t.shape) if t.shape else str(t.dtype)
    return str(t)


def _range_text(x: Any) -> str:
    if not isinstance(x, np.ndarray) or not x.size or x.dtype.kind not in "fiu":
        return ""
    wide = x.astype(np.float64)
    bad = int((~np.isfinite(wide)).sum())
    text = f"{np.nanmin(wide):.4g} .. {np.nanmax(wide):.4g}"
    return f"{text}, {bad} not finite" if bad else text


def _block_of(node: Node) -> tuple[str, ...]:
    """Return the path of the model part that a node comes from, of its first ONNX name."""
    for origin in node.origins:
        parts = [p for p in re.split(r"/+", origin) if p][:-1]
        if parts:
            return tuple(parts)
    return ()


def _add_outputs(picture: Picture, graph: Graph, shown: set[Node]) -> None:
    for name, v in graph.outputs.items():
        if v.node in shown:
            key = f"out_{len(picture.boxes)}"
            lines = [_type_text(v.type)]
            picture.boxes.append(Box(key, name, lines, name, "source", "#e8e8e8"))
            picture.arrows.append(Arrow(_key(v.node), key))


def _blocks(graph: Graph, nodes: Sequence[Node]) -> Picture:
    """One box a block: the nodes whose names share the path down to the first numbered part."""
    picture = Picture(graph.name)
    keys: dict[Node, str] = {}
    members: dict[str, list[Node]] = {}
    last = ""
    for node in nodes:
        name = "/".join(_short_block(_block_of(node))) or (
            last if node.operands else f"%{node.index}"
        )
        name = f"%{node.index}" if isinstance(node.op, Input) else name or f"%{node.index}"
        keys[node] = name
        members.setdefault(name, []).append(node)
        last = name if node.operands else last
    for name, inside in members.items():
        picture.boxes.append(_block_box(name, inside))
    seen = set()
    for node in nodes:
        for v in node.operands:
            source = keys.get(_through(v).node)
            if source is not None and source != keys[node] and (source, keys[node]) not in seen:
                seen.add((source, keys[node]))
                picture.arrows.append(Arrow(source, keys[node], _type_text(v.type)))
    for name, v in graph.outputs.items():
        if v.node in keys:
            key = f"output {name}"
            picture.boxes.append(Box(key, name, [_type_text(v.type)], name, "source", "#e8e8e8"))
            picture.arrows.append(Arrow(keys[v.node], key))
    return picture


def _short_block(path: Sequence[str]) -> list[str]:
    kept: list[str] = []
    for part in path:
        kept.append(part)
        if re.search(r"\d", part):
            break
    return kept[:4]


def _block_box(name: str, nodes: Sequence[Node]) -> Box:
    if len(nodes) == 1 and isinstance(nodes[0].op, Input):
        box = _box(nodes[0], False, True, {})
        box.key = name
        return box
    counts = Counter(n.op.title for n in nodes if not isinstance(n.op, (View, Broadcast, Constant)))
    lines = [f"{n} x {title}" if n > 1 else title for title, n in counts.most_common(6)]
    if len(counts) > 6:
        lines.append(f"and {len(counts) - 6} more kinds")
    heavy = max(nodes, key=lambda n: family_of(n.op)[0] == "product")
    family, colour = family_of(heavy.op)
    tooltip = "\n".join(f"{n} x {title}" for title, n in counts.most_common())
    return Box(name, name, lines, tooltip, family, colour)
