"""Pictures of graphs: SVG, Graphviz and Mermaid text."""

from __future__ import annotations

from kn_graph.graph import Graph
from kn_graph.render.album import Options, album_of
from kn_graph.render.picture import Level
from kn_graph.render.svg import graph_to_svg
from kn_graph.render.text_formats import dot_text, mermaid_text

__all__ = ["Level", "graph_to_dot", "graph_to_mermaid", "graph_to_svg"]


def graph_to_dot(graph: Graph, *, level: Level = "ops", hide_const: bool = False) -> str:
    """Return a graph in the language of Graphviz."""
    return dot_text(album_of(graph, Options(hide_const, level=level), inner=False).picture)


def graph_to_mermaid(graph: Graph, *, level: Level = "ops", hide_const: bool = False) -> str:
    """Return a graph as a Mermaid flowchart."""
    return mermaid_text(album_of(graph, Options(hide_const, level=level), inner=False).picture)
