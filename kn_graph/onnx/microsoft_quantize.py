"""Converters of com.microsoft operators on quantized tensors and weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kn_graph.builder.quantize import is_zero
from kn_graph.dim import Size
from kn_graph.dtype import DType
from kn_graph.onnx.conv import window_attributes
from kn_graph.onnx.microsoft import MICROSOFT
from kn_graph.onnx.quantize import integer_product, one_or_vector, quantized_conv, single, spread
from kn_graph.onnx.recurrent import check_hidden_size, recurrent_attributes
from kn_graph.onnx.registry import converter

if TYPE_CHECKING:
    from kn_graph.onnx.context import NodeContext
    from kn_graph.value import Value

__all__: list[str] = []


@converter("QuantizeLinear", domain=MICROSOFT)
def quantize_linear(ctx: NodeContext) -> Value:
    """As of ai.onnx; without an axis there is one scale."""
    x, scale, zero_point = ctx.input(0), ctx.input(1), ctx.optional(2)
    dtype = DType.UINT8 if zero_point is None else zero_point.dtype
    scale, zero_point = _parameters(ctx, x, scale, zero_point)
    return ctx.graph.quantize(x, scale, zero_point, dtype=dtype)


@converter("DequantizeLinear", domain=MICROSOFT)
def dequantize_linear(ctx: NodeContext) -> Value:
    """As of ai.onnx; without an axis there is one scale."""
    x, scale, zero_point = ctx.input(0), ctx.input(1), ctx.optional(2)
    dtype = scale.dtype
    scale, zero_point = _parameters(ctx, x, scale, zero_point)
    return ctx.graph.dequantize(x, scale, zero_point, dtype=dtype)


def _parameters(
    ctx: NodeContext, x: Value, scale: Value, zero_point: Value | None
) -> tuple[Value, Value | None]:
    axis = ctx.integer("axis", 1)
    spread_scale = spread(ctx, scale, x, axis, 0)
    if zero_point is None or is_zero(zero_point):
        return spread_scale, None
    return spread_scale, spread(ctx, zero_point, x, axis, 0)


# ---- recurrent ------------------------------------------------------------------------------


@converter("DynamicQuantizeLSTM", domain=MICROSOFT)
def dynamic_quantize_lstm(ctx: NodeContext) -> list[Value]:
    """An LSTM whose inputs and hidden states are rounded to 8 bits before each product.

    The weights are 8 bits, too. That all products are computed in float32 here changes the sums by
    no more than float32 rounds.
    """
    g, x = ctx.graph, ctx.input(0)
    w, r = (_lstm_weights(ctx, at) for at in (1, 2))
    check_hidden_size(ctx, r, 2)
    codes, scale, zero_point = g.dynamic_quantize(x)
    return list(
        g.recurrent(
            "lstm",
            g.dequantize(codes, scale, zero_point),
            w,
            r,
            bias=ctx.optional(3),
            lengths=ctx.optional(4),
            initial_h=ctx.optional(5),
            initial_c=ctx.optional(6),
            peepholes=ctx.optional(7),
            quantize_hidden=True,
            **recurrent_attributes(ctx, "lstm"),
        )
    )


def _lstm_weights(ctx: NodeContext, at: int) -> Value:
    """Return weights [D, 4H, I] in float32, of an input [D, I, 4H] with scales [D] or [D, 4H]."""
    g, weights = ctx.graph, ctx.input(at)
    scale, zero_point = (ctx.input(6 + 2 * at + i) for i in (0, 1))

    def spread_out(v: Value) -> Value:
        return g.unsqueeze(v, [1, 2] if v.rank == 1 else [1])

    zero = None if is_zero(zero_point) else spread_out(zero_point)
    return g.permute(g.dequantize(weights, spread_out(scale), zero), (0, 2, 1))


# ---- products -------------------------------------------------------------------------------


@converter("DynamicQuantizeMatMul", domain=MICROSOFT)
def dynamic_quantize_matmul(ctx: NodeContext) -> Value:
    """Round A to 8 bits by its own range, and multiply with quantized B."""
    a, a_scale, a_zero = ctx.graph.dynamic_quantize(ctx.input(0))
    b, b_scale, b_zero, bias = ctx.input(1), ctx.input(2), ctx.optional(3), ctx.optional(4)
    return _float_product(ctx, (a, b), (a_scale, b_scale), (a_zero, b_zero), bias)


@converter("MatMulIntegerToFloat", domain=MICROSOFT)
def matmul_integer_to_float(ctx: NodeContext) -> Value:
    """A product of quantized matrices, as floats."""
    a, b, a_scale, b_scale = (ctx.input(i) for i in range(4))
    a_zero, b_zero, bias = ctx.optional(4), ctx.optional(5), ctx.optional(6)
    a_scale, a_zero = one_or_vector(ctx, a_scale) or a_scale, one_or_vector(ctx, a_zero)
    if a_scale.rank or (a_zero is not None and a_zero.rank):
        ctx.unsupported("more than one scale or zero point of A")
    return _float_product(ctx, (a, b), (a_scale, b_scale), (a_zero, b_zero), bias)


def _float_product(
    ctx: NodeContext,
    operands: tuple[Value, Value],
    scales: tuple[Value, Value],
    zeros: tuple[Value | None, Value | None],
    bias: Value | None,
) -> Value:
    g = ctx.graph
    total = g.cast(integer_product(ctx, *operands, *zeros), scales[0].dtype)
    out = g.mul(total, g.mul(*scales))
    return out if bias is None else g.add(out, bias)


@converter("QGemm", domain=MICROSOFT)
def qgemm(ctx: NodeContext) -> Value:
    """A product of quantized matrices plus an int32 C, quantized again or as floats."""
    g = ctx.graph
    a, a_scale, a_zero, b, b_scale, b_zero = (ctx.input(i) for i in range(6))
    c, y_scale, y_zero = ctx.optional(6), ctx.optional(7), ctx.optional(8)
    a = g.transpose(a) if ctx.flag("transA", False) else a
    b = g.transpose(b) if ctx.flag("transB", False) else b
    total = integer_product(ctx, a, b, single(ctx, a_zero), one_or_vector(ctx, b_zero))
    total = total if c is None else g.add(total, c)
    scale = g.mul(single(ctx, a_scale), one_or_vector(ctx, b_scale) or b_scale)
    alpha = ctx.real("alpha", 1.0)
    scale = scale if alpha == 1.0 else g.mul(scale, g.scalar(alpha, scale.dtype))
    if y_scale is None:
        return g.mul(g.cast(total, scale.dtype), scale)
    scale = g.div(scale, single(ctx, y_scale))
    dtype = DType.UINT8 if y_zero is None else y_zero.dtype
    zero = None if y_zero is None else single(ctx, y_zero)
    return g.requantize(total, scale, zero, dtype=dtype)


@converter("QLinearConv", domain=MICROSOFT)
def qlinear_conv(ctx: NodeContext) -> Value:
    """As of ai.onnx, also with channels last."""
    return channels_last(ctx, lambda x: quantized_conv(ctx, x), ctx.flag("channels_last", False))


def channels_last(ctx: NodeContext, f: Callable[[Value], Value], last: bool = True) -> Value:
    """Apply a function of [N, C, *spatial] to input 0, which is [N, *spatial, C] if `last`."""
    g, x = ctx.graph, ctx.input(0)
    if not last:
        return f(x)
    out = f(g.permute(x, (0, x.rank - 1, *range(1, x.rank - 1))))
    return g.permute(out, (0, *range(2, x.rank), 1))
