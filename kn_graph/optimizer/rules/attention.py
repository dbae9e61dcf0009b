"""Attention: softmax(q @ k^T * scale + bias) @ v is one operation.

The root is the product with the values. Scales may stand on the queries, on the keys, on both, or
on the scores, as factors or divisors; a mask may be added or selected; heads of keys and values may
be repeated (grouped heads). PyTorch guards the softmax against rows without keys by replacing its
NaNs by 0, which is what `Attention` does itself.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from kn_graph.dtype import DType
from kn_graph.op import Op
from kn_graph.ops.elementwise import Binary, Cast, Compare, Select, Unary
from kn_graph.ops.layout import Broadcast, Permute, View
from kn_graph.ops.matmul import MatMul
from kn_graph.ops.norm import Softmax
from kn_graph.ops.reduce import Reduce
from kn_graph.optimizer.editor import Editor
from kn_graph.optimizer.pattern import uniform_number
from kn_graph.optimizer.rule import Refused, Rule
from kn_graph.optimizer.settings import OptimizerSettings
from kn_graph.value import Node, Value

__all__ = ["RULES", "FuseAttention"]

HALF = frozenset({DType.FLOAT16, DType.BFLOAT16})


@dataclass(frozen=True)
class Found:
    """The pieces of an attention.

    Attributes:
        q: queries [B, H, S, D].
        k: keys [B, Hk, T, D].
        v: values [B, Hk, T, Dv].
        scale: factor of the scores.
        bias: what is added to the scores, [B, H, S, T]; or None.
        mask: where scores count; elsewhere they are `masked`; or None.
        masked: the number that stands for a masked score.
    """

    q: Value
    k: Value
    v: Value
    scale: float = 1.0
    bias: Value | None = None
    mask: Value | None = None
    masked: float = 0.0


class FuseAttention(Rule[Found]):
    """See the module."""

    name = "attention"
    roots: ClassVar[tuple[type[Op], ...]] = (MatMul,)
    setting = "fuse_attention"

    def match(
        self, edit: Editor, node: Node, settings: OptimizerSettings
    ) -> Found | Refused | None:
        """Walk from the product with the values up to that of queries and keys."""
        weights, v = edit.operands(node)
        if v.rank not in (3, 4) or v.rank != weights.rank or not v.dtype.is_float:
            return None
        inner: list[Node] = []
        weights, limits = _unguarded(edit, weights, inner)
        scores = _scores(edit, weights, inner)
        if scores is None:
            return None
        found = _above_softmax(edit, scores, v, inner)
        if found is None:
            return Refused("the scores are no product of queries and keys")
        if limits is not None and (found.bias is None or _bare(edit, found.bias) is not limits):
            return Refused("weights become 0 by something else than the bias")
        outside = [n.results[0] for n in inner]
        if not edit.only_inside(outside, {node, *inner}):
            return Refused("somebody else reads the scores or the weights")
        return found

    def rewrite(self, edit: Editor, found: Found) -> Value:
        """Build the operation; three axes get a head axis of size 1."""
        g = edit.graph
        flat = found.v.rank == 3
        if flat:
            q, k, v = (g.unsqueeze(x, [1]) for x in (found.q, found.k, found.v))
            bias, mask = (
                None if x is None else g.unsqueeze(x, [1]) for x in (found.bias, found.mask)
            )
            found = replace(found, q=q, k=k, v=v, bias=bias, mask=mask)
        k, v = _ungrouped(edit, found.k), _ungrouped(edit, found.v)
        if k.shape[1] != v.shape[1]:
            k, v = found.k, found.v
        out = g.attention(found.q, k, v, _whole_bias(edit, found), scale=found.scale)
        return g.squeeze(out, [1]) if flat else out


def _unguarded(edit: Editor, weights: Value, inner: list[Node]) -> tuple[Value, Value | None]:
    """Return weights without `0 where max(bias) == -inf`, and that bias: how they are written."""
    if not isinstance(weights.node.op, Select):
        return weights, None
    condition, chosen, other = edit.operands(weights.node)
    blind = _bare(edit, condition)
    if not isinstance(blind.node.op, Compare) or blind.node.op.fn != "eq":
        return weights, None
    most, number = edit.operands(blind.node)
    most = _bare(edit, most)
    op = most.node.op
    if not isinstance(op, Reduce) or op.fn != "max" or uniform_number(edit, chosen) != 0.0:
        return weights, None
    (bias,) = edit.operands(most.node)
    if op.axes != (bias.rank - 1,) or uniform_number(edit, number) != -np.inf:
        return weights, None
    inner.append(weights.node)
    return other, _bare(edit, bias)


def _bare(edit: Editor, v: Value) -> Value:
    """Return a value before broadcasts and the views that lead to them."""
    while isinstance(v.node.op, (Broadcast, View)):
        (v,) = edit.operands(v.node)
    return v


def _scores(edit: Editor, weights: Value, inner: list[Node]) -> Value | None:
    """Return what the softmax over the last axis is taken of, looking through its NaN guard."""
    current = weights
    if isinstance(current.node.op, Cast) and current.dtype in HALF:
        inner.append(current.node)
        (current,) = edit.operands(current.node)
    if isinstance(current.node.op, Select):
        condition, chosen, other = edit.operands(current.node)
        guard = condition.node
        if not (isinstance(guard.op, Unary) and guard.op.fn == "isnan"):
            return None
        if edit.operands(guard)[0] is not other or uniform_number(edit, chosen) != 0.0:
            return None
        inner += [current.node, guard]
        current = other
    op = current.node.op
    if not isinstance(op, Softmax) or op.log or op.axis != current.rank - 1:
        return None
    inner.append(current.node)
    (scores,) = edit.operands(current.node)
    if isinstance(scores.node.op, Cast) and edit.operands(scores.node)[0].dtype in HALF:
        inner.append(scores.node)
        (scores,) = edit.operands(scores.node)
    return scores


def _above_softmax(edit: Editor, scores: Value, v: Value, inner: list[Node]) -> Found | None:
    bias = mask = None
    masked, scale = 0.0, 1.0
    current = _renamed(edit, scores, inner)
    while not isinstance(current.node.op, MatMul):
        node, op = current.node, current.node.op
        if isinstance(op, Select) and mask is None and bias is None:
            mask, current, other = edit.operands(node)
            number = uniform_number(edit, other)
            if number is None or number > -1e4:
                return None
            masked = number * scale  # a scale outside applies to it, too
        elif isinstance(op, Binary) and op.fn == "add" and bias is None and scale == 1.0:
            a, b = edit.operands(node)
            current, bias = (a, b) if _is_product(edit, a) else (b, a)
        elif (scaled := _scaled(edit, current)) is not None:
            current, factor = scaled
            scale *= factor
        else:
            return None
        inner.append(node)
        current = _renamed(edit, current, inner)
    if bias is not None and mask is not None:
        return None
    inner.append(current.node)
    q, kt = edit.operands(current.node)
    if q.rank != v.rank or q.dtype is not v.dtype:
        return None
    q, of_q = _without_scales(edit, q)
    kt, of_k = _without_scales(edit, kt)
    k = _transposed(edit, kt)
    return Found(q, k, v, scale * of_q * of_k, bias, mask, masked)


def _renamed(edit: Editor, v: Value, inner: list[Node]) -> Value:
    """Look through views that write one size differently, and change nothing else."""
    while isinstance(v.node.op, View):
        (x,) = edit.operands(v.node)
        if x.rank != v.rank or sum(a != b for a, b in zip(x.shape, v.shape, strict=True)) > 1:
            break
        inner.append(v.node)
        v = x
    return v


def _is_product(edit: Editor, v: Value) -> bool:
    """Return whether a value is a MatMul, maybe scaled."""
    v, _ = _without_scales(edit, _renamed(edit, v, []))
    return isinstance(v.node.op, MatMul)


def _scaled(edit: Editor, v: Value) -> tuple[Value, float] | None:
    """Return the value and the factor, where a value is another one times a number."""
    op = v.node.op
    if not isinstance(op, Binary) or op.fn not in ("mul", "div"):
        return None
    a, b = edit.operands(v.node)
    number = uniform_number(edit, b)
    if number is not None and number != 0.0:
        return a, (number if op.fn == "mul" else 1.0 / number)
    number = uniform_number(edit, a) if op.fn == "mul" else None
    return None if number is None else (b, number)


def _without_scales(edit: Editor, v: Value) -> tuple[Value, float]:
    factor = 1.0
    while (scaled := _scaled(edit, v)) is not None:
        v, number = scaled
        factor *= number
    return v, factor


def _transposed(edit: Editor, kt: Value) -> Value:
    """Return keys [.., T, D] for transposed ones, undoing the exporter's own transposition."""
    swap = [*range(kt.rank - 2), kt.rank - 1, kt.rank - 2]
    op = kt.node.op
    if isinstance(op, Permute):
        (x,) = edit.operands(kt.node)
        return edit.graph.permute(x, [op.axes[a] for a in swap])
    if isinstance(op, View) and kt.rank == 4:
        # heads merged into the batch, transposed, and split again
        (merged,) = edit.operands(kt.node)
        if isinstance(merged.node.op, Permute) and merged.node.op.axes == (0, 2, 1):
            (x,) = edit.operands(merged.node)
            batch, heads, size, length = kt.shape
            return edit.graph.view(x, (batch, heads, length, size))
    return edit.graph.permute(kt, swap)


def _ungrouped(edit: Editor, x: Value) -> Value:
    """Return keys or values before their heads were repeated for groups of queries."""
    source = edit.resolve(x)
    while isinstance(source.node.op, View):
        (source,) = edit.operands(source.node)
    if not isinstance(source.node.op, Broadcast) or source.rank != 5:
        return x
    (single,) = edit.operands(source.node)
    batch, heads, one, length, size = single.shape
    repeated = source.shape
    same = (repeated[0], repeated[1], *repeated[3:]) == (batch, heads, length, size)
    whole = (batch, heads * repeated[2], length, size)
    if one != 1 or not same or x.shape != whole:
        return x
    return edit.graph.view(single, (batch, heads, length, size))


def _whole_bias(edit: Editor, found: Found) -> Value | None:
    """Return the bias or mask over all scores."""
    if found.mask is None:
        return found.bias
    g = edit.graph
    if np.isneginf(found.masked):
        return found.mask
    # a finite mask number leaves rows without keys uniform: it is added, not applied
    zero, low = (g.scalar(n, found.q.dtype) for n in (0.0, found.masked))
    return g.select(found.mask, zero, low)


RULES = (FuseAttention(),)
