"""Converters of com.microsoft operators that onnxruntime had before ONNX did, or has beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kn_graph.dtype import DType
from kn_graph.onnx.gather import gather_nd
from kn_graph.onnx.image import grid_sample
from kn_graph.onnx.index import steps, trilu
from kn_graph.onnx.microsoft import MICROSOFT, layer_norm
from kn_graph.onnx.microsoft_quantize import unpack_bits
from kn_graph.onnx.pool import max_pool_of
from kn_graph.onnx.registry import converter
from kn_graph.onnx.shape import pad

if TYPE_CHECKING:
    from kn_graph.onnx.context import NodeContext
    from kn_graph.value import Value

__all__: list[str] = []

for _name, _same in {
    "GatherND": gather_nd,
    "GridSample": grid_sample,
    "Pad": pad,
    "Trilu": trilu,
}.items():
    converter(_name, domain=MICROSOFT)(_same)


@converter("Range", domain=MICROSOFT)
def range_of_microsoft(ctx: NodeContext) -> Value:
    """As of ai.onnx; steps of 1 by default."""
    delta = ctx.optional(2)
    return steps(ctx, ctx.graph.scalar(1, ctx.input(0).dtype) if delta is None else delta)


@converter("NhwcMaxPool", domain=MICROSOFT)
def nhwc_max_pool(ctx: NodeContext) -> Value:
    """A max pool of [N, *spatial, C]."""
    g, x = ctx.graph, ctx.input(0)
    pooled = max_pool_of(ctx, g.permute(x, [0, x.rank - 1, *range(1, x.rank - 1)]))
    assert not isinstance(pooled, list), "there is one output"
    return g.permute(pooled, [0, *range(2, x.rank), 1])


@converter("CDist", domain=MICROSOFT)
def cdist(ctx: NodeContext) -> Value:
    """The distance of each row of A from each row of B."""
    g, a, b = ctx.graph, ctx.input(0), ctx.input(1)
    metric = ctx.choice("metric", "sqeuclidean", ("euclidean", "sqeuclidean"))
    difference = g.unsqueeze(a, [1]) - g.unsqueeze(b, [0])
    squares = g.reduce("sum", difference * difference, [2])
    return g.sqrt(squares) if metric == "euclidean" else squares


@converter("Unique", domain=MICROSOFT)
def unique_in_order(ctx: NodeContext) -> list[Value]:
    """Different elements in the order of their appearance, where each one went, and how many."""
    values, _, inverse, counts = ctx.graph.unique(ctx.input(0), ordered=False)
    return [values, inverse, counts]


@converter("MatMulInteger16", domain=MICROSOFT)
def matmul_integer_16(ctx: NodeContext) -> Value:
    """A product of 16-bit integers in 32 bits, signed where one of them is."""
    a, b = ctx.input(0), ctx.input(1)
    both = {a.dtype, b.dtype} == {DType.UINT16}
    return ctx.graph.matmul(a, b, out_dtype=DType.UINT32 if both else DType.INT32)


@converter("GatedRMSNorm", domain=MICROSOFT)
def gated_rms_norm(ctx: NodeContext) -> Value:
    """A root mean square norm with a scale, times a gate."""
    g, x, scale, gate = ctx.graph, *(ctx.input(i) for i in range(3))
    kind = ctx.choice("activation", "silu", ("silu", "swish", "sigmoid"))
    normal = layer_norm(ctx, x, scale, None, ctx.real("epsilon", 1e-5), center=False)
    return normal * g.unary("sigmoid" if kind == "sigmoid" else "silu", gate)


@converter("NGramRepeatBlock", domain=MICROSOFT)
def n_gram_repeat_block(ctx: NodeContext) -> Value:
    """Minus infinity for tokens that would repeat an n-gram.

    A token is such where the n - 1 before it are the last ones of its row.
    """
    g, ids, scores, n = ctx.graph, ctx.input(0), ctx.input(1), ctx.integer("ngram_size")
    if n < 1:
        ctx.fail(f"ngram_size must be positive, got {n}")
    length = ids.shape[1]
    places = length - (n - 1)
    tokens = g.slice(ids, 1, n - 1, places)
    repeats = g.broadcast(g.constant(np.array([[True]])), tokens.shape)
    for i in range(n - 1):
        last = g.slice(ids, 1, length - (n - 1) + i, 1)
        alike = g.compare("eq", g.slice(ids, 1, i, places), last)
        repeats = g.binary("logical_and", repeats, alike)
    limits = [g.scalar(x, scores.dtype) for x in (float("-inf"), float("inf"))]
    return g.scatter_elements(scores, tokens, g.select(repeats, *limits), 1, "min")


NF4 = (
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635,
    -0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725,
    0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941,
    0.7229568362236023, 1.0,
)  # fmt: skip
"""Quantiles of a normal distribution. Source: Dettmers et al., "QLoRA", 2023, appendix E."""
_FP4 = (0.0, 1 / 192, 2 / 3, 1.0, 1 / 3, 1 / 2, 1 / 6, 1 / 4)
FP4 = (*_FP4, *(-x for x in _FP4))


@converter("MatMulBnb4", domain=MICROSOFT)
def matmul_bnb_4(ctx: NodeContext) -> Value:
    """A product with a transposed matrix [N, K] of 4-bit codes, each block with its largest size.

    The first of two codes in a byte is the high one.
    """
    ctx.ignore("training_mode")
    g, a, packed, largest = ctx.graph, ctx.input(0), ctx.input(1), ctx.input(2)
    n, k, block = ctx.integer("N"), ctx.integer("K"), ctx.integer("block_size")
    if ctx.flag("transB", True) is False:
        ctx.unsupported("transB=0")
    table = (FP4, NF4)[ctx.flag("quant_type")]
    pairs = g.view(unpack_bits(ctx, g.view(packed, (packed.shape[0],)), 4), (packed.shape[0], 2))
    codes = g.slice(g.view(g.flip(pairs, 1), (packed.shape[0] * 2,)), 0, 0, n * k)
    values = g.gather(g.constant(np.array(table, a.dtype.numpy)), g.cast(codes, DType.INT64))
    scales = g.slice(g.repeat_interleave(largest, 0, block), 0, 0, n * k)
    weights = g.view(values * scales, (n, k))
    return g.matmul(a, g.transpose(weights))
