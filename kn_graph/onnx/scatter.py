"""Converters of operators that write by index."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from kn_graph.onnx.registry import converter

if TYPE_CHECKING:
    from kn_graph.onnx.context import NodeContext
    from kn_graph.value import Value

__all__: list[str] = []

REDUCTIONS = {16: ("none", "add", "mul"), 18: ("none", "add", "mul", "max", "min")}
"""Words that the attribute may be, by the opset that introduces them; before there is none."""


def _reduction(ctx: NodeContext) -> Any:
    allowed = [words for since, words in REDUCTIONS.items() if ctx.opset >= since]
    return ctx.choice("reduction", "none", allowed[-1]) if allowed else "none"


@converter("Scatter", "ScatterElements")
def scatter_elements(ctx: NodeContext) -> Value:
    """One element for each index."""
    x, indices, updates = (ctx.input(i) for i in range(3))
    reduction: Any = _reduction(ctx) if ctx.op == "ScatterElements" else "none"
    return ctx.graph.scatter_elements(x, indices, updates, ctx.integer("axis", 0), reduction)


@converter("ScatterND")
def scatter_nd(ctx: NodeContext) -> Value:
    """Slices by index tuples."""
    x, indices, updates = (ctx.input(i) for i in range(3))
    return ctx.graph.scatter_nd(x, indices, updates, _reduction(ctx))


@converter("TensorScatter")
def tensor_scatter(ctx: NodeContext) -> Value:
    """Write an update into a cache, at a place of its own for each element of axis 0."""
    g, cache, update, starts = ctx.graph, ctx.input(0), ctx.input(1), ctx.optional(2)
    mode = ctx.choice("mode", "linear", ("linear", "circular"))
    (axis,) = ctx.normal_axes((ctx.integer("axis", -2),), cache.rank)
    if axis == 0 or update.rank != cache.rank:
        ctx.fail(f"cannot write {update.type} along axis {axis} of a cache {cache.type}")
    # write_indices are per batch element, so positions are [batch, 1.., sequence, 1..]
    places = g.view(g.iota(update.shape[axis]), _along(update, {axis}))
    if starts is not None:
        places = g.add(places, g.view(starts, _along(update, {0})))
    if mode == "circular":
        size = np.array(cache.shape[axis], object)
        places = g.binary("mod", places, g.size_tensor(size))
    return g.scatter_elements(cache, g.broadcast(places, update.shape), update, axis)


def _along(x: Value, axes: set[int]) -> list[Any]:
    """The shape of x with all other axes of size 1."""
    return [s if a in axes else 1 for a, s in enumerate(x.shape)]
