"""Attention that keeps its scores: products, masks and a softmax, each in memory."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kn_graph.dim import size_prod
from kn_graph.dtype import DType
from kn_graph.graph import Graph
from kn_graph.ops.attention import Attention
from kn_graph.value import Node, Value

__all__ = ["attention_with_scores", "keeps_scores"]


def keeps_scores(node: Node) -> bool:
    """Return whether somebody asks for the scores; else there is a kernel."""
    assert isinstance(node.op, Attention)
    return node.op.scores != "none"


def attention_with_scores(g: Graph, node: Node, operands: Sequence[Value]) -> Sequence[Value]:
    """Compute all scores at once."""
    op, (q, k, v, *masks) = node.op, operands
    assert isinstance(op, Attention)
    wide = DType.FLOAT64 if q.dtype is DType.FLOAT64 else DType.FLOAT32
    stages = {"raw": _raw(g, op, g.cast(q, wide), g.cast(k, wide))}
    scores = stages["raw"]
    if op.softcap is not None:
        cap = g.scalar(op.softcap, wide)
        scores = g.mul(g.tanh(g.div(scores, cap)), cap)
    stages["capped"] = scores
    bias = _bias(g, op, masks, scores)
    if bias is not None:
        scores = g.add(scores, bias)
    stages["biased"] = scores
    stages["weights"] = weights = _weights(g, op, scores, bias)
    out = g.matmul(weights, _for_heads(g, g.cast(v, wide), q))
    return [g.cast(out, q.dtype), g.cast(stages[op.scores], q.dtype)]


def _raw(g: Graph, op: Attention, q: Value, k: Value) -> Value:
    product = g.matmul(q, g.permute(_for_heads(g, k, q), (0, 1, 3, 2)))
    if op.scale is not None:
        return g.mul(product, g.scalar(op.scale, q.dtype))
    size = q.shape[3]
    if isinstance(size, int):
        return g.mul(product, g.scalar(1 / np.sqrt(size) if size else 0.0, q.dtype))
    return g.div(product, g.sqrt(g.cast(g.size_tensor(size), q.dtype)))


def _for_heads(g: Graph, x: Value, q: Value) -> Value:
    """Repeat heads of keys or values for the queries that share them."""
    (batch, own, length, size), heads = x.shape, q.shape[1]
    if own == heads or own == 0:
        return x
    times = heads // own
    each = g.broadcast(g.unsqueeze(x, [2]), (batch, own, times, length, size))
    return g.view(each, (batch, size_prod([own, times]), length, size))


def _weights(g: Graph, op: Attention, scores: Value, bias: Value | None) -> Value:
    """Softmax over keys; rows that see no key become zeros."""
    computed = DType.FLOAT64 if op.softmax_dtype is DType.FLOAT64 else scores.dtype
    weights = g.cast(g.softmax(g.cast(scores, computed)), scores.dtype)
    if bias is None:
        return weights
    most = g.reduce("max", bias, [-1], keep=True)
    blind = g.compare("eq", most, g.scalar(-np.inf, bias.dtype))
    return g.select(blind, g.scalar(0, weights.dtype), weights)


def _bias(g: Graph, op: Attention, masks: Sequence[Value], scores: Value) -> Value | None:
    """Return everything that is added to the scores: the mask, and minus infinity where hidden."""
    zero, hidden = (g.scalar(n, scores.dtype) for n in (0, -np.inf))
    total: Value | None = None
    lengths: Value | None = None
    for mask in masks:
        if mask.rank == 1:
            lengths = mask
        elif mask.dtype is DType.BOOL:
            total = g.select(mask, zero, hidden)
        else:
            total = g.cast(mask, scores.dtype)
    seen = _seen(g, op, lengths, scores)
    if seen is None:
        return total
    far = g.select(seen, zero, hidden)
    return far if total is None else g.add(total, far)


def _seen(g: Graph, op: Attention, lengths: Value | None, scores: Value) -> Value | None:
    """Return which keys are near enough, and exist; None for all of them."""
    queries, keys = scores.shape[2:]
    j, seen = g.iota(keys), []
    offset = g.size_tensor(op.offset)
    if lengths is not None:
        lengths = g.unsqueeze(lengths, [1, 2, 3])
        offset = g.sub(lengths, g.size_tensor(queries))
        seen.append(g.compare("lt", j, lengths))
    distance = g.sub(g.add(g.unsqueeze(g.iota(queries), [1]), offset), j)
    for bound, fn, sign in ((op.left, "le", 1), (op.right, "ge", -1)):
        if bound is not None:
            seen.append(g.compare(fn, distance, g.scalar(sign * bound, DType.INT64)))
    if not seen:
        return None
    total = seen[0]
    for other in seen[1:]:
        total = g.binary("logical_and", total, other)
    return total
