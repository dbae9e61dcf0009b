"""Which ONNX node is being built."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kn_graph.graph import Graph

__all__ = ["Origin"]


class Origin:
    """While it is entered, what a graph builds stands for an ONNX node; see `Graph.origin`.

    A class, since every node of a model enters it, and a generator takes three times as long.
    """

    __slots__ = ("_graph", "_name")

    def __init__(self, graph: Graph, name: str | None) -> None:
        self._graph, self._name = graph, name

    def __enter__(self) -> None:
        """Take over."""
        self._swap()

    def __exit__(self, *error: object) -> None:
        """Go back to what was before."""
        self._swap()

    def _swap(self) -> None:
        self._graph._origin, self._name = self._name, self._graph._origin
