"""Building methods of the recurrent family."""

from __future__ import annotations

from kn_graph.builder.base import Builder

__all__ = ["RecurrentBuilder"]


class RecurrentBuilder(Builder):
    """See the module."""
