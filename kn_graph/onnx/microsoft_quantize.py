"""Converters of com.microsoft operators on quantized tensors and weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kn_graph.builder.quantize import is_zero
from kn_graph.dtype import DType
from kn_graph.onnx.microsoft import MICROSOFT
from kn_graph.onnx.quantize import integer_product, one_or_vector, single, spread
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


# ---- weights of few bits --------------------------------------------------------------------


@converter("MatMulNBits", domain=MICROSOFT)
def matmul_n_bits(ctx: NodeContext) -> Value:
    """A product with a transposed matrix of 2, 4 or 8 bits, quantized in blocks along k.

    What `accuracy_level` allows to round is not rounded.
    """
    ctx.ignore("accuracy_level")
    g, a, packed, scales = ctx.graph, ctx.input(0), ctx.input(1), ctx.input(2)
    n, k, block = ctx.integer("N"), ctx.integer("K"), ctx.integer("block_size")
    bits = _bits(ctx, "bits")
    if ctx.integer("weight_prepacked", 0):
        ctx.unsupported("weights packed for one kind of device")
    zero_points, groups, bias = ctx.optional(3), ctx.optional(4), ctx.optional(5)
    if block <= 0:
        ctx.fail(f"block_size must be positive, got {block}")
    if 0 in packed.shape:  # a projection that was left out
        out = g.broadcast(g.scalar(0, a.dtype), (*a.shape[:-1], n))
        return out if bias is None else g.add(out, bias)
    blocks = -(-k // block)
    codes = g.view(unpack_bits(ctx, packed, bits), (n, blocks * block))
    codes = g.slice(codes, 1, 0, k)
    scales = g.view(scales, (n, blocks))
    zeros = _block_zeros(ctx, zero_points, bits, (n, blocks), scales)
    scales, zeros = (_to_columns(ctx, v, groups, block, k) for v in (scales, zeros))
    weights = g.dequantize(codes, scales, zeros, dtype=a.dtype)
    out = g.matmul(a, g.transpose(weights))
    return out if bias is None else g.add(out, bias)


def _bits(ctx: NodeContext, name: str) -> int:
    bits: int = ctx.integer(name, 4)
    if bits not in (2, 4, 8):
        ctx.unsupported(f"{bits} bits; expected 2, 4 or 8")
    return bits


def unpack_bits(ctx: NodeContext, x: Value, bits: int) -> Value:
    """Return the numbers that are packed in the bytes of the last axis, the lowest bits first."""
    g = ctx.graph
    if bits == 8:
        return x
    mask = g.scalar((1 << bits) - 1, DType.UINT8)
    shifted = [
        g.binary("shift_right", x, g.scalar(shift, DType.UINT8)) for shift in range(0, 8, bits)
    ]
    parts = [g.binary("bit_and", s, mask) for s in shifted]
    together = g.stack(parts, -1)
    return g.view(together, (*x.shape[:-1], x.shape[-1] * (8 // bits)))


def _block_zeros(
    ctx: NodeContext, zeros: Value | None, bits: int, shape: tuple[int, int], scales: Value
) -> Value:
    """Return the zero point of each block: packed as the weights are, or floats, or the middle."""
    g = ctx.graph
    if zeros is None:
        return g.broadcast(g.scalar(1 << (bits - 1), DType.UINT8), shape)
    if zeros.dtype is not DType.UINT8:
        return g.view(zeros, shape)
    row = -(-shape[1] * bits // 8)
    unpacked = unpack_bits(ctx, g.view(zeros, (shape[0], row)), bits)
    return g.slice(unpacked, 1, 0, shape[1])


def _to_columns(ctx: NodeContext, x: Value, groups: Value | None, block: int, k: int) -> Value:
    """Repeat a number of each block for the columns of that block, or of their groups."""
    g = ctx.graph
    if groups is None:
        return g.slice(g.repeat_interleave(x, 1, block), 1, 0, k)
    return g.gather(x, g.slice(groups, 0, 0, k), 1)


@converter("GatherBlockQuantized", domain=MICROSOFT)
def gather_block_quantized(ctx: NodeContext) -> Value:
    """Rows of a matrix that is quantized in blocks, as floats."""
    g, data, indices = ctx.graph, ctx.input(0), ctx.input(1)
    scales, zeros = ctx.input(2), ctx.optional(3)
    bits, block = _bits(ctx, "bits"), ctx.integer("block_size", 128)
    packed = data.dtype is DType.UINT8
    if packed:
        data = unpack_bits(ctx, data, bits)
        # packing along blocks may pad the last one, for zero points more often than for data
        zeros = None if zeros is None else _trimmed(ctx, unpack_bits(ctx, zeros, bits), scales)
    (axis,) = ctx.normal_axes((ctx.integer("gather_axis", 0),), data.rank)
    (along,) = ctx.normal_axes((ctx.integer("quantize_axis", 1),), data.rank)
    if axis == along:
        ctx.unsupported("gather_axis is quantize_axis")
    parts = [data, scales, *([] if zeros is None else [zeros])]
    # an index out of range gives zeros in onnxruntime; here it is an error, as of Gather
    data, scales, *rest = (g.gather(p, indices, axis) for p in parts)
    along += indices.rank - 1 if along > axis else 0
    block = block or data.shape[along]

    def spread_out(v: Value) -> Value:
        return g.slice(g.repeat_interleave(v, along, block), along, 0, data.shape[along])

    zero = spread_out(rest[0]) if rest else None
    if zero is None and packed:
        zero = g.scalar(1 << (bits - 1), DType.UINT8)
    return g.dequantize(data, spread_out(scales), zero, dtype=scales.dtype)


def _trimmed(ctx: NodeContext, x: Value, like: Value) -> Value:
    return ctx.graph.slice(x, x.rank - 1, 0, like.shape[-1])
