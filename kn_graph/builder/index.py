"""Building methods of the index family."""

from __future__ import annotations

from kn_graph.builder.base import Builder

__all__ = ["IndexBuilder"]


class IndexBuilder(Builder):
    """See the module."""
