"""Converters of operators that read by index."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kn_graph.onnx.registry import converter

if TYPE_CHECKING:
    from kn_graph.onnx.context import NodeContext
    from kn_graph.value import Value

__all__: list[str] = []


@converter("Gather")
def gather(ctx: NodeContext) -> Value:
    """Slices of an axis."""
    return ctx.graph.gather(ctx.input(0), ctx.input(1), ctx.integer("axis", 0))


@converter("GatherElements")
def gather_elements(ctx: NodeContext) -> Value:
    """One element for each index."""
    return ctx.graph.gather_elements(ctx.input(0), ctx.input(1), ctx.integer("axis", 0))


@converter("GatherND")
def gather_nd(ctx: NodeContext) -> Value:
    """Slices by index tuples."""
    batch_axes = ctx.integer("batch_dims", 0) if ctx.opset >= 12 else 0
    return ctx.graph.gather_nd(ctx.input(0), ctx.input(1), batch_axes)
