"""Converters of attention operators."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kn_graph.dim import exact_div
from kn_graph.dtype import DType
from kn_graph.onnx.registry import converter
from kn_graph.ops.attention import Attention, ScoresStage

if TYPE_CHECKING:
    from kn_graph.dim import Size
    from kn_graph.onnx.context import NodeContext
    from kn_graph.value import Value

__all__: list[str] = []

SCORES: tuple[ScoresStage, ...] = ("raw", "capped", "biased", "weights")
"""What qk_matmul_output_mode counts."""


@converter("Attention", since=23)
def attention(ctx: NodeContext) -> list[Value | None]:
    """One attention, around which heads are split, the cache is joined and types are unified."""
    g, query = ctx.graph, ctx.input(0)
    q, k, v = _split_heads(ctx)
    past_key, past_value = ctx.optional(4), ctx.optional(5)
    if (past_key is None) != (past_value is None):
        ctx.fail("past_key and past_value go together")
    offset: Size = 0
    if past_key is not None and past_value is not None:
        offset = past_key.shape[2]
        k, v = g.concat([past_key, k], 2), g.concat([past_value, v], 2)
    lengths = ctx.optional(6) if ctx.opset >= 24 else None
    if lengths is not None and past_key is not None:
        ctx.fail("nonpad_kv_seqlen and past_key exclude each other")
    op = _operation(ctx, offset)
    common = v.dtype if v.dtype.bits > q.dtype.bits else q.dtype
    operands = [g.cast(x, common) for x in (q, k, v)]
    mask = _mask(ctx, (*q.shape[:3], k.shape[2]), common)
    operands += [m for m in (mask, lengths) if m is not None]
    out, *scores = (g.cast(x, q.dtype) for x in g.push_all(op, *operands))
    if query.rank == 3:
        batch, heads, length, size = out.shape
        out = g.view(g.permute(out, (0, 2, 1, 3)), (batch, length, heads * size))
    return [out, k, v, scores[0] if scores else None]


def _split_heads(ctx: NodeContext) -> list[Value]:
    """Return q, k and v as [batch, heads, length, size]."""
    q_heads, kv_heads = ctx.integer("q_num_heads", None), ctx.integer("kv_num_heads", None)
    out = []
    for i, heads in enumerate((q_heads, kv_heads, kv_heads)):
        x = ctx.input(i)
        if x.rank == 3:
            x = _heads_of(ctx, x, heads)
        elif x.rank != 4:
            ctx.fail(f"input {i} must have rank 3 or 4, got {x.type}")
        out.append(x)
    return out


def _heads_of(ctx: NodeContext, x: Value, heads: int | None) -> Value:
    if not heads:
        ctx.fail("q_num_heads and kv_num_heads are required for inputs of rank 3")
    size = exact_div(x.shape[2], heads)
    if size is None:
        ctx.fail(f"{heads} heads do not divide the size {x.shape[2]}")
    return ctx.graph.permute(ctx.graph.view(x, (*x.shape[:2], heads, size)), (0, 2, 1, 3))


def _operation(ctx: NodeContext, offset: Size) -> Attention:
    left, right = (ctx.integer(f"{side}_window_size", -1) for side in ("left", "right"))
    if min(left, right) < -1:
        ctx.fail(f"window sizes must be at least -1, got {left} and {right}")
    if ctx.flag("is_causal", False):
        right = 0
    windowed = (left, right) != (-1, -1)
    mode = ctx.integer("qk_matmul_output_mode", 0)
    if not 0 <= mode < len(SCORES):
        ctx.fail(f"qk_matmul_output_mode must be 0 to {len(SCORES) - 1}, got {mode}")
    softcap = ctx.real("softcap", 0.0)
    precision = ctx.dtype("softmax_precision", None)
    return Attention(
        scale=ctx.real("scale", None),
        left=None if left < 0 else left,
        right=None if right < 0 else right,
        offset=offset if windowed else 0,
        softcap=softcap if softcap > 0 else None,
        softmax_dtype=precision if precision is DType.FLOAT64 else None,
        scores=SCORES[mode] if ctx.wants(3) else "none",
    )


def _mask(ctx: NodeContext, grid: tuple[Size, ...], dtype: DType) -> Value | None:
    """Return attn_mask as [batch, heads, queries, keys]; keys beyond its end are not seen."""
    g, mask = ctx.graph, ctx.optional(3)
    if mask is None:
        return None
    if not 1 <= mask.rank <= 4:
        ctx.fail(f"attn_mask must have 1 to 4 axes, got {mask.type}")
    if mask.dtype is not DType.BOOL:
        mask = g.cast(mask, dtype)
    hidden = g.constant(np.array(False if mask.dtype is DType.BOOL else -np.inf, mask.dtype.numpy))
    missing = grid[3] - mask.shape[-1]
    if missing != 0:
        mask = g.pad(mask, [*((0, 0),) * (mask.rank - 1), (0, missing)], value=hidden)
    return g.broadcast(mask, grid)
