"""Vector-Jacobian products, one an operation.

A rule gets a node and the derivatives by its results, None where nothing depends on one. It returns
the derivatives by its operands, None for those that have none: integers, conditions, indices.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from kn_graph.autodiff.scalar import build, partial_derivative
from kn_graph.autodiff.window import conv_rule, conv_transpose_rule, pool_rule
from kn_graph.dim import Size, size_prod
from kn_graph.errors import UnsupportedModelError
from kn_graph.op import Op
from kn_graph.ops.conv import Conv, ConvTranspose
from kn_graph.ops.cumulative import Cumulative
from kn_graph.ops.elementwise import Binary, Cast, Compare, Select, Unary
from kn_graph.ops.gather import Gather, GatherElements, GatherND
from kn_graph.ops.layout import Broadcast, Concat, Flip, Pad, Permute, Slice, View
from kn_graph.ops.matmul import MatMul
from kn_graph.ops.norm import Norm, Softmax
from kn_graph.ops.pool import Pool
from kn_graph.ops.reduce import ArgReduce, Reduce, ReduceTo
from kn_graph.ops.scatter import ScatterElements, ScatterND
from kn_graph.ops.sort import TopK
from kn_graph.scalar import scalar_function

if TYPE_CHECKING:
    from kn_graph.graph import Graph
    from kn_graph.value import Node, Value

__all__ = ["RULES", "Derivatives", "Rule"]

Derivatives: TypeAlias = "Sequence[Value | None]"
Rule = Callable[..., Derivatives]


def _zeros(like: Value) -> Value:
    g = like.graph
    return g.broadcast(g.scalar(0.0, like.dtype), like.shape)


def _unsupported(node: Node, what: str) -> UnsupportedModelError:
    return UnsupportedModelError(f"node {node.label}: the derivative of {what} is not supported")


def _nothing(node: Node, *given: Value | None) -> Derivatives:
    return [None] * len(node.operands)


# ---- scalar functions -----------------------------------------------------------------------


def _scalar(node: Node, d: Value) -> Derivatives:
    """Multiply by each partial derivative."""
    op: Any = node.op
    params = scalar_function(op.fn).bind(dict(op.params))
    out: list[Value | None] = []
    for i in range(len(node.operands)):
        try:
            partial = partial_derivative(op.fn, i)
        except KeyError:
            raise _unsupported(node, op.fn) from None
        factor = None if partial is None else build(d.graph, partial, node.operands, params)
        out.append(None if factor is None else d * factor)
    return out


def _select(node: Node, d: Value) -> Derivatives:
    g, condition, zero = d.graph, node.operands[0], _zeros(d)
    return [None, g.select(condition, d, zero), g.select(condition, zero, d)]


def _cast(node: Node, d: Value) -> Derivatives:
    (x,) = node.operands
    return [d.graph.cast(d, x.dtype) if x.dtype.is_float else None]


# ---- layout ---------------------------------------------------------------------------------


def _view(node: Node, d: Value) -> Derivatives:
    return [d.graph.view(d, node.operands[0].shape)]


def _broadcast(node: Node, d: Value) -> Derivatives:
    return [d.graph.reduce_to("sum", d, node.operands[0].shape)]


def _permute(node: Node, d: Value) -> Derivatives:
    op: Any = node.op
    return [d.graph.permute(d, [op.axes.index(a) for a in range(len(op.axes))])]


def _flip(node: Node, d: Value) -> Derivatives:
    op: Any = node.op
    return [d.graph.flip(d, op.axis)]


def _slice(node: Node, d: Value) -> Derivatives:
    """Put the elements where they came from, zeros elsewhere."""
    op: Any = node.op
    g, axis, x = d.graph, op.axis, node.operands[0]
    if op.length == 0:
        return [_zeros(x)]
    if op.step > 1:  # each element becomes a row of itself and zeros
        rows = _padded(g, g.unsqueeze(d, [axis + 1]), axis + 1, 0, op.step - 1)
        d = g.view(rows, (*d.shape[:axis], op.length * op.step, *d.shape[axis + 1 :]))
        d = g.slice(d, axis, 0, (op.length - 1) * op.step + 1)
    return [_padded(g, d, axis, op.start, x.shape[axis] - op.start - d.shape[axis])]


def _padded(g: Graph, x: Value, axis: int, before: Size, after: Size) -> Value:
    pads: list[tuple[Size, Size]] = [(0, 0)] * x.rank
    pads[axis] = (before, after)
    return g.pad(x, pads)


def _concat(node: Node, d: Value) -> Derivatives:
    op: Any = node.op
    return d.graph.split(d, op.axis, [v.shape[op.axis] for v in node.operands])


def _pad(node: Node, d: Value) -> Derivatives:
    op: Any = node.op
    if op.mode != "constant":
        raise _unsupported(node, f"a pad of mode {op.mode!r}")
    g, x = d.graph, node.operands[0]
    inner = d
    for axis, (before, _) in enumerate(op.pads):
        inner = g.slice(inner, axis, before, x.shape[axis])
    fill = [g.reduce("sum", d) - g.reduce("sum", inner)] if len(node.operands) > 1 else []
    return [inner, *fill]


# ---- sums and products ----------------------------------------------------------------------


def _matmul(node: Node, d: Value) -> Derivatives:
    g, (x, y) = d.graph, node.operands
    d = g.cast(d, x.dtype)
    return [g.matmul(d, g.transpose(y)), g.matmul(g.transpose(x), d)]


def _reduce(node: Node, d: Value) -> Derivatives:
    op: Any = node.op
    return [_reduced(node, op.fn, d.graph.unsqueeze(d, op.axes), op.axes)]


def _reduce_to(node: Node, d: Value) -> Derivatives:
    op: Any = node.op
    pairs = zip(node.operands[0].shape, op.shape, strict=True)
    return [_reduced(node, op.fn, d, [a for a, (n, m) in enumerate(pairs) if n != m])]


def _reduced(node: Node, fn: str, d: Value, axes: Sequence[int]) -> Value:
    """Return the derivative of a reduction, `d` having size 1 along the axes."""
    g, x = d.graph, node.operands[0]
    if fn == "sum":
        return g.broadcast(d, x.shape)
    if fn == "mean":
        return g.broadcast(d / _count(g, x, axes), x.shape)
    if fn in ("max", "min"):  # those that are the extreme share it
        extreme = g.view(node.results[0], d.shape)
        chosen = g.cast(g.compare("eq", x, g.broadcast(extreme, x.shape)), x.dtype)
        share = d / g.reduce_to("sum", chosen, d.shape)
        return chosen * g.broadcast(share, x.shape)
    if fn == "prod":
        return g.broadcast(d, x.shape) * _product_of_others(x, axes)
    raise _unsupported(node, f"reduce_{fn}")


def _product_of_others(x: Value, axes: Sequence[int]) -> Value:
    """Return for each element the product of all others along some axes: zeros divide nothing."""
    g = x.graph
    last = [a for a in range(x.rank) if a not in axes]
    turned = g.permute(x, [*last, *axes])
    rows = g.view(turned, (*turned.shape[: len(last)], size_prod(turned.shape[len(last) :])))
    before, after = (
        g.cumulative("prod", rows, -1, exclusive=True, reverse=back) for back in (False, True)
    )
    order = [*last, *axes]
    others = g.view(before * after, turned.shape)
    return g.permute(others, [order.index(a) for a in range(x.rank)])


def _count(g: Graph, x: Value, axes: Sequence[int]) -> Value:
    count = np.empty((), object)
    count[()] = size_prod([x.shape[a] for a in axes])
    return g.cast(g.size_tensor(count), x.dtype)


def _cumulative(node: Node, d: Value) -> Derivatives:
    op: Any = node.op
    if op.fn != "sum":
        raise _unsupported(node, f"cumulative {op.fn}")
    return [d.graph.push(replace(op, reverse=not op.reverse), d)]


# ---- indices --------------------------------------------------------------------------------


def _gather(node: Node, d: Value) -> Derivatives:
    """Add up what was taken from each place, the axis in front."""
    op: Any = node.op
    g, (x, indices) = d.graph, node.operands
    first = [op.axis, *(a for a in range(x.rank) if a != op.axis)]
    taken = list(range(op.axis, op.axis + indices.rank))
    rows = g.permute(d, [*taken, *(a for a in range(d.rank) if a not in taken)])
    total = g.scatter_nd(
        _zeros(g.permute(x, first)), g.unsqueeze(indices, [indices.rank]), rows, "add"
    )
    return [g.permute(total, [first.index(a) for a in range(x.rank)]), None]


def _gather_elements(node: Node, d: Value) -> Derivatives:
    op: Any = node.op
    g, (x, indices) = d.graph, node.operands
    return [g.scatter_elements(_zeros(x), indices, d, op.axis, "add"), None]


def _gather_nd(node: Node, d: Value) -> Derivatives:
    op: Any = node.op
    g, (x, indices) = d.graph, node.operands
    if op.batch_axes:
        raise _unsupported(node, "GatherND with batch axes")
    return [g.scatter_nd(_zeros(x), indices, d, "add"), None]


def _scatter_elements(node: Node, d: Value) -> Derivatives:
    op: Any = node.op
    g, (_, indices, updates) = d.graph, node.operands
    kept = d if op.reduction == "add" else g.scatter_elements(d, indices, _zeros(updates), op.axis)
    return _scattered(node, kept, g.gather_elements(d, indices, op.axis))


def _scatter_nd(node: Node, d: Value) -> Derivatives:
    op: Any = node.op
    g, (_, indices, updates) = d.graph, node.operands
    kept = d if op.reduction == "add" else g.scatter_nd(d, indices, _zeros(updates))
    return _scattered(node, kept, g.gather_nd(d, indices))


def _scattered(node: Node, kept: Value, written: Value) -> Derivatives:
    """Of several writes to one place each counts, which is right for sums only."""
    op: Any = node.op
    if op.reduction not in ("none", "add"):
        raise _unsupported(node, f"{op.title} with reduction {op.reduction!r}")
    return [kept, None, written]


def _top_k(node: Node, d: Value | None, _: Value | None) -> Derivatives:
    if d is None:
        return _nothing(node)
    op: Any = node.op
    indices, x = node.results[1], node.operands[0]
    return [d.graph.scatter_elements(_zeros(x), indices, d, op.axis), *_nothing(node)[1:]]


# ---- normalisation --------------------------------------------------------------------------


def _softmax(node: Node, d: Value) -> Derivatives:
    op: Any = node.op
    g, out = d.graph, node.results[0]

    def total(x: Value) -> Value:
        return g.broadcast(g.reduce("sum", x, [op.axis], keep=True), x.shape)

    return [d - g.exp(out) * total(d) if op.log else out * (d - total(d * out))]


def _norm(node: Node, d: Value) -> Derivatives:
    """What moves all of x together, or along itself, changes nothing."""
    op: Any = node.op
    g, x, out = d.graph, node.operands[0], node.results[0]

    def mean(v: Value) -> Value:
        return g.broadcast(g.reduce("mean", v, op.axes, keep=True), v.shape)

    centred = x - mean(x) if op.center else x
    scale = g.sqrt(mean(centred * centred) + op.epsilon)
    free = d - out * mean(d * out)
    return [(free - mean(d) if op.center else free) / scale]


RULES: Mapping[type[Op], Rule] = {
    ArgReduce: _nothing,
    Binary: _scalar,
    Broadcast: _broadcast,
    Cast: _cast,
    Compare: _nothing,
    Concat: _concat,
    Conv: conv_rule,
    ConvTranspose: conv_transpose_rule,
    Cumulative: _cumulative,
    Flip: _flip,
    Gather: _gather,
    GatherElements: _gather_elements,
    GatherND: _gather_nd,
    MatMul: _matmul,
    Norm: _norm,
    Pad: _pad,
    Permute: _permute,
    Pool: pool_rule,
    Reduce: _reduce,
    ReduceTo: _reduce_to,
    ScatterElements: _scatter_elements,
    ScatterND: _scatter_nd,
    Select: _select,
    Slice: _slice,
    Softmax: _softmax,
    TopK: _top_k,
    Unary: _scalar,
    View: _view,
}
"""By operation. One that is not here has no derivative: asking for it is a typed error."""
