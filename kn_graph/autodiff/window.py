"""Vector-Jacobian products of operations with windows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kn_graph.dim import Size, size_prod
from kn_graph.errors import UnsupportedModelError

if TYPE_CHECKING:
    from kn_graph.graph import Graph
    from kn_graph.value import Node, Value

__all__ = ["conv_rule", "conv_transpose_rule", "pool_rule"]


def conv_rule(node: Node, d: Value) -> list[Value]:
    """Spread each result over its window; weights see what they were multiplied with."""
    op: Any = node.op
    g, (x, w) = d.graph, node.operands
    d = g.cast(d, x.dtype)
    rest = _uncovered(op, x.shape[2:], w.shape[2:], d.shape[2:])
    by_input = g.conv_transpose(
        d,
        w,
        strides=op.strides,
        dilations=op.dilations,
        pads=op.pads,
        output_padding=rest,
        groups=op.groups,
    )
    return [by_input, _by_weights(g, op, x, d, w.shape[2:])]


def conv_transpose_rule(node: Node, d: Value) -> list[Value]:
    """Convolve: x and the result change places."""
    op: Any = node.op
    g, (x, w) = d.graph, node.operands
    d = g.cast(d, x.dtype)
    by_input = g.conv(
        d, w, strides=op.strides, dilations=op.dilations, pads=op.pads, groups=op.groups
    )
    return [by_input, _by_weights(g, op, d, x, w.shape[2:])]


def _uncovered(
    op: Any, sizes: Sequence[Size], kernel: Sequence[Size], counts: Sequence[Size]
) -> list[Size]:
    """Return how many elements at the end of each axis no window reaches."""
    axes = zip(sizes, kernel, counts, op.strides, op.dilations, op.pads, strict=True)
    return [n + b + a - ((o - 1) * s + (k - 1) * e + 1) for n, k, o, s, e, (b, a) in axes]


def _parts(g: Graph, x: Value, groups: int) -> list[Value]:
    """Return the channels of each group."""
    return g.split(x, 1, [x.shape[1] // groups] * groups) if groups > 1 else [x]


def _by_weights(g: Graph, op: Any, x: Value, d: Value, kernel: Sequence[Size]) -> Value:
    parts = zip(_parts(g, x, op.groups), _parts(g, d, op.groups), strict=True)
    found = [_of_a_group(g, op, a, b, kernel) for a, b in parts]
    return g.concat(found, 0) if len(found) > 1 else found[0]


def _of_a_group(g: Graph, op: Any, x: Value, d: Value, kernel: Sequence[Size]) -> Value:
    """Convolve x by the derivatives: channels are the batch, and steps and gaps change places."""
    swapped = [1, 0, *range(2, x.rank)]
    out = g.conv(
        g.permute(x, swapped),
        g.permute(d, swapped),
        strides=op.dilations,
        dilations=op.strides,
        pads=op.pads,
    )
    for axis, size in enumerate(kernel):
        out = g.slice(out, axis + 2, 0, size)  # what no window reaches is beyond the kernel
    return g.permute(out, swapped)


def pool_rule(node: Node, d: Value | None, *by_places: None) -> list[Value | None]:
    """Give each maximum what its windows got, or each element its share of them."""
    if d is None:
        return [None]
    op: Any = node.op
    return [_of_maxima(op, node.operands[0], d) if op.fn == "max" else _shared(node, d)]


def _of_maxima(op: Any, x: Value, d: Value) -> Value:
    g = d.graph
    places = g.max_pool_with_indices(
        x, op.kernel, strides=op.strides, dilations=op.dilations, pads=op.pads, ceil=op.ceil
    )[1]
    flat = g.broadcast(g.scalar(0.0, x.dtype), (size_prod(x.shape),))
    count = (size_prod(d.shape),)
    total = g.scatter_elements(flat, g.view(places, count), g.view(d, count), 0, "add")
    return g.view(total, x.shape)


def _shared(node: Node, d: Value) -> Value:
    """Spread what a window got evenly over its elements.

    Raises:
        UnsupportedModelError: whether windows reach beyond the padding is only known at run time.
    """
    op: Any = node.op
    g, x, rank = d.graph, node.operands[0], len(op.kernel)
    if op.fn == "mean":
        ones = g.broadcast(g.scalar(1.0, x.dtype), x.shape)
        counted = g.push(replace(op, fn="sum"), ones)
        d = d * (g.push(op, ones) / counted)
    lead = x.rank - rank
    spatial, counts = x.shape[lead:], d.shape[lead:]
    rest = _uncovered(op, spatial, op.kernel, counts)
    if op.ceil and not all(isinstance(r, int) for r in rest):
        raise UnsupportedModelError(
            f"node {node.label}: the derivative of a pool of ceil mode needs sizes that are numbers"
        )
    beyond = [-r if isinstance(r, int) and r < 0 else 0 for r in rest]
    channels = (size_prod(x.shape[:lead]), 1)
    spread = g.conv_transpose(
        g.view(d, (*channels, *counts)),
        g.broadcast(g.scalar(1.0, x.dtype), (1, 1, *op.kernel)),
        strides=op.strides,
        dilations=op.dilations,
        pads=[(b, a + more) for (b, a), more in zip(op.pads, beyond, strict=True)],
        output_padding=[r + more for r, more in zip(rest, beyond, strict=True)],
    )
    return g.view(spread, x.shape)
