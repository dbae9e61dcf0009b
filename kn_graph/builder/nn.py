"""Building methods of the nn family."""

from __future__ import annotations

from kn_graph.builder.base import Builder

__all__ = ["NnBuilder"]


class NnBuilder(Builder):
    """See the module."""
