"""Scaled dot product attention."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from kn_graph.dim import Size
from kn_graph.dtype import DType
from kn_graph.errors import DTypeError, ShapeError
from kn_graph.op import EvalContext, InferContext, Op
from kn_graph.ops.matmul import accumulator
from kn_graph.types import TensorType

__all__ = ["Attention", "ScoresStage"]

Array = np.ndarray[Any, Any]
ScoresStage = Literal["none", "raw", "capped", "biased", "weights"]


@dataclass(frozen=True)
class Attention(Op):
    """Weighted means of values, with weights from the products of queries and keys.

    scores = q @ k^T * scale, then cap*tanh(scores/cap) with a softcap, then + bias (a bool mask is
    a bias of 0 where True, else minus infinity); weights = softmax(scores); out = weights @ v.
    Query i stands at position p = i + offset. It sees key j where p - left <= j <= p + right; a
    bound of None is none, right = 0 is causal attention. With `lengths`, batch b sees its first
    lengths[b] keys only, and its queries are the last of these: offset = lengths[b] - S.
    A query that sees no key at all gives zeros. H may be a multiple of the heads Hk of keys and
    values: then H/Hk consecutive heads share one. Narrow floats compute in float32 and round once.
    NaN spreads along its row. The concatenation of a cache with new keys stays outside.

    Shapes: q [B, H, S, D], k [B, Hk, T, D], v [B, Hk, T, Dv],
    bias (optional) bool or float [B, H, S, T], lengths (optional) int64 [B]
    -> [B, H, S, Dv], and scores [B, H, S, T] where asked for.

    Attributes:
        scale: factor of the scores; None is 1/sqrt(D).
        left: how many keys before its position a query sees, or None.
        right: how many keys after its position a query sees, or None.
        offset: position of the first query among the keys.
        softcap: bound of the scores, or None.
        softmax_dtype: element type that the softmax is computed in, where it is to be wider.
        scores: what the second result is: none, the raw scores, those after the softcap, those
            with bias and masks, or the weights.
    """

    scale: float | None = None
    left: int | None = None
    right: int | None = None
    offset: Size = 0
    softcap: float | None = None
    softmax_dtype: DType | None = None
    scores: ScoresStage = "none"

    def infer(
        self, ctx: InferContext, q: TensorType, k: TensorType, v: TensorType, *masks: TensorType
    ) -> TensorType | tuple[TensorType, TensorType]:
        """Check ranks, heads and the masks."""
        for name, t in (("q", q), ("k", k), ("v", v)):
            if t.rank != 4:
                raise ShapeError(f"{name} must have 4 axes [batch, heads, length, size], got {t}")
            if t.dtype is not q.dtype or not t.dtype.is_float:
                raise DTypeError(f"{name} must be float as q ({q.dtype}), got {t.dtype}")
        batch, heads, queries, size = q.shape
        for name, a, b in (
            ("batch sizes of q and k", k.shape[0], batch),
            ("batch sizes of q and v", v.shape[0], batch),
            ("head sizes of q and k", k.shape[3], size),
            ("numbers of keys and values", v.shape[2], k.shape[2]),
            ("heads of k and v", v.shape[1], k.shape[1]),
        ):
            ctx.require_eq(a, b, f"attention: {name}")
        shared = heads // k.shape[1] if k.shape[1] != 0 else 0
        ctx.require_eq(shared * k.shape[1], heads, "attention: heads of q are a multiple of k's")
        grid = (batch, heads, queries, k.shape[2])
        for mask in masks:
            self._check_mask(ctx, mask, grid, q.dtype)
        if len({m.rank for m in masks}) != len(masks):
            raise ShapeError("attention has two biases or two lengths")
        out = TensorType(q.dtype, (batch, heads, queries, v.shape[3]))
        return out if self.scores == "none" else (out, TensorType(q.dtype, grid))

    def _check_mask(
        self, ctx: InferContext, mask: TensorType, grid: tuple[Size, ...], dtype: DType
    ) -> None:
        if mask.rank not in (1, 4):
            raise ShapeError(f"expected a bias with 4 axes or lengths with 1, got {mask}")
        expected = grid[: mask.rank]
        allowed = (DType.INT64,) if mask.rank == 1 else (DType.BOOL, dtype)
        if mask.dtype not in allowed:
            raise DTypeError(f"expected {' or '.join(map(str, allowed))}, got {mask}")
        for axis, (a, b) in enumerate(zip(mask.shape, expected, strict=True)):
            what = "lengths" if mask.rank == 1 else "bias"
            ctx.require_eq(a, b, f"attention: axis {axis} of the {what}")

    def eval(
        self, ctx: EvalContext, q: Array, k: Array, v: Array, *masks: Array
    ) -> Array | tuple[Array, Array]:
        """Compute all scores at once in the accumulator's type."""
        wide = accumulator(DType.from_numpy(q.dtype))
        stages: dict[str, Array] = {}
        with np.errstate(all="ignore"):
            scores = self._raw_scores(q.astype(wide, copy=False), k.astype(wide, copy=False))
            stages["raw"] = scores
            if self.softcap is not None:
                scores = np.tanh(scores / self.softcap) * self.softcap
            stages["capped"] = scores
            bias = self._bias(masks, scores.shape, wide, ctx.size(self.offset))
            if bias is not None:
                scores = scores + bias
            stages["biased"] = scores
            weights = self._weights(scores, bias).astype(wide, copy=False)
            stages["weights"] = weights
            values = _for_heads(v.astype(wide, copy=False), q.shape[1])
            out: Array = np.matmul(weights, values).astype(q.dtype)
        return out if self.scores == "none" else (out, stages[self.scores].astype(q.dtype))

    def _raw_scores(self, q: Array, k: Array) -> Array:
        scale = self.scale
        if scale is None:
            scale = 1 / np.sqrt(q.shape[3]) if q.shape[3] else 0.0
        product = np.matmul(q, _for_heads(k, q.shape[1]).swapaxes(2, 3))
        return np.asarray(product * product.dtype.type(scale))

    def _weights(self, scores: Array, bias: Array | None) -> Array:
        """Softmax over keys; rows that see no key become zeros."""
        if not scores.size:
            return scores
        if self.softmax_dtype is DType.FLOAT64:
            scores = scores.astype(np.float64, copy=False)
        powers = np.exp(scores - scores.max(-1, keepdims=True))
        weights = powers / powers.sum(-1, keepdims=True)
        if bias is None:
            return np.asarray(weights)
        blind = np.all(np.isneginf(bias), axis=-1, keepdims=True)
        return np.asarray(np.where(blind, weights.dtype.type(0), weights))

    def _bias(
        self, masks: Sequence[Array], grid: tuple[int, ...], wide: np.dtype[Any], offset: int
    ) -> Array | None:
        """Return everything that is added to the scores, broadcastable to them."""
        queries, keys = grid[2:]
        total: Array | None = None
        offsets: Any = offset
        seen: Array | None = None
        j = np.arange(keys)
        for mask in masks:
            if mask.ndim == 1:
                lengths = mask.reshape(-1, 1, 1, 1)
                offsets, seen = lengths - queries, j < lengths
            elif mask.dtype == np.bool_:
                total = np.where(mask, wide.type(0), wide.type(-np.inf))
            else:
                total = mask.astype(wide, copy=False)
        position = np.arange(queries)[:, None] + offsets
        for bound, sign in ((self.left, 1), (self.right, -1)):
            if bound is not None:
                near = sign * (position - j) <= bound
                seen = near if seen is None else seen & near
        if seen is None:
            return total
        hidden: Array = np.where(seen, wide.type(0), wide.type(-np.inf))
        return hidden if total is None else total + hidden


def _for_heads(x: Array, heads: int) -> Array:
    """Repeat heads of keys or values for the queries that share them."""
    return x if x.shape[1] in (0, heads) else np.repeat(x, heads // x.shape[1], axis=1)
