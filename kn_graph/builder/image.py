"""Building methods of the image family."""

from __future__ import annotations

from kn_graph.builder.base import Builder

__all__ = ["ImageBuilder"]


class ImageBuilder(Builder):
    """See the module."""
