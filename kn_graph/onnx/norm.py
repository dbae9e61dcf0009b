"""Converters of softmax and normalisation operators."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kn_graph.dim import exact_div, size_prod
from kn_graph.dtype import DType
from kn_graph.onnx.registry import converter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kn_graph.onnx.context import NodeContext
    from kn_graph.value import Value

__all__: list[str] = []

EPSILON = 9.999999747378752e-06
"""ONNX's default, the float32 next to 1e-5."""

NARROW = (DType.FLOAT16, DType.BFLOAT16)


# ---- softmax --------------------------------------------------------------------------------


@converter("Softmax", "LogSoftmax", "Hardmax", since=13)
def softmax(ctx: NodeContext) -> Value:
    """Along one axis."""
    return _along(ctx, ctx.input(0), ctx.integer("axis", -1))


@converter("Softmax", "LogSoftmax", "Hardmax", until=12)
def softmax_flattened(ctx: NodeContext) -> Value:
    """Over all axes from `axis` on, together."""
    g, x = ctx.graph, ctx.input(0)
    (axis,) = ctx.normal_axes((ctx.integer("axis", 1),), x.rank)
    if axis == x.rank - 1:
        return _along(ctx, x, axis)
    return g.view(_along(ctx, g.flatten(x, axis), 1), x.shape)


def _along(ctx: NodeContext, x: Value, axis: int) -> Value:
    builders = {"Softmax": ctx.graph.softmax, "LogSoftmax": ctx.graph.log_softmax}
    return builders[ctx.op](x, axis) if ctx.op in builders else _hardmax(ctx, x, axis)


def _hardmax(ctx: NodeContext, x: Value, axis: int) -> Value:
    """1 at the first largest element (or the first NaN), 0 elsewhere."""
    g = ctx.graph
    (axis,) = ctx.normal_axes((axis,), x.rank)
    positions = g.iota(x.shape[axis])
    along = g.view(positions, [s if a == axis else 1 for a, s in enumerate(x.shape)])
    return g.cast(g.compare("eq", along, g.arg_reduce(x, axis, keep=True)), x.dtype)


# ---- over axes ------------------------------------------------------------------------------


def _computed(x: Value, stash: DType) -> DType:
    """Return the type that the statistics are computed in.

    Norm computes narrow floats in float32 by itself, so that a cast would change nothing.
    """
    if x.dtype in NARROW and stash in (*NARROW, DType.FLOAT32):
        return x.dtype
    return stash


def _normalized(
    ctx: NodeContext, x: Value, axes: Sequence[int], epsilon: float, *, center: bool = True
) -> Value:
    """Take stash_type, and return x normalised, in the type of x."""
    g = ctx.graph
    wide = _computed(x, ctx.dtype("stash_type", DType.FLOAT32))
    return g.cast(g.norm(g.cast(x, wide), axes, epsilon, center=center), x.dtype)


def _trailing_axes(ctx: NodeContext, x: Value) -> tuple[int, ...]:
    (axis,) = ctx.normal_axes((ctx.integer("axis", -1),), x.rank)
    return tuple(range(axis, x.rank))


@converter("LayerNormalization", since=17)
def layer_normalization(ctx: NodeContext) -> list[Value | None]:
    """Over the last axes; mean and inverse deviation on demand."""
    g, x, scale, bias = ctx.graph, ctx.input(0), ctx.input(1), ctx.optional(2)
    axes, epsilon = _trailing_axes(ctx, x), ctx.real("epsilon", EPSILON)
    out = g.mul(_normalized(ctx, x, axes, epsilon), g.broadcast(scale, x.shape))
    if bias is not None:
        out = g.add(out, g.broadcast(bias, x.shape))
    if not (ctx.wants(1) or ctx.wants(2)):
        return [out, None, None]
    stash = ctx.dtype("stash_type", DType.FLOAT32)
    wide = g.cast(x, DType.FLOAT32 if stash in NARROW else stash)
    mean, variance = _statistics(ctx, wide, axes)
    inverse = g.unary("reciprocal", g.sqrt(variance + epsilon))
    return [out, g.cast(mean, stash), g.cast(inverse, stash)]


