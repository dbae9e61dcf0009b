"""`kn svg`: draw a model."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

from kn_graph.errors import UsageError
from kn_graph.graph import Graph
from kn_runtime.cli.common import add_dims, add_model, dims_of, emit_json, show

__all__ = ["EXAMPLES", "add_arguments", "execute"]

EXAMPLES = """examples:
  kn svg model.onnx -o model.svg
  kn svg model.onnx -o blocks.svg --level blocks --optimized
  kn svg model.onnx -o part.svg --around /encoder/Add_output_0
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
    parser.add_argument("--around", metavar="VALUE", help="draw only what is near a value")
    parser.add_argument("--hide-const", action="store_true", help="leave constants out")
    parser.add_argument("--show-ids", action="store_true", help="show node numbers")
    parser.add_argument("--values", metavar="FILE.npz", help="values by name: show their ranges")
    parser.add_argument("--format", choices=("svg", "dot", "mermaid"), default="svg")
    add_dims(parser)


def execute(args: argparse.Namespace) -> int:
    """Draw."""
    from kn_graph.render.picture import picture_of
    from kn_graph.render.svg import svg_text
    from kn_graph.render.text_formats import dot_text, mermaid_text

    if args.format == "svg" and args.output is None:
        raise UsageError("an SVG needs a file: -o model.svg")
    picture = picture_of(
        _graph(args),
        hide_const=args.hide_const,
        show_ids=args.show_ids,
        values=_values(args.values),
        level=args.level,
        around=args.around,
    )
    if args.format == "mermaid":
        text = mermaid_text(picture)
    else:
        text = dot_text(picture)
        text = svg_text(text) if args.format == "svg" else text
    if args.output is None:
        sys.stdout.write(text)
        return 0
    try:
        Path(args.output).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{args.output} cannot be written: {error.strerror}") from None
    facts = {"file": args.output, "boxes": len(picture.boxes), "arrows": len(picture.arrows)}
    if args.json:
        emit_json(facts)
    else:
        show(f"{args.output}: {facts['boxes']} boxes, {facts['arrows']} arrows")
    return 0


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
