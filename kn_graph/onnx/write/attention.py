"""Writers of attention: products, masks and a softmax."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from kn_graph.dim import size_prod
from kn_graph.dtype import DType
from kn_graph.onnx.write.registry import writer
from kn_graph.ops.attention import Attention
from kn_graph.types import Shape

if TYPE_CHECKING:
    from kn_graph.onnx.write.node import NodeWriter

__all__: list[str] = []


@writer(Attention)
def attention(ctx: NodeWriter, op: Attention) -> str | Sequence[str]:
    """Scores, softcap, bias and masks, softmax, product with the values."""
    return _Decomposition(ctx, op).write()


class _Decomposition:
    """One attention as standard operators, in float32 for narrow floats."""

    def __init__(self, ctx: NodeWriter, op: Attention) -> None:
        self.ctx, self.op = ctx, op
        q, k = ctx.values[:2]
        self.q, self.k = q.shape, k.shape
        self.dtype = q.dtype
        self.wide = DType.FLOAT64 if q.dtype is DType.FLOAT64 else DType.FLOAT32
        self.masks = {
            v.rank: (name, v) for v, name in zip(ctx.values[3:], ctx.inputs[3:], strict=True)
        }

    def write(self) -> str | Sequence[str]:
        """Write all of it."""
        ctx, op = self.ctx, self.op
        q, k, v = (ctx.cast(x, self.wide) for x in ctx.inputs[:3])
        stages = {"raw": self._raw(q, k)}
        scores = stages["raw"]
        if op.softcap is not None:
            cap = ctx.scalar(op.softcap, self.wide)
            scores = ctx.emit("Mul", ctx.emit("Tanh", ctx.emit("Div", scores, cap)), cap)
        stages["capped"] = scores
        bias = self._bias()
        if bias is not None:
            scores = ctx.emit("Add", scores, bias)
        stages["biased"] = scores
        weights = self._weights(scores, bias)
        stages["weights"] = weights
        out = ctx.cast(
            ctx.emit("MatMul", weights, self._for_heads(v, ctx.values[2].shape)), self.dtype
        )
        if op.scores == "none":
            return out
        return out, ctx.cast(stages[op.scores], self.dtype)

    def _raw(self, q: str, k: str) -> str:
        ctx, size = self.ctx, self.q[3]
        keys = ctx.emit("Transpose", self._for_heads(k, self.k), perm=[0, 1, 3, 2])
        product = ctx.emit("MatMul", q, keys)
        scale = self.op.scale
        if scale is None and isinstance(size, int):
            scale = 1 / np.sqrt(size) if size else 0.0
        if scale is not None:
            return ctx.emit("Mul", product, ctx.scalar(scale, self.wide))
        width = ctx.cast(ctx.scope.sizes.scalar(size), self.wide)
        return ctx.emit("Div", product, ctx.emit("Sqrt", width))

    def _for_heads(self, x: str, shape: Shape) -> str:
        """Repeat heads that several heads of q share."""
        ctx, heads, own = self.ctx, self.q[1], self.k[1]
        if heads == own:
            return x
        batch, _, length, size = shape
        times = heads // own
        x = ctx.emit("Unsqueeze", x, ctx.ints(2))
        x = ctx.emit("Expand", x, ctx.sizes([1, 1, times, 1, 1]))
        return ctx.reshape(x, (batch, size_prod([own, times]), length, size))

    def _weights(self, scores: str, bias: str | None) -> str:
        ctx = self.ctx
        computed = self.wide
        if self.op.softmax_dtype is DType.FLOAT64:
            computed = DType.FLOAT64
        weights = ctx.cast(ctx.emit("Softmax", ctx.cast(scores, computed), axis=-1), self.wide)
        if bias is None or not self._may_be_blind():
            return weights
        most = ctx.emit("ReduceMax", bias, ctx.ints(-1))
        blind = ctx.emit("Equal", most, ctx.scalar(-np.inf, self.wide))
        return ctx.emit("Where", blind, ctx.scalar(0, self.wide), weights)

    def _may_be_blind(self) -> bool:
        """Return whether a query may see no key; causal attention alone shows each its own."""
        op = self.op
        return bool(self.masks) or op.left is not None or op.offset != 0 or self.q[2] != self.k[2]

    def _bias(self) -> str | None:
        """Return what is added to the scores: the mask, and minus infinity at hidden keys."""
        ctx = self.ctx
        zero, hidden = (ctx.scalar(n, self.wide) for n in (0, -np.inf))
        total: str | None = None
        if 4 in self.masks:
            name, value = self.masks[4]
            if value.dtype is DType.BOOL:
                total = ctx.emit("Where", name, zero, hidden)
            else:
                total = ctx.cast(name, self.wide)
        seen = self._seen()
        if seen is None:
            return total
        near = ctx.emit("Where", seen, zero, hidden)
        return near if total is None else ctx.emit("Add", total, near)

    def _seen(self) -> str | None:
        """Return which keys are near enough, and exist: bool [S, T] or [B, 1, S, T]."""
        ctx, op = self.ctx, self.op
        bounds = [(op.left, "LessOrEqual", 1), (op.right, "GreaterOrEqual", -1)]
        if 1 not in self.masks and op.left is None and op.right is None:
            return None
        zero, one = (ctx.scalar(n, DType.INT64) for n in (0, 1))
        scalar = ctx.scope.sizes.scalar
        keys = ctx.emit("Range", zero, scalar(self.k[2]), one)
        seen: list[str] = []
        offset = scalar(op.offset)
        if 1 in self.masks:
            lengths = ctx.emit("Unsqueeze", self.masks[1][0], ctx.ints(1, 2, 3))
            offset = ctx.emit("Sub", lengths, scalar(self.q[2]))
            seen.append(ctx.emit("Less", keys, lengths))
        if op.left is not None or op.right is not None:
            queries = ctx.emit("Range", zero, scalar(self.q[2]), one)
            position = ctx.emit("Unsqueeze", queries, ctx.ints(1))
            position = ctx.emit("Add", position, offset)
            distance = ctx.emit("Sub", position, keys)
            for bound, compare, sign in bounds:
                if bound is not None:
                    limit = ctx.scalar(sign * bound, DType.INT64)
                    seen.append(ctx.emit(compare, distance, limit))
        total = seen[0]
        for other in seen[1:]:
            total = ctx.emit("And", total, other)
        return total
