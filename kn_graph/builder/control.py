"""Building methods of the control family."""

from __future__ import annotations

from kn_graph.builder.base import Builder

__all__ = ["ControlBuilder"]


class ControlBuilder(Builder):
    """See the module."""
