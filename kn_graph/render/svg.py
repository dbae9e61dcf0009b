"""Pictures as SVG, laid out by Graphviz, searchable and clickable in a browser."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kn_graph.errors import UsageError
from kn_graph.graph import Graph
from kn_graph.render.picture import Level, picture_of
from kn_graph.render.text_formats import dot_text

__all__ = ["find_dot", "graph_to_svg", "svg_text"]

SCRIPT = Path(__file__).with_name("browse.svg.txt")


def find_dot() -> str:
    """Return the path of Graphviz: `dot` on PATH, or the one of the pip package graphviz-pure.

    Raises:
        UsageError: there is none.
    """
    here = str(Path(sys.executable).parent)  # where pip puts scripts, on PATH or not
    found = shutil.which("dot") or shutil.which("graphviz-pure")
    found = found or shutil.which("graphviz-pure", path=here)
    if found is None:
        raise UsageError(
            "drawing needs Graphviz, and no `dot` was found: apt install graphviz, or "
            "pip install graphviz-pure"
        )
    return found


def svg_text(dot: str) -> str:
    """Lay text in the language of Graphviz out, and return the SVG with search and clicks added.

    Raises:
        UsageError: Graphviz is missing or fails.
    """
    command = [find_dot(), "-Kdot", "-Tsvg"]
    done = subprocess.run(command, input=dot.encode(), capture_output=True, check=False)
    if done.returncode:
        raise UsageError(f"Graphviz failed: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout.decode().replace("</svg>", SCRIPT.read_text() + "</svg>")


def graph_to_svg(
    graph: Graph,
    path: str | os.PathLike[str],
    hide_const: bool = False,
    show_ids: bool = False,
    values: Mapping[str, Any] | None = None,
    *,
    level: Level = "ops",
    around: str | None = None,
) -> None:
    """Draw a graph into an SVG file.

    Args:
        graph: any graph.
        path: the file to write.
        hide_const: leave constants out; else they are lines in the boxes of their readers.
        show_ids: show node numbers.
        values: intermediate values by name (see `cpu_eval_graph(keep="all")`): ranges are shown.
        level: "ops", or "blocks" for one box a part of the model.
        around: draw only what is near a value.

    Raises:
        UsageError: Graphviz is not installed.
    """
    picture = picture_of(
        graph,
        hide_const=hide_const,
        show_ids=show_ids,
        values=values,
        level=level,
        around=around,
    )
    Path(path).write_text(svg_text(dot_text(picture)), encoding="utf-8")
