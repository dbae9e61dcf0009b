"""Building methods of the quantize family."""

from __future__ import annotations

from kn_graph.builder.base import Builder

__all__ = ["QuantizeBuilder"]


class QuantizeBuilder(Builder):
    """See the module."""
