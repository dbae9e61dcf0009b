"""Converters of operators that draw random numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kn_graph.dtype import DType
from kn_graph.onnx.registry import converter

if TYPE_CHECKING:
    from kn_graph.dim import Size
    from kn_graph.onnx.context import NodeContext
    from kn_graph.ops.random import Distribution
    from kn_graph.value import Value

__all__ = ["keep_mask"]

SCALED: dict[str, tuple[Distribution, tuple[str, float], tuple[str, float]]] = {
    "RandomNormal": ("normal", ("scale", 1.0), ("mean", 0.0)),
    "RandomUniform": ("uniform", ("high", 1.0), ("low", 0.0)),
}
"""Operators by the attributes that scale and shift."""


def _key(ctx: NodeContext) -> int | None:
    """The seed of the node's stream, if it gives one: the bits of its float."""
    seed = ctx.real("seed", None)
    return None if seed is None else int(np.float32(seed).view(np.uint32))


@converter(*SCALED)
def random(ctx: NodeContext) -> Value:
    """Numbers in a given shape."""
    return _scaled(ctx, ctx.op, ctx.integers("shape"), ctx.dtype("dtype", DType.FLOAT32))


@converter(*(f"{name}Like" for name in SCALED))
def random_like(ctx: NodeContext) -> Value:
    """Numbers in the shape of the input, and of its type unless another is given."""
    x = ctx.input(0)
    return _scaled(ctx, ctx.op.removesuffix("Like"), x.shape, ctx.dtype("dtype", x.dtype))


def _scaled(ctx: NodeContext, kind: str, shape: tuple[Size, ...], dtype: DType) -> Value:
    distribution, scale_row, shift_row = SCALED[kind]
    scale, shift = ctx.real(*scale_row), ctx.real(*shift_row)
    if distribution == "uniform":
        scale -= shift
    if (scale, shift) == (1.0, 0.0):
        return ctx.graph.random(distribution, shape, dtype, key=_key(ctx))
    wide = dtype if dtype is DType.FLOAT64 else DType.FLOAT32
    numbers = ctx.graph.random(distribution, shape, wide, key=_key(ctx))
    return ctx.graph.cast(numbers * scale + shift, dtype)


@converter("Bernoulli")
def bernoulli(ctx: NodeContext) -> Value:
    """1 with the probability that the input gives, else 0."""
    g, p = ctx.graph, ctx.input(0)
    # 16-bit numbers would be too coarse to compare small probabilities with
    wide = p.dtype if p.dtype is DType.FLOAT64 else DType.FLOAT32
    drawn = g.compare("lt", g.random("uniform", p.shape, wide, key=_key(ctx)), g.cast(p, wide))
    return g.cast(drawn, ctx.dtype("dtype", p.dtype))


@converter("Multinomial")
def multinomial(ctx: NodeContext) -> Value:
    """Draw classes from log probabilities [batch, class]: invert the running sum of exp."""
    g, x, count = ctx.graph, ctx.input(0), ctx.integer("sample_size", 1)
    if x.rank != 2:
        ctx.fail(f"needs log probabilities [batch, class], got {x.type}")
    wide = x.dtype if x.dtype is DType.FLOAT64 else DType.FLOAT32
    logits, (batch, classes) = g.cast(x, wide), x.shape
    weights = g.exp(g.sub(logits, g.reduce("max", logits, [1], keep=True)))
    below = g.cumulative("sum", weights, 1)  # [batch, class]
    drawn = g.random("uniform", (batch, count), wide, key=_key(ctx))
    level = g.mul(drawn, g.slice(below, 1, classes - 1, 1))
    passed = g.compare("ge", g.unsqueeze(level, [2]), g.unsqueeze(below, [1]))
    # a level is below the whole sum, also rounded: some class is always left
    return g.cast(
        g.reduce("sum", g.cast(passed, DType.INT64), [2]), ctx.dtype("dtype", DType.INT32)
    )


def keep_mask(ctx: NodeContext, x: Value, ratio: Value) -> Value:
    """Return booleans in the shape of x that are false with probability `ratio` (ONNX Dropout)."""
    g, seed = ctx.graph, ctx.integer("seed", None)
    key = None if seed is None else seed & (2**64 - 1)
    return g.compare("ge", g.random("uniform", x.shape, DType.FLOAT32, key=key), ratio)
