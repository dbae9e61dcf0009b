"""Pictures as SVG, laid out by Graphviz, searchable and clickable in a browser."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kn_graph.errors import UsageError
from kn_graph.graph import Graph
from kn_graph.render.album import Options, album_of
from kn_graph.render.engine import layout_svg
from kn_graph.render.families import FAMILIES, colour_of
from kn_graph.render.markup import escaped
from kn_graph.render.picture import Album, Level
from kn_graph.render.text_formats import FONT, dot_text

__all__ = ["graph_to_svg", "notebook_svg", "svg_text"]

SCRIPT = Path(__file__).with_name("browse.svg.txt")

LEGEND_WIDTH, LEGEND_ROW, LETTER = 420, 16, 4.8
"""In points: least width of a picture, so that a legend fits; height of its rows; a letter's."""

NOTEBOOK_BOXES = 200
"""Notebooks show larger graphs folded."""

NOISE = re.compile(
    r"<!--.*?-->\s*| id=\"[^\"]*\"(?= class=)|<g id=\"a_[^>]*>|(?<=</a>)\s*</g>"
    r"| xml:space=\"preserve\"|\r"
    rf"| font-family=\"{FONT}[^\"]*\"| font-size=\"11.00\"| text-anchor=\"middle\"",
    re.DOTALL,
)
"""Said once at the top, or of no use: a third of the file. Ids would not be unique."""


NODE = re.compile(r'<g class="node.*?</g>', re.DOTALL)
OUTLINE = re.compile(r'<path ([^>]*?) ?d="([^"]+)"/>')
CORNERS = re.compile(r'<polygon ([^>]*?) ?points="([^"]+)"/>')
START = re.compile(r'text-anchor="start" x="[^"]*"')


@dataclass(frozen=True)
class _Page:
    """A picture as laid out: the elements inside its outermost one, and its size in points."""

    body: str
    width: float
    height: float


def svg_text(album: Album, *, script: bool = True) -> str:
    """Return pictures as one SVG.

    Without a script, or where none is run, it shows the first; with it, boxes open the others.

    Raises:
        UsageError: Graphviz is missing or fails.
    """
    first = album.first
    numbers = range(len(album.pages)) if script else [first]
    pages = {i: _page(layout_svg(dot_text(album.pages[i]))) for i in numbers}
    width = max(pages[first].width, LEGEND_WIDTH)
    legend, top = _legend(album, width)
    height, left = pages[first].height + top, (width - pages[first].width) / 2
    other = "" if album.other is None else f' data-other="{album.other}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
        f' width="{width:.0f}pt" height="{height:.0f}pt" viewBox="0 0 {width:.0f} {height:.0f}"'
        f' font-family="{FONT},Arial,sans-serif" font-size="11" data-first="{first}"{other}>',
        f"<title>{escaped(album.name)}</title>",
        '<rect width="100%" height="100%" fill="white"/>',
        f'<g class="stage" text-anchor="middle" transform="translate({left:.0f} {top})">',
        *(_page_element(album, i, page) for i, page in pages.items()),
        f"</g>\n{legend}",
        *([SCRIPT.read_text("utf-8")] if script else []),
        "</svg>\n",
    ]
    return "\n".join(parts)


def _page(svg: str) -> _Page:
    start = svg.index("<svg")
    box = re.search(r'viewBox="0(?:\.0+)? 0(?:\.0+)? ([\d.]+) ([\d.]+)"', svg[start:])
    if box is None:
        raise UsageError("Graphviz wrote an SVG without a size")
    body = svg[svg.index(">", start) + 1 : svg.rindex("</svg>")]
    body = NODE.sub(_tidied, NOISE.sub("", body).replace("&#45;", "-"))
    return _Page(body.strip(), float(box[1]), float(box[2]))


def _tidied(node: re.Match[str]) -> str:
    """Write the outline of a box as a rectangle, and its lines centred in that.

    Graphviz writes where each line starts, but a browser's font is not as wide as Graphviz's.
    """
    outline = OUTLINE.search(node[0]) or CORNERS.search(node[0])
    if outline is None:
        return node[0]
    points = [point.split(",") for point in re.split("[ MCLZ]+", outline[2]) if point]
    x, y = ([float(point[axis]) for point in points] for axis in (0, 1))
    left, top, width, height = min(x), min(y), max(x) - min(x), max(y) - min(y)
    radius = ' rx="6"' if outline[0].startswith("<path") else ""
    rectangle = (
        f'<rect {outline[1]} x="{left:g}" y="{top:g}" width="{width:g}" height="{height:g}"'
        f"{radius}/>"
    )
    text = node[0].replace(outline[0], rectangle)
    return START.sub(f'x="{left + width / 2:.1f}"', text)


def _page_element(album: Album, number: int, page: _Page) -> str:
    hidden = "" if number == album.first else ' display="none"'
    title = escaped(album.pages[number].name)
    return (
        f'<g class="page" data-page="{number}" data-title="{title}" data-width="{page.width}"'
        f' data-height="{page.height}"{hidden}>\n{page.body}\n</g>'
    )


def _legend(album: Album, width: float) -> tuple[str, int]:
    """Return what colours and borders mean, and the height that it takes."""
    boxes = [box for page in album.pages for box in page.boxes]
    used = {box.family for box in boxes}
    items = [(name, colour_of(name), 0.7) for name in FAMILIES if name in used]
    if any(box.opens for box in boxes):
        items.append(("more inside: click", "white", 2.0))
    x, y, parts = 8.0, 6, []
    for name, colour, border in items:
        step = 24 + LETTER * len(name)
        if x + step > width:
            x, y = 8.0, y + LEGEND_ROW
        parts.append(
            f'<rect x="{x:.0f}" y="{y}" width="10" height="10" rx="2" fill="{colour}"'
            f' stroke="#666" stroke-width="{border}"/>'
            f'<text x="{x + 14:.0f}" y="{y + 9}" font-size="9" fill="#444">{name}</text>'
        )
        x += step
    return f'<g class="legend">{"".join(parts)}</g>', y + LEGEND_ROW


def graph_to_svg(
    graph: Graph,
    path: str | os.PathLike[str],
    hide_const: bool = False,
    show_ids: bool = False,
    values: Mapping[str, Any] | None = None,
    *,
    level: Level = "ops",
    around: str | None = None,
    distance: int = 3,
) -> None:
    """Draw a graph into an SVG file.

    The file needs nothing else. A browser opens the inner pictures of blocks and of control flow
    by a click, searches names, and shows what there is to say of an operation.

    Args:
        graph: any graph.
        path: the file to write.
        hide_const: leave constants out; else they are lines in the boxes of their readers.
        show_ids: show node numbers.
        values: intermediate values by name (see `cpu_eval_graph(keep="all")`): ranges are shown.
        level: what one sees first: "ops", or "blocks" for one box a part of the model.
        around: an ONNX node or tensor, or `%number`: draw only what is near it.
        distance: how many steps near is.

    Raises:
        UsageError: Graphviz is not installed, or the file cannot be written.
    """
    options = Options(hide_const, show_ids, values, level, around, distance)
    text = svg_text(album_of(graph, options))
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{os.fspath(path)} cannot be written: {error.strerror}") from None


def notebook_svg(graph: Graph) -> str | None:
    """Return a picture for a notebook, None where there is no Graphviz."""
    album = album_of(graph, Options(level="blocks"))
    if sum(len(page.boxes) for page in album.pages) <= NOTEBOOK_BOXES:
        album = album_of(graph)
    try:
        return svg_text(album, script=False)
    except UsageError:
        return None
