"""Converters of com.microsoft operators that fuse others: activations, norms, products, convs.

onnxruntime writes them when it optimizes a model; its documentation of contrib operators is the
text, its CPU kernels are the oracle.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from kn_graph.dtype import DType
from kn_graph.onnx.conv import kernel_of_weights, window_attributes
from kn_graph.onnx.norm import layer_normalization, rms_normalization
from kn_graph.onnx.registry import converter

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kn_graph.onnx.context import NodeContext
    from kn_graph.value import Value

__all__ = ["MICROSOFT", "channels_last", "fused_activation", "layer_norm"]

MICROSOFT = "com.microsoft"


# ---- activations ----------------------------------------------------------------------------

GELUS = {"Gelu": "gelu", "BiasGelu": "gelu", "FastGelu": "gelu_tanh"}


@converter(*GELUS, domain=MICROSOFT)
def gelu(ctx: NodeContext) -> Value:
    """The error-function form, or the tanh approximation, after an optional bias."""
    x, bias = ctx.input(0), ctx.optional(1)
    if bias is not None:
        x = ctx.graph.add(x, bias)
    return ctx.graph.unary(GELUS[ctx.op], x)


@converter("QuickGelu", domain=MICROSOFT)
def quick_gelu(ctx: NodeContext) -> Value:
    """Multiply x with sigmoid(alpha * x)."""
    return ctx.graph.unary("quick_gelu", ctx.input(0), alpha=ctx.real("alpha", 1.702))


@converter("BiasSplitGelu", domain=MICROSOFT)
def bias_split_gelu(ctx: NodeContext) -> Value:
    """The left half times the gelu of the right half."""
    g = ctx.graph
    x = g.add(ctx.input(0), ctx.input(1))
    half = x.shape[-1] // 2
    left, right = g.split(x, -1, (half, half))
    return g.mul(left, g.gelu(right))


@converter("BiasAdd", domain=MICROSOFT)
def bias_add(ctx: NodeContext) -> Value:
    """Input, bias and residual."""
    g = ctx.graph
    return g.add(g.add(ctx.input(0), ctx.input(1)), ctx.input(2))


@converter("BiasDropout", domain=MICROSOFT)
def bias_dropout(ctx: NodeContext) -> list[Value | None]:
    """Input, bias and residual; nothing is dropped, and the mask says so."""
    ctx.ignore("seed")
    g, x, residual = ctx.graph, ctx.input(0), ctx.optional(2)
    ratio, training = ctx.optional(3), ctx.array(4)
    drops = ratio is None or ratio.constant is None or float(ratio.constant) != 0.0
    if training is not None and bool(training) and drops:
        ctx.unsupported("training_mode=True drops elements at random")
    x = g.add(x, ctx.input(1))
    if residual is not None:
        x = g.add(x, residual)
    mask = g.broadcast(g.scalar(True, DType.BOOL), x.shape) if ctx.wants(1) else None
    return [x, mask]


@converter("BiasSoftmax", domain=MICROSOFT)
def bias_softmax(ctx: NodeContext) -> Value:
    """Softmax over all axes from `axis` on, of the sum with a bias that lacks some other axes."""
    g, x, bias = ctx.graph, ctx.input(0), ctx.input(1)
    (axis,) = ctx.normal_axes((ctx.integer("axis", 1),), x.rank)
    inner = ctx.flag("is_inner_broadcast")
    if inner and bias.rank < x.rank:
        # the bias has the outermost axes and the softmax axes; those between repeat
        outer = bias.rank - (x.rank - axis)
        middle = (1,) * (x.rank - bias.rank)
        bias = g.view(bias, (*bias.shape[:outer], *middle, *bias.shape[outer:]))
    x = g.add(x, bias)
    return g.view(g.softmax(g.flatten(x, axis), 1), x.shape)


ACTIVATIONS: dict[str, tuple[str, tuple[str, ...]]] = {
    "Elu": ("elu", ("alpha",)),
    "HardSigmoid": ("hard_sigmoid", ("alpha", "beta")),
    "HardSwish": ("hard_swish", ()),
    "LeakyRelu": ("leaky_relu", ("alpha",)),
    "Relu": ("relu", ()),
    "Selu": ("selu", ("alpha", "gamma")),
    "Sigmoid": ("sigmoid", ()),
    "Softplus": ("softplus", ()),
    "Softsign": ("softsign", ()),
    "Tanh": ("tanh", ()),
    "ThresholdedRelu": ("thresholded_relu", ("alpha",)),
}
"""Activations that other operators fuse: their row of the scalar table, its parameters in order."""


def fused_activation(ctx: NodeContext, x: Value, name: str, params: Sequence[float]) -> Value:
    """Apply an activation that a node names; Clip has the parameters min and max."""
    g = ctx.graph
    if name == "Clip":
        low, high = params
        x = g.maximum(x, g.scalar(low, x.dtype))
        return g.minimum(x, g.scalar(high, x.dtype))
    if name not in ACTIVATIONS:
        ctx.unsupported(f"activation {name!r}")
    row, names = ACTIVATIONS[name]
    return g.unary(row, x, **dict(zip(names, params, strict=False)))


# ---- normalisation --------------------------------------------------------------------------


def layer_norm(
    ctx: NodeContext, x: Value, scale: Value, bias: Value | None, epsilon: float, **how: bool
) -> Value:
    """Normalise the last axis, then scale and shift; `center=False` for the mean square."""
    g = ctx.graph
    out = g.mul(g.norm(x, [-1], epsilon, **how), scale)
    return out if bias is None else g.add(out, bias)


def _statistics(
    ctx: NodeContext, x: Value, axes: Sequence[int], epsilon: float, *, center: bool
) -> tuple[Value, Value]:
    """Return what training saves: the mean, and the reciprocal of the deviation."""
    g = ctx.graph
    x = g.cast(x, DType.FLOAT32)
    mean = g.reduce("mean", x, axes, keep=True)
    square = g.unary("square", g.sub(x, mean) if center else x)
    variance = g.reduce("mean", square, axes, keep=True)
    return mean, g.unary("rsqrt", g.add(variance, g.scalar(epsilon, x.dtype)))


@converter("SkipLayerNormalization", "SkipSimplifiedLayerNormalization", domain=MICROSOFT)
def skip_layer_norm(ctx: NodeContext) -> list[Value | None]:
    """Normalise the sum of input, residual and bias; the sum is a result, too."""
    g, center = ctx.graph, ctx.op == "SkipLayerNormalization"
    total, gamma = g.add(ctx.input(0), ctx.input(1)), ctx.input(2)
    beta = ctx.optional(3) if center else None
    bias = ctx.optional(4 if center else 3)
    if bias is not None:
        total = g.add(total, bias)
    epsilon = ctx.real("epsilon", 1e-12)
    out = layer_norm(ctx, total, gamma, beta, epsilon, center=center)
    saved: tuple[Value | None, ...] = (None, None)
    if ctx.wants(1) or ctx.wants(2):
        saved = _statistics(ctx, total, (total.rank - 1,), epsilon, center=center)
    return [out, *saved, total]


@converter("SimplifiedLayerNormalization")
def simplified_layer_norm(ctx: NodeContext) -> list[Value | None]:
    """RMSNormalization under the name that onnxruntime gave it, in the domain ai.onnx."""
    out, x = cast("Value", rms_normalization(ctx)), ctx.input(0)
    if not ctx.wants(1):
        return [out, None]
    (axis,) = ctx.normal_axes((ctx.integer("axis", -1),), x.rank)
    axes, epsilon = tuple(range(axis, x.rank)), ctx.real("epsilon", 1e-5)
    return [out, _statistics(ctx, x, axes, epsilon, center=False)[1]]


# onnxruntime has had it in ai.onnx since opset 1, and wrote it into models of older opsets
converter("LayerNormalization", until=16)(layer_normalization)


@converter("EmbedLayerNormalization", domain=MICROSOFT)
def embed_layer_norm(ctx: NodeContext) -> list[Value | None]:
    """Embeddings of words, positions and segments, added and normalised."""
    ctx.ignore("mask_index_type")
    g, ids, segments = ctx.graph, ctx.input(0), ctx.optional(1)
    words, positions, kinds = ctx.input(2), ctx.input(3), ctx.optional(4)
    gamma, beta, mask, where = ctx.input(5), ctx.input(6), ctx.optional(7), ctx.optional(8)
    batch, length = ids.shape
    placed = g.slice(positions, 0, 0, length) if where is None else g.gather(positions, where, 0)
    total = g.add(g.gather(words, ids, 0), placed)
    if segments is not None and kinds is not None:
        total = g.add(total, g.gather(kinds, segments, 0))
    out = layer_norm(ctx, total, gamma, beta, ctx.real("epsilon", 1e-12))
    if mask is None:
        counts = g.broadcast(g.scalar(0, DType.INT32), (batch,))
    else:
        ones = g.compare("eq", mask, g.scalar(1, mask.dtype))
        counts = g.reduce("sum", g.cast(ones, DType.INT32), (1,), keep=False)
    return [out, counts, total]


@converter("GroupNorm", "SkipGroupNorm", domain=MICROSOFT)
def group_norm(ctx: NodeContext) -> list[Value | None]:
    """Group normalisation, channels last by default, of a sum if there is a residual."""
    g, x, gamma, beta = ctx.graph, ctx.input(0), ctx.input(1), ctx.input(2)
    last, groups = ctx.flag("channels_last", True), ctx.integer("groups")
    epsilon, activation = ctx.real("epsilon", 1e-5), ctx.flag("activation")
    if ctx.op == "SkipGroupNorm":
        skip, bias = ctx.input(3), ctx.optional(4)
        if skip.rank == 2:
            skip = g.unsqueeze(skip, [1, 2])
        x = g.add(x, skip)
        x = x if bias is None else g.add(x, bias)
    total = x
    x = x if last else g.permute(x, (0, *range(2, x.rank), 1))
    shape = x.shape
    parts = g.view(x, (*shape[:-1], groups, shape[-1] // groups))
    axes = (*range(1, x.rank - 1), x.rank)
    out = g.view(g.norm(parts, axes, epsilon), shape)
    out = g.add(g.mul(out, g.cast(gamma, x.dtype)), g.cast(beta, x.dtype))
    out = g.unary("silu", out) if activation else out
    return [out if last else g.permute(out, (0, x.rank - 1, *range(1, x.rank - 1))), total]


# ---- products -------------------------------------------------------------------------------


@converter("FusedMatMul", "TransposeMatMul", domain=MICROSOFT)
def fused_matmul(ctx: NodeContext) -> Value:
    """A product of matrices that are transposed first, times a number."""
    g = ctx.graph
    operands = []
    for i, letter in enumerate("AB"):
        x = ctx.input(i)
        if ctx.op == "FusedMatMul" and ctx.flag(f"transBatch{letter}", False) and x.rank > 2:
            x = g.permute(x, (*range(1, x.rank - 1), 0, x.rank - 1))
        transposed = ctx.flag(f"trans{letter}", False) and x.rank > 1
        operands.append(g.transpose(x) if transposed else x)
    return _scaled(ctx, g.matmul(*operands), ctx.real("alpha", 1.0))


def _scaled(ctx: NodeContext, x: Value, factor: float) -> Value:
    return x if factor == 1.0 else ctx.graph.mul(x, ctx.graph.scalar(factor, x.dtype))


@converter("FusedGemm", "GemmFastGelu", domain=MICROSOFT)
def fused_gemm(ctx: NodeContext) -> Value:
    """A scaled product plus a scaled C, then an activation."""
    g, a, b, c = ctx.graph, ctx.input(0), ctx.input(1), ctx.optional(2)
    if ctx.op == "GemmFastGelu":
        out = g.matmul(a, b)
        return g.unary("gelu_tanh", out if c is None else g.add(out, c))
    a = g.transpose(a) if ctx.flag("transA", False) else a
    b = g.transpose(b) if ctx.flag("transB", False) else b
    out = _scaled(ctx, g.matmul(a, b), ctx.real("alpha", 1.0))
    beta = ctx.real("beta", 1.0)
    if c is not None:
        out = g.add(out, _scaled(ctx, c, beta))
    given = {p: ctx.real(f"activation_{p}", None) for p in ("alpha", "beta", "gamma")}
    name = ctx.text("activation", "")
    if not name:
        return out
    names = ACTIVATIONS.get(name, ("", ()))[1]
    defaults = [given[n] for n in names if given[n] is not None]
    if name == "Clip":
        defaults = [given["alpha"], given["beta"]]
    return fused_activation(ctx, out, name, defaults)


# ---- convolutions ---------------------------------------------------------------------------


@converter("FusedConv", domain=MICROSOFT)
def fused_conv(ctx: NodeContext) -> Value:
    """A convolution, a residual added, an activation."""
    return _conv(ctx, ctx.input(0), ctx.optional(3))


@converter("NhwcFusedConv", "NhwcConv", domain=MICROSOFT)
def nhwc_conv(ctx: NodeContext) -> Value:
    """The same with channels last; the weights are as ever."""
    residual = ctx.optional(3)
    if residual is not None:
        residual = _channels_first(ctx, residual)
    return channels_last(ctx, lambda x: _conv(ctx, x, residual), ctx.input(0))


def _conv(ctx: NodeContext, x: Value, residual: Value | None) -> Value:
    g, w = ctx.graph, ctx.input(1)
    window = window_attributes(ctx, x.shape[2:], kernel_of_weights(ctx, x, w))
    out = g.conv(
        x,
        w,
        ctx.optional(2),
        groups=ctx.integer("group", 1),
        **window.steps,
    )
    if residual is not None:
        out = g.add(out, residual)
    name, params = ctx.text("activation", ""), ctx.reals("activation_params", ())
    return fused_activation(ctx, out, name, params) if name else out


def channels_last(
    ctx: NodeContext, f: Callable[[Value], Value], x: Value, *, last: bool = True
) -> Value:
    """Apply a function of [N, C, *spatial] to x, which is [N, *spatial, C] if `last`."""
    if not last:
        return f(x)
    out = f(_channels_first(ctx, x))
    return ctx.graph.permute(out, (0, *range(2, x.rank), 1))


def _channels_first(ctx: NodeContext, x: Value) -> Value:
    return ctx.graph.permute(x, (0, x.rank - 1, *range(1, x.rank - 1)))


# ---- small ones -----------------------------------------------------------------------------


@converter("ExpandDims", domain=MICROSOFT)
def expand_dims(ctx: NodeContext) -> Value:
    """Insert an axis of size 1."""
    return ctx.graph.unsqueeze(ctx.input(0), ctx.axes(ctx.input(1)))
