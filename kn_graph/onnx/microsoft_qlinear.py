"""Converters of the com.microsoft operators that read and write quantized tensors (QLinear...)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kn_graph.dtype import DType
from kn_graph.onnx.conv import window_attributes
from kn_graph.onnx.microsoft import MICROSOFT, channels_last
from kn_graph.onnx.quantize import product_scale, quantized_conv, single
from kn_graph.onnx.registry import converter

if TYPE_CHECKING:
    from kn_graph.onnx.context import NodeContext
    from kn_graph.value import Value

__all__: list[str] = []


def _floats(ctx: NodeContext, at: int) -> Value:
    """Return the floats that inputs `at` to `at + 2` stand for: codes, scale, zero point."""
    x, scale, zero = ctx.input(at), single(ctx, ctx.input(at + 1)), ctx.optional(at + 2)
    return ctx.graph.dequantize(x, scale, None if zero is None else single(ctx, zero))


def _quantized(ctx: NodeContext, x: Value, at: int, dtype: DType) -> Value:
    """Quantize with the scale and zero point that are inputs `at` and `at + 1`."""
    scale, zero = single(ctx, ctx.input(at)), ctx.optional(at + 1)
    return ctx.graph.quantize(x, scale, None if zero is None else single(ctx, zero), dtype=dtype)


@converter("QLinearConv", domain=MICROSOFT)
def qlinear_conv(ctx: NodeContext) -> Value:
    """As of ai.onnx, also with channels last."""
    last = ctx.flag("channels_last", False)
    return channels_last(ctx, lambda x: quantized_conv(ctx, x), ctx.input(0), last=last)


@converter("QLinearAdd", domain=MICROSOFT)
def qlinear_add(ctx: NodeContext) -> Value:
    """A sum of quantized tensors."""
    total = ctx.graph.add(_floats(ctx, 0), _floats(ctx, 3))
    return _quantized(ctx, total, 6, ctx.input(0).dtype)


@converter("QLinearMul", domain=MICROSOFT)
def qlinear_mul(ctx: NodeContext) -> Value:
    """A product of quantized tensors: exact integers times one factor."""
    g, factors = ctx.graph, []
    for at in (0, 3):
        x, zero = g.cast(ctx.input(at), DType.INT32), ctx.optional(at + 2)
        if zero is not None:
            x = g.sub(x, g.cast(single(ctx, zero), DType.INT32))
        factors.append(x)
    scale = product_scale(ctx, *(single(ctx, ctx.input(i)) for i in (1, 4, 6)))
    zero = ctx.optional(7)
    zero = None if zero is None else single(ctx, zero)
    return g.requantize(g.mul(*factors), scale, zero, dtype=ctx.input(0).dtype)


@converter("QLinearSigmoid", "QLinearLeakyRelu", domain=MICROSOFT)
def qlinear_activation(ctx: NodeContext) -> Value:
    """An activation of a quantized tensor."""
    x = _floats(ctx, 0)
    if ctx.op == "QLinearSigmoid":
        x = ctx.graph.sigmoid(x)
    else:
        x = ctx.graph.unary("leaky_relu", x, alpha=ctx.real("alpha", 0.01))
    return _quantized(ctx, x, 3, ctx.input(0).dtype)


@converter("QLinearSoftmax", domain=MICROSOFT)
def qlinear_softmax(ctx: NodeContext) -> Value:
    """A softmax over one axis, or before opset 13 over all from one axis on."""
    g, x = ctx.graph, _floats(ctx, 0)
    (axis,) = ctx.normal_axes((ctx.integer("axis", -1),), x.rank)
    if ctx.integer("opset") < 13:
        out = g.view(g.softmax(g.flatten(x, axis), 1), x.shape)
    else:
        out = g.softmax(x, axis)
    return _quantized(ctx, out, 3, ctx.input(0).dtype)


@converter("QLinearGlobalAveragePool", domain=MICROSOFT)
def qlinear_global_average_pool(ctx: NodeContext) -> Value:
    """The mean over all spatial axes."""
    x, last = _floats(ctx, 0), ctx.flag("channels_last", False)
    axes = range(1, x.rank - 1) if last else range(2, x.rank)
    mean = ctx.graph.reduce("mean", x, tuple(axes), keep=True)
    return _quantized(ctx, mean, 3, ctx.input(0).dtype)


@converter("QLinearAveragePool", domain=MICROSOFT)
def qlinear_average_pool(ctx: NodeContext) -> Value:
    """The mean of each window."""
    kernel, last = ctx.integers("kernel_shape"), ctx.flag("channels_last", False)
    ceil, count = ctx.flag("ceil_mode", False), ctx.flag("count_include_pad", False)

    def pool(x: Value) -> Value:
        window = window_attributes(ctx, x.shape[2:], kernel)
        fixed = window.auto_pad != "NOTSET"
        return ctx.graph.pool(
            x,
            "mean",
            kernel,
            ceil=ceil and not fixed,
            count_include_pad=count,
            **window.steps,
        )

    out = channels_last(ctx, pool, _floats(ctx, 0), last=last)
    return _quantized(ctx, out, 3, ctx.input(0).dtype)


@converter("QLinearReduceMean", domain=MICROSOFT)
def qlinear_reduce_mean(ctx: NodeContext) -> Value:
    """The mean over some axes."""
    x = _floats(ctx, 0)
    axes = ctx.normal_axes(ctx.integers("axes", tuple(range(x.rank))), x.rank)
    mean = ctx.graph.reduce("mean", x, axes, keep=ctx.flag("keepdims", True))
    return _quantized(ctx, mean, 3, ctx.input(0).dtype)


@converter("QLinearConcat", domain=MICROSOFT)
def qlinear_concat(ctx: NodeContext) -> Value:
    """Join tensors of different scales."""
    parts = [_floats(ctx, at) for at in range(2, ctx.input_count, 3)]
    joined = ctx.graph.concat(parts, ctx.integer("axis"))
    return _quantized(ctx, joined, 0, ctx.input(1).dtype)


@converter("QLinearWhere", domain=MICROSOFT)
def qlinear_where(ctx: NodeContext) -> Value:
    """Choose between tensors of different scales."""
    chosen = ctx.graph.select(ctx.input(0), _floats(ctx, 1), _floats(ctx, 4))
    return _quantized(ctx, chosen, 7, ctx.input(1).dtype)
