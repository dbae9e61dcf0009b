"""Converters of com.microsoft attention operators, and of the rotation of positions.

All end in one `Attention` of the IR; masks become a bias, caches are joined outside of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from kn_graph.dim import exact_div, size_max
from kn_graph.dtype import DType
from kn_graph.onnx.microsoft import MICROSOFT, layer_norm
from kn_graph.onnx.quantize import integer_product, one_or_vector, single
from kn_graph.onnx.registry import converter
from kn_graph.ops.attention import Attention

if TYPE_CHECKING:
    from kn_graph.dim import Size
    from kn_graph.onnx.context import NodeContext
    from kn_graph.value import Value

__all__: list[str] = []


class Heads(NamedTuple):
    """Queries, keys and values, each [batch, heads, length, size]."""

    q: Value
    k: Value
    v: Value


def _split(ctx: NodeContext, x: Value, heads: int) -> Value:
    """Return [B, H, S, D] of [B, S, H*D]."""
    if x.rank != 3:
        ctx.fail(f"expected [batch, length, hidden], got {x.type}")
    size = exact_div(x.shape[2], heads)
    if size is None:
        ctx.fail(f"{heads} heads do not divide {x.shape[2]}")
    return ctx.graph.permute(ctx.graph.view(x, (*x.shape[:2], heads, size)), (0, 2, 1, 3))


def _merge(ctx: NodeContext, x: Value) -> Value:
    """Return [B, S, H*D] of [B, H, S, D]."""
    batch, heads, length, size = x.shape
    return ctx.graph.view(ctx.graph.permute(x, (0, 2, 1, 3)), (batch, length, heads * size))


def _scale(ctx: NodeContext) -> float | None:
    """Take the factor of the scores; 0 says the usual one."""
    return ctx.real("scale", 0.0) or None


# ---- masks ----------------------------------------------------------------------------------


def _padding_bias(
    ctx: NodeContext, mask: Value, grid: tuple[Size, Size, Size], past: Size, dtype: DType
) -> Value:
    """Return what a padding mask adds to the scores, broadcastable to [B, H, S, T].

    Args:
        ctx: the node; its mask_filter_value is added where a key is masked.
        mask: lengths [B], or ends and starts [2*B], or 1 for what is seen: [B, T], [B, S, T] or
            [B, 1, M, M] for all positions up to some M.
        grid: B, S and T.
        past: keys before the first query.
        dtype: of the scores.
    """
    g, (batch, queries, keys) = ctx.graph, grid
    zero, hidden = g.scalar(0, dtype), g.scalar(ctx.real("mask_filter_value", -10000.0), dtype)
    if mask.rank == 1:
        seen = _seen_by_length(ctx, mask, batch, keys)
    else:
        if mask.rank == 4:
            mask = g.slice(g.slice(mask, 2, past, queries), 3, 0, keys)
        elif mask.rank == 2:
            mask = g.unsqueeze(mask, [1, 2])
        else:
            mask = g.unsqueeze(mask, [1])
        seen = g.compare("gt", mask, g.scalar(0, mask.dtype))
    return g.select(seen, zero, hidden)


def _seen_by_length(ctx: NodeContext, mask: Value, batch: Size, keys: Size) -> Value:
    g = ctx.graph
    position = g.iota(keys, mask.dtype)
    ends = mask if mask.shape[0] == batch else g.slice(mask, 0, 0, batch)
    seen = g.compare("lt", position, g.unsqueeze(ends, [1, 2, 3]))
    if ends is mask:
        return seen
    if mask.shape[0] != batch * 2:
        ctx.unsupported(f"a mask {mask.type} for a batch of {batch}")
    starts = g.unsqueeze(g.slice(mask, 0, batch, batch), [1, 2, 3])
    return g.binary("logical_and", seen, g.compare("ge", position, starts))


def _attend(
    ctx: NodeContext,
    heads: Heads,
    mask: Value | None,
    bias: Value | None,
    past: Size,
    *,
    scores_at: int | None = None,
) -> list[Value]:
    """Apply attention as the node's mask, bias, scale and unidirectional say.

    Returns:
        The result [B, S, H*D], and the scores before the softmax if somebody wants output
        `scores_at`.
    """
    g, q = ctx.graph, heads.q
    grid = (q.shape[0], q.shape[2], heads.k.shape[2])
    if mask is None:
        ctx.ignore("mask_filter_value")
    else:
        hidden = _padding_bias(ctx, mask, grid, past, q.dtype)
        bias = hidden if bias is None else g.add(bias, hidden)
    right = 0 if ctx.flag("unidirectional", False) else None
    asked = scores_at is not None and ctx.wants(scores_at)
    op = Attention(
        scale=_scale(ctx), right=right, offset=past, scores="biased" if asked else "none"
    )
    operands: list[Value] = [*heads]
    if bias is not None:
        operands.append(g.broadcast(bias, (*q.shape[:3], grid[2])))
    out, *scores = g.push_all(op, *operands)
    return [_merge(ctx, out), *scores]


# ---- attention with its own projection ------------------------------------------------------


def _self_attention(ctx: NodeContext, projected: Value, mask: Value | None) -> list[Value | None]:
    """Convert what Attention and QAttention share, after their projection [B, S, hidden]."""
    g, heads = ctx.graph, ctx.integer("num_heads")
    if ctx.integer("do_rotary", 0) or ctx.integer("past_present_share_buffer", 0):
        ctx.unsupported("do_rotary and past_present_share_buffer")
    third = exact_div(projected.shape[2], 3)
    sizes = ctx.integers("qkv_hidden_sizes", None) if ctx.op == "Attention" else None
    if sizes is None and third is None:
        ctx.fail(f"3 does not divide the projection {projected.type}")
    parts = g.split(projected, 2, sizes or (third, third, third))  # type: ignore[arg-type]
    q, k, v = (_split(ctx, part, heads) for part in parts)
    past = ctx.optional(4 if ctx.op == "Attention" else 8)
    before: Size = 0
    if past is not None:
        before = past.shape[3]
        k, v = (g.concat([past[i], x], 2) for i, x in enumerate((k, v)))
    bias = ctx.optional(5) if ctx.op == "Attention" else None
    (out,) = _attend(ctx, Heads(q, k, v), mask, bias, before)
    return [out, g.stack([k, v], 0) if ctx.wants(1) else None]


@converter("Attention", domain=MICROSOFT)
def attention(ctx: NodeContext) -> list[Value | None]:
    """Self-attention with a projection of queries, keys and values by one matrix."""
    ctx.ignore("rotary_embedding_dim")  # without do_rotary there is no rotation
    g, bias = ctx.graph, ctx.optional(2)
    projected = g.matmul(ctx.input(0), ctx.input(1))
    projected = projected if bias is None else g.add(projected, bias)
    return _self_attention(ctx, projected, ctx.optional(3))


@converter("QAttention", domain=MICROSOFT)
def qattention(ctx: NodeContext) -> list[Value | None]:
    """The same with a projection in 8 bits."""
    g = ctx.graph
    x, weights, bias, x_scale, w_scale = (ctx.input(i) for i in range(5))
    x_zero, w_zero = ctx.optional(6), ctx.optional(7)
    x_zero = None if x_zero is None else single(ctx, x_zero)
    total = integer_product(ctx, x, weights, x_zero, one_or_vector(ctx, w_zero))
    scale = g.mul(single(ctx, x_scale), one_or_vector(ctx, w_scale) or w_scale)
    projected = g.add(g.mul(g.cast(total, scale.dtype), scale), bias)
    return _self_attention(ctx, projected, ctx.optional(5))


# ---- attention of given queries, keys and values --------------------------------------------


@converter("MultiHeadAttention", domain=MICROSOFT)
def multi_head_attention(ctx: NodeContext) -> list[Value | None]:
    """Attention of projected (or packed) queries, keys and values, with a cache."""
    g, mask, bias = ctx.graph, ctx.optional(4), ctx.optional(5)
    heads = _projected_heads(ctx)
    past_key, past_value = ctx.optional(6), ctx.optional(7)
    before: Size = 0
    if past_key is not None and past_value is not None:
        before = past_key.shape[2]
        joined = (
            g.concat([past, x], 2) for past, x in ((past_key, heads.k), (past_value, heads.v))
        )
        heads = Heads(heads.q, *joined)
    out, *scores = _attend(ctx, heads, mask, bias, before, scores_at=3)
    return [out, heads.k, heads.v, scores[0] if scores else None]


def _projected_heads(ctx: NodeContext) -> Heads:
    """Return the heads of MultiHeadAttention, whatever way they are packed."""
    g, count = ctx.graph, ctx.integer("num_heads")
    query, key, value, bias = ctx.input(0), ctx.optional(1), ctx.optional(2), ctx.optional(3)
    if query.rank == 5:
        parts = _unpacked(ctx, query, 3)
    elif key is not None and key.rank == 5:
        parts = [query, *_unpacked(ctx, key, 2)]
    elif key is None or value is None:
        ctx.fail("key and value are required unless they are packed")
    else:
        parts = [query, key, value]
    if bias is not None:
        if any(p.rank != 3 for p in parts):
            ctx.unsupported("a bias of keys that are split into heads already")
        biases = g.split(bias, 0, [p.shape[2] for p in parts])
        parts = [g.add(p, b) for p, b in zip(parts, biases, strict=True)]
    return Heads(*(p if p.rank == 4 else _split(ctx, p, count) for p in parts))


def _unpacked(ctx: NodeContext, x: Value, count: int) -> list[Value]:
    """Return `count` tensors [B, S, H*D] of [B, S, H, count, D]."""
    batch, length, heads, pieces, size = x.shape
    if pieces != count:
        ctx.fail(f"expected {count} tensors packed at axis 3, got {x.type}")
    return [ctx.graph.view(x[:, :, :, i], (batch, length, heads * size)) for i in range(count)]


@converter("GroupQueryAttention", domain=MICROSOFT)
def group_query_attention(ctx: NodeContext) -> list[Value | None]:
    """Causal attention with fewer heads of keys, a cache, rotation and a window.

    Row b of the batch has `seqlens_k[b] + 1` keys after this step. Its new ones are written behind
    those it had, into a cache that is as long as the longest row or the given cache.
    """
    g = ctx.graph
    _refuse_variants(ctx)
    heads = _grouped_heads(ctx)
    length = heads.q.shape[2]
    totals = g.add(g.cast(ctx.input(5), DType.INT64), g.scalar(1, DType.INT64))
    if totals.rank != 1:
        totals = g.view(totals, (heads.q.shape[0],))
    # a row of a first prompt may be padded on the right: it had no keys before
    had = g.maximum(g.sub(totals, _size(ctx, length)), g.scalar(0, DType.INT64))
    heads = _normalized(ctx, heads)
    if ctx.integer("do_rotary", 0):
        heads = _rotated_heads(ctx, heads, had)
    else:
        ctx.ignore("rotary_interleaved")
        for unread in (7, 8, 9):
            ctx.optional(unread)
    heads = _cached(ctx, heads, had)
    if not ctx.flag("causal", True):
        ctx.unsupported("causal=0")
    out = _grouped_attention(ctx, heads, g.add(had, _size(ctx, length)))
    return [_merge(ctx, out), heads.k, heads.v]


def _refuse_variants(ctx: NodeContext) -> None:
    for name in ("k_quant_type", "v_quant_type"):
        if ctx.text(name, "NONE") != "NONE":
            ctx.unsupported("a quantized cache")
    ctx.ignore("kv_cache_bit_width")
    if ctx.integer("sliding_window_cache", 0) or ctx.integer("qk_output", 0):
        ctx.unsupported("sliding_window_cache and qk_output")


def _size(ctx: NodeContext, size: Size) -> Value:
    return ctx.graph.size_tensor(size)


def _grouped_heads(ctx: NodeContext) -> Heads:
    g, query, key, value = ctx.graph, ctx.input(0), ctx.optional(1), ctx.optional(2)
    count, shared = ctx.integer("num_heads"), ctx.integer("kv_num_heads")
    if key is not None and value is not None:
        return Heads(
            _split(ctx, query, count), _split(ctx, key, shared), _split(ctx, value, shared)
        )
    every = _split(ctx, query, count + 2 * shared)
    return Heads(*g.split(every, 1, (count, shared, shared)))


def _normalized(ctx: NodeContext, heads: Heads) -> Heads:
    """Normalise each head of queries and keys, where there are weights for that."""
    weights = {"q": ctx.optional(14), "k": ctx.optional(15)}
    common = ctx.real("qk_norm_epsilon", 1e-6)
    epsilons = {n: ctx.real(f"{n}_norm_epsilon", common) for n in weights}
    normal = {
        n: layer_norm(ctx, getattr(heads, n), w, None, epsilons[n], center=False)
        for n, w in weights.items()
        if w is not None
    }
    return heads._replace(**normal)


def _rotated_heads(ctx: NodeContext, heads: Heads, had: Value) -> Heads:
    g, length = ctx.graph, heads.q.shape[2]
    cos, sin, positions = ctx.input(7), ctx.input(8), ctx.optional(9)
    interleaved = ctx.flag("rotary_interleaved", False)
    if positions is None:
        positions = g.add(g.unsqueeze(had, [1]), g.iota(length))
    table = (cos, sin)
    q, k = (rotate(ctx, x, positions, table, interleaved) for x in (heads.q, heads.k))
    return Heads(q, k, heads.v)


def _cached(ctx: NodeContext, heads: Heads, had: Value) -> Heads:
    """Write new keys and values behind those of the cache that each row had."""
    g, past_key, past_value = ctx.graph, ctx.optional(3), ctx.optional(4)
    totals = ctx.sizes(6)
    assert totals is not None
    batch, length, total = heads.q.shape[0], heads.q.shape[2], totals[0]
    if past_key is None or past_value is None:
        g.require_eq(total, length, "total_sequence_length without a cache")
        return heads
    pairs = ((past_key, heads.k), (past_value, heads.v))
    capacity = past_key.shape[2]
    if batch == 1 and total == capacity + length:
        return Heads(heads.q, *(g.concat(pair, 2) for pair in pairs))
    missing = size_max(capacity, total) - capacity
    places = _places(ctx, batch, length, had)
    written = []
    for past, x in pairs:
        rows = g.permute(g.pad(past, [(0, 0), (0, 0), (0, missing), (0, 0)]), (0, 2, 1, 3))
        rows = g.scatter_nd(rows, places, g.permute(x, (0, 2, 1, 3)))
        written.append(g.permute(rows, (0, 2, 1, 3)))
    return Heads(heads.q, *written)


def _places(ctx: NodeContext, batch: Size, length: Size, had: Value) -> Value:
    """Return [B, S, 2]: row and position of each new key."""
    g = ctx.graph
    rows = g.broadcast(g.view(g.iota(batch), (batch, 1)), (batch, length))
    positions = g.add(g.unsqueeze(had, [1]), g.iota(length))
    return g.stack([rows, g.broadcast(positions, (batch, length))], -1)


def _grouped_attention(ctx: NodeContext, heads: Heads, ends: Value) -> Value:
    """Attend causally; `ends` says where the last query of each row stands, exclusive."""
    g, window = ctx.graph, ctx.integer("local_window_size", -1)
    softcap = ctx.real("softcap", 0.0)
    bias, sink = ctx.optional(10), ctx.optional(11)
    smooth = ctx.integer("smooth_softmax", -1) == 1
    keys = heads.k.shape[2]
    if bias is not None:  # of the keys there are; the cache may be longer
        bias = g.pad(bias, [(0, 0)] * 3 + [(0, keys - bias.shape[3])])
    left = window - 1 if window > 0 else None
    options: dict[str, Any] = {"scale": _scale(ctx), "softcap": softcap if softcap > 0 else None}
    if sink is None and not smooth:
        return g.attention(*heads, bias, ends, causal=True, left=left, **options)
    if sink is None:
        sink = g.scalar(0, heads.q.dtype)
    hidden = _causal_bias(ctx, heads, ends, left)
    bias = hidden if bias is None else g.add(bias, hidden)
    return _with_sink(ctx, heads, bias, sink, options)


def _causal_bias(ctx: NodeContext, heads: Heads, ends: Value, left: int | None) -> Value:
    """Return [B, 1, S, T]: minus infinity for keys that a query does not see."""
    g, dtype, length = ctx.graph, heads.q.dtype, heads.q.shape[2]
    first = g.sub(ends, _size(ctx, length))
    own = g.add(g.unsqueeze(first, [1, 2, 3]), g.view(g.iota(length), (length, 1)))
    position = g.iota(heads.k.shape[2])
    seen = g.compare("le", position, own)
    if left is not None:
        oldest = g.sub(own, g.scalar(left, DType.INT64))
        seen = g.binary("logical_and", seen, g.compare("ge", position, oldest))
    return g.select(seen, g.scalar(0, dtype), g.scalar(float("-inf"), dtype))


def _with_sink(
    ctx: NodeContext, heads: Heads, bias: Value, sink: Value, options: dict[str, Any]
) -> Value:
    """Attend with one more key of score `sink` and value 0: it only adds to the denominator."""
    g, q = ctx.graph, heads.q
    more = [(0, 0), (0, 0), (0, 1), (0, 0)]
    k, v = g.pad(heads.k, more), g.pad(heads.v, more)
    bias = g.broadcast(bias, (*q.shape[:3], heads.k.shape[2]))
    sink = g.view(sink, (1, *sink.shape, 1, 1)) if sink.rank else sink
    column = g.broadcast(sink, (*q.shape[:3], 1))
    return g.attention(q, k, v, g.concat([bias, column], 3), **options)


# ---- rotation -------------------------------------------------------------------------------


def rotate(
    ctx: NodeContext, x: Value, positions: Value, table: tuple[Value, Value], interleaved: bool
) -> Value:
    """Rotate pairs of features by angles of their position; features without an angle stay.

    Args:
        ctx: the node.
        x: [B, H, S, D].
        positions: [B, S] or [S].
        table: cosines and sines [positions, pairs].
        interleaved: pairs are neighbours, else one is of the first and one of the second half.
    """
    g = ctx.graph
    cos, sin = (g.gather(t, positions, 0) for t in table)
    if positions.rank == 2:
        cos, sin = g.unsqueeze(cos, [1]), g.unsqueeze(sin, [1])
    pairs, size = cos.shape[-1], x.shape[-1]
    rotated = g.slice(x, 3, 0, pairs * 2)
    if interleaved:
        rotated = g.view(rotated, (*x.shape[:3], pairs, 2))
        a, b = (rotated[..., i] for i in (0, 1))
    else:
        a, b = g.split(rotated, 3, (pairs, pairs))
    parts = [g.sub(g.mul(a, cos), g.mul(b, sin)), g.add(g.mul(a, sin), g.mul(b, cos))]
    if interleaved:
        out = g.view(g.stack(parts, -1), (*x.shape[:3], pairs * 2))
    else:
        out = g.concat(parts, 3)
    return out if size == pairs * 2 else g.concat([out, x[..., pairs * 2 :]], 3)


@converter("RotaryEmbedding", domain=MICROSOFT)
def rotary_embedding(ctx: NodeContext) -> Value:
    """The rotation alone, of heads that are split or not."""
    g, x, positions, cos, sin = ctx.graph, *(ctx.input(i) for i in range(4))
    heads, dim = ctx.integer("num_heads", 0), ctx.integer("rotary_embedding_dim", 0)
    interleaved = ctx.flag("interleaved", False)
    if ctx.integer("is_packed_batching", 0):
        ctx.unsupported("is_packed_batching")
    if ctx.real("scale", 1.0) != 1.0:
        ctx.unsupported("a scale")
    if dim and dim != cos.shape[1] * 2:
        ctx.fail(f"rotary_embedding_dim is {dim}, the table has {cos.type}")
    split = x.rank == 4
    if not split:
        count = heads or exact_div(x.shape[2], cos.shape[1] * 2)
        if not isinstance(count, int):
            ctx.fail(f"heads of {cos.shape[1] * 2} features do not divide {x.type}")
        x = _split(ctx, x, count)
    if positions.rank == 1:  # the position of the first element
        positions = g.add(positions, g.iota(x.shape[2], positions.dtype))
    out = rotate(ctx, x, positions, (cos, sin), interleaved)
    return out if split else _merge(ctx, out)
