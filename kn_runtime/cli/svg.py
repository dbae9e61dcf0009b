"""`kn svg`: draw a model."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

from kn_graph.errors import UsageError
from kn_graph.graph import Graph
from kn_graph.render.picture import Album
from kn_runtime.cli.arguments import add_dims, add_model, dims_of
from kn_runtime.cli.common import emit_json, show

__all__ = ["EXAMPLES", "add_arguments", "execute"]

EXAMPLES = """examples:
  kn svg model.onnx -o model.svg
  kn svg model.onnx -o blocks.svg --level blocks --optimized
  kn svg model.onnx -o part.svg --around /encoder/Add
  kn svg model.onnx --format mermaid
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    add_model(parser)
    parser.add_argument("-o", "--output", metavar="FILE", help="where to write (text: stdout)")
    parser.add_argument("--optimized", action="store_true", help="draw the optimized graph")
    parser.add_argument(
        "--level", choices=("ops", "blocks"), default="ops", help="how much to show"
    )
    parser.add_argument("--around", metavar="NODE", help="draw only what is near a node or tensor")
    parser.add_argument(
        "--distance", type=int, default=3, metavar="N", help="how many steps near is (default: 3)"
    )
    parser.add_argument("--hide-const", action="store_true", help="leave constants out")
    parser.add_argument("--show-ids", action="store_true", help="show node numbers")
    parser.add_argument("--values", metavar="FILE.npz", help="values by name: show their ranges")
    parser.add_argument("--format", choices=("svg", "dot", "mermaid"), default="svg")
    add_dims(parser)


def execute(args: argparse.Namespace) -> int:
    """Draw."""
    from kn_graph.render.album import Options, album_of

    if args.format == "svg" and args.output is None:
        raise UsageError("an SVG needs a file: -o model.svg")
    if args.distance < 0:
        raise UsageError(f"--distance: expected a whole number of 0 or more, got {args.distance}")
    options = Options(
        hide_const=args.hide_const,
        show_ids=args.show_ids,
        values=_values(args.values),
        level=args.level,
        around=args.around,
        distance=args.distance,
    )
    album = album_of(_graph(args), options, inner=args.format == "svg")
    text = _text(album, args.format)
    if args.output is None:
        sys.stdout.write(text)
        return 0
    try:
        Path(args.output).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{args.output} cannot be written: {error.strerror}") from None
    facts = {
        "file": args.output,
        "boxes": len(album.picture.boxes),
        "arrows": len(album.picture.arrows),
        "pictures": len(album.pages),
    }
    if args.json:
        emit_json(facts)
    else:
        show("{file}: {boxes} boxes, {arrows} arrows, {pictures} pictures".format(**facts))
    return 0


def _text(album: Album, format: str) -> str:
    from kn_graph.render.svg import svg_text
    from kn_graph.render.text_formats import dot_text, mermaid_text

    if format == "svg":
        return svg_text(album)
    return dot_text(album.picture) if format == "dot" else mermaid_text(album.picture)


def _graph(args: argparse.Namespace) -> Graph:
    from kn_graph.onnx import load_graph_from_onnx_path
    from kn_graph.optimizer import optimize_graph

    graph = load_graph_from_onnx_path(args.model, dims=dims_of(args))
    return optimize_graph(graph) if args.optimized else graph


def _values(path: str | None) -> dict[str, np.ndarray] | None:
    if path is None:
        return None
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except (OSError, ValueError) as error:
        raise UsageError(f"--values {path} cannot be read: {error}") from None
