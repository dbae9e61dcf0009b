"""Vector-Jacobian products of operations with windows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kn_graph.dim import Size, size_prod
from kn_graph.errors import UnsupportedModelError

if TYPE_CHECKING:
    from kn_graph.graph import Graph
    from kn_graph.value import Node, Value

__all__ = ["conv_rule", "pool_rule"]


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
    parts = zip(_parts(g, x, op.groups), _parts(g, d, op.groups), strict=True)
    by_weights = [_by_weights(g, op, a, b, w.shape[2:]) for a, b in parts]
    return [by_input, g.concat(by_weights, 0) if len(by_weights) > 1 else by_weights[0]]


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


def pool_rule(node: Node, d: Value | None, *by_places: None) -> list[Value]:
    """Give each maximum what its windows got.

    Raises:
        UnsupportedModelError: the window is not of a maximum.
    """
    op: Any = node.op
    x = node.operands[0]
    if op.fn != "max" or d is None:
        raise UnsupportedModelError(
            f"node {node.label}: the derivative of a {op.fn} pool is not supported"
        )
    g = d.graph
    places = g.max_pool_with_indices(
        x, op.kernel, strides=op.strides, dilations=op.dilations, pads=op.pads, ceil=op.ceil
    )[1]
    flat = g.broadcast(g.scalar(0.0, x.dtype), (size_prod(x.shape),))
    count = (size_prod(d.shape),)
    total = g.scatter_elements(flat, g.view(places, count), g.view(d, count), 0, "add")
    return [g.view(total, x.shape)]