def _statistics(ctx: NodeContext, x: Value, axes: Sequence[int]) -> tuple[Value, Value]:
    """Return mean and variance over axes, which stay with size 1."""
    g = ctx.graph
    mean = g.reduce("mean", x, axes, keep=True)
    return mean, g.reduce("mean", g.unary("square", g.sub(x, mean)), axes, keep=True)


@converter("RMSNormalization", since=23)
def rms_normalization(ctx: NodeContext) -> Value:
    """Over the last axes, without subtracting the mean; the scale may have another type."""
    g, x, scale = ctx.graph, ctx.input(0), ctx.input(1)
    axes, epsilon = _trailing_axes(ctx, x), ctx.real("epsilon", EPSILON)
    out = _normalized(ctx, x, axes, epsilon, center=False)
    return g.mul(g.cast(out, scale.dtype), g.broadcast(scale, x.shape))


@converter("InstanceNormalization")
def instance_normalization(ctx: NodeContext) -> Value:
    """Over the spatial axes of each channel."""
    ctx.ignore("consumed_inputs")
    g, x = ctx.graph, ctx.input(0)
    out = g.norm(x, _spatial_axes(ctx, x), ctx.real("epsilon", EPSILON))
    scale, bias = (g.channels(ctx.input(i), x.rank) for i in (1, 2))
    return g.add(g.mul(out, scale), bias)


def _spatial_axes(ctx: NodeContext, x: Value) -> tuple[int, ...]:
    if x.rank < 2:
        ctx.fail(f"expected [N, C, *spatial], got {x.type}")
    return tuple(range(2, x.rank))


@converter("GroupNormalization", since=18)
def group_normalization(ctx: NodeContext) -> Value:
    """Over groups of channels, to which scale and bias belong before opset 21."""
    g, x, scale, bias = ctx.graph, ctx.input(0), ctx.input(1), ctx.input(2)
    groups, epsilon = ctx.integer("num_groups"), ctx.real("epsilon", EPSILON)
    _spatial_axes(ctx, x)
    each = exact_div(x.shape[1], groups) if groups > 0 else None
    if each is None:
        ctx.fail(f"{groups} groups do not divide {x.shape[1]} channels")
    grouped = g.view(x, (x.shape[0], groups, each * size_prod(x.shape[2:])))
    out = _normalized(ctx, grouped, (2,), epsilon)
    if ctx.opset < 21:
        out = g.add(g.mul(out, g.channels(scale, 3)), g.channels(bias, 3))
        return g.view(out, x.shape)
    out = g.view(out, x.shape)
    return g.add(g.mul(out, g.channels(scale, x.rank)), g.channels(bias, x.rank))


@converter("MeanVarianceNormalization", since=9)
def mean_variance_normalization(ctx: NodeContext) -> Value:
    """To mean 0 and variance 1. ONNX adds 1e-9 to the deviation, so 1e-18 to the variance."""
    x = ctx.input(0)
    axes = ctx.normal_axes(ctx.integers("axes", (0, 2, 3)), x.rank)
    return ctx.graph.norm(x, axes, 1e-18)


# ---- batch ----------------------------------------------------------------------------------


@converter("BatchNormalization", until=13)
def batch_normalization_by_outputs(ctx: NodeContext) -> list[Value | None]:
    """More than one output means training, unless is_test says otherwise."""
    ctx.ignore("consumed_inputs")
    spatial, testing = ctx.flag("spatial", True), ctx.flag("is_test", False)
    training = not testing and any(map(ctx.wants, range(1, 5)))
    out, mean, variance, own = _batch_normalized(ctx, spatial=spatial, training=training)
    return [out, mean, variance, *own]


@converter("BatchNormalization", since=14)
def batch_normalization(ctx: NodeContext) -> list[Value | None]:
    """training_mode says whether the statistics are those of the batch."""
    training = ctx.flag("training_mode", False)
    if not training and (ctx.wants(1) or ctx.wants(2)):
        ctx.fail("has running statistics as outputs without training_mode")
    out, mean, variance, _ = _batch_normalized(ctx, spatial=True, training=training)
    return [out, mean, variance]


def _batch_normalized(
    ctx: NodeContext, *, spatial: bool, training: bool
) -> tuple[Value, Value, Value, tuple[Value, Value]]:
    """Return the result, the new running mean and variance, and those of the batch.

    Without training the statistics are the inputs. Types that differ, and narrow ones, compute in
    the widest type, at least float32.
    """
    g, x = ctx.graph, ctx.input(0)
    momentum, epsilon = ctx.real("momentum", 0.8999999761581421), ctx.real("epsilon", EPSILON)
    given = [ctx.input(i) for i in range(1, 5)]
    double = DType.FLOAT64 in {v.dtype for v in (x, *given)}
    wide = DType.FLOAT64 if double else DType.FLOAT32
    wide_x, *vectors = (g.cast(v, wide) for v in (x, *given))
    # a statistic for each channel aligns at axis 1, one for each element of an item at the right
    placed = [g.channels(v, x.rank) if spatial else v for v in vectors]
    scale, bias, mean, variance = placed
    old_mean, old_variance = given[2:]
    if not training:
        deviation = g.sqrt(variance + epsilon)
        out = g.add(g.mul(g.div(g.sub(wide_x, mean), deviation), scale), bias)
        return g.cast(out, x.dtype), old_mean, old_variance, (old_mean, old_variance)
    axes = tuple(a for a in range(x.rank) if a != 1) if spatial else (0,)
    own = [g.view(v, vectors[2].shape) for v in _statistics(ctx, wide_x, axes)]
    out = g.add(g.mul(g.norm(wide_x, axes, epsilon), scale), bias)
    new = [
        g.cast(v * momentum + b * (1 - momentum), old_mean.dtype)
        for v, b in zip(vectors[2:], own, strict=True)
    ]
    batch = [g.cast(v, old_mean.dtype) for v in own]
    return g.cast(out, x.dtype), new[0], new[1], (batch[0], batch[1])


# ---- over neighbours and by length ----------------------------------------------------------


@converter("LRN")
def local_response_normalization(ctx: NodeContext) -> Value:
    """Divide by a power of the sum of squares of nearby channels: a sum pool over axis 1."""
    g, x, size = ctx.graph, ctx.input(0), ctx.integer("size")
    alpha, beta, bias = (
        ctx.real(name, default)
        for name, default in (("alpha", 9.999999747378752e-05), ("beta", 0.75), ("bias", 1.0))
    )
    _spatial_axes(ctx, x)
    if size < 1:
        ctx.fail(f"size must be at least 1, got {size}")
    wide = _widened(ctx, x)
    squares = g.view(g.unary("square", wide), (*x.shape[:2], size_prod(x.shape[2:])))
    before = (size - 1) // 2
    sums = g.pool(squares, "sum", (size, 1), pads=[(before, size - 1 - before), (0, 0)])
    divisor = (g.view(sums, x.shape) * (alpha / size) + bias) ** beta
    return g.cast(g.div(wide, divisor), x.dtype)


def _widened(ctx: NodeContext, x: Value) -> Value:
    """Compute narrow floats in float32: their squares would overflow."""
    return ctx.graph.cast(x, DType.FLOAT32) if x.dtype in NARROW else x


@converter("LpNormalization")
def lp_normalization(ctx: NodeContext) -> Value:
    """Divide by the 1- or 2-norm along an axis; 0 where that is 0."""
    g, x = ctx.graph, ctx.input(0)
    axis, p = ctx.integer("axis", -1), ctx.integer("p", 2)
    if p not in (1, 2):
        ctx.fail(f"p must be 1 or 2, got {p}")
    wide = _widened(ctx, x)
    total = g.reduce("sum", g.unary("abs" if p == 1 else "square", wide), (axis,), keep=True)
    length = total if p == 1 else g.sqrt(total)
    zero = g.scalar(0, wide.dtype)
    out = g.select(g.compare("eq", length, zero), zero, g.div(wide, length))
    return g.cast(out, x.dtype)
