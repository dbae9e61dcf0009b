"""Converters of the operators that round to few bits and back, and of integer products."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kn_graph.builder.quantize import is_zero
from kn_graph.dim import Size
from kn_graph.dtype import DType
from kn_graph.onnx.conv import kernel_of_weights, window_attributes
from kn_graph.onnx.registry import converter

if TYPE_CHECKING:
    from kn_graph.onnx.context import NodeContext
    from kn_graph.value import Value

__all__ = [
    "integer_product",
    "one_or_vector",
    "product_scale",
    "quantized_conv",
    "rows",
    "single",
    "spread",
]

HALF = frozenset({DType.FLOAT16, DType.BFLOAT16})


def spread(ctx: NodeContext, x: Value, like: Value, axis: int, block: int) -> Value:
    """Give a scale or zero point a shape that broadcasts to `like`.

    Args:
        ctx: the node.
        x: one element; or one for each element of an axis; or one a block of an axis.
        like: what it belongs to.
        axis: that axis, not normalised; it may not exist where there is one element.
        block: elements of the axis that share one of x; 0 for no blocks.
    """
    g = ctx.graph
    if x.rank == 0:
        return x
    if x.shape == (1,) and not block:
        return g.view(x, ())
    if like.rank == 1 and axis == 1:
        axis = 0  # the default, which a vector does not have
    (axis,) = ctx.normal_axes((axis,), like.rank)
    if not block:
        if x.rank != 1:
            ctx.fail(f"scale and zero point of {x.type} without block_size")
        ctx.graph.require_eq(x.shape[0], like.shape[axis], f"scales and sizes of axis {axis}")
        return g.view(x, (*x.shape, *(1,) * (like.rank - 1 - axis)))
    return _spread_blocks(ctx, x, like.shape, axis, block)


def _spread_blocks(
    ctx: NodeContext, x: Value, shape: Sequence[Size], axis: int, block: int
) -> Value:
    g = ctx.graph
    if block < 0:
        ctx.fail(f"block_size must be positive, got {block}")
    if x.rank != len(shape):
        ctx.fail(f"blocks of rank {x.rank} for a tensor of rank {len(shape)}")
    for a, (have, want) in enumerate(zip(x.shape, shape, strict=True)):
        blocks = (want + (block - 1)) // block if a == axis else want
        g.require_eq(have, blocks, f"scales and sizes of axis {a} in blocks of {block}")
    return g.slice(g.repeat_interleave(x, axis, block), axis, 0, shape[axis])


@converter("QuantizeLinear", since=10)
def quantize_linear(ctx: NodeContext) -> Value:
    """Division, rounding, addition, clamp, cast."""
    x, scale, zero_point = ctx.input(0), ctx.input(1), ctx.optional(2)
    dtype = _output_dtype(ctx, None if zero_point is None else zero_point.dtype)
    saturate = ctx.flag("saturate", True) if ctx.opset >= 19 else True
    precision = _precision(ctx, x, scale)
    scale, zero_point = _spread_both(ctx, scale, zero_point, x)
    return ctx.graph.quantize(
        x, scale, zero_point, dtype=dtype, saturate=saturate, precision=precision
    )


def _output_dtype(ctx: NodeContext, zero_point: DType | None) -> DType:
    wanted = ctx.integer("output_dtype", 0) if ctx.opset >= 21 else 0
    if not wanted:
        return zero_point or DType.UINT8
    dtype = DType.from_onnx(wanted)
    if zero_point not in (None, dtype):
        ctx.fail(f"output_dtype is {dtype}, the zero point has type {zero_point}")
    return dtype


def _precision(ctx: NodeContext, x: Value, scale: Value) -> DType:
    """Return the type of the division.

    From opset 23 on it is that of the scale, unless an attribute says something else. Before, the
    ONNX text is silent, and half precision divides in float32 as onnxruntime does.
    """
    wanted = ctx.integer("precision", 0) if ctx.opset >= 23 else 0
    dtype = DType.from_onnx(wanted) if wanted else scale.dtype
    if not dtype.is_float:
        return DType.FLOAT64  # holds both integers
    if dtype.bits < 16:
        # a quotient in the type of such a scale would have no digits
        dtype = x.dtype if x.dtype.is_float else DType.FLOAT32
    return DType.FLOAT32 if dtype in HALF and ctx.opset < 23 else dtype


def _spread_both(
    ctx: NodeContext, scale: Value, zero_point: Value | None, like: Value
) -> tuple[Value, Value | None]:
    axis = ctx.integer("axis", 1) if ctx.opset >= 13 else 1
    block = ctx.integer("block_size", 0) if ctx.opset >= 21 else 0
    spread_scale = spread(ctx, scale, like, axis, block)
    if zero_point is None or is_zero(zero_point):
        return spread_scale, None
    return spread_scale, spread(ctx, zero_point, like, axis, block)


@converter("DequantizeLinear", since=10)
def dequantize_linear(ctx: NodeContext) -> Value:
    """Difference and product."""
    x, scale, zero_point = ctx.input(0), ctx.input(1), ctx.optional(2)
    if zero_point is not None and zero_point.dtype is not x.dtype:
        ctx.fail(f"the zero point has type {zero_point.dtype}, x has {x.dtype}")
    wanted = ctx.integer("output_dtype", 0) if ctx.opset >= 23 else 0
    dtype = DType.from_onnx(wanted) if wanted else scale.dtype
    if not dtype.is_float or dtype.bits < 16:
        ctx.fail(f"output_dtype is required where the scale is {scale.dtype}")
    scale, zero_point = _spread_both(ctx, scale, zero_point, x)
    return ctx.graph.dequantize(x, scale, zero_point, dtype=dtype)


@converter("DynamicQuantizeLinear", since=11)
def dynamic_quantize_linear(ctx: NodeContext) -> list[Value]:
    """To uint8, with scale and zero point from the range of the tensor."""
    return list(ctx.graph.dynamic_quantize(ctx.input(0)))


# ---- products -------------------------------------------------------------------------------


@converter("MatMulInteger", since=10)
def matmul_integer(ctx: NodeContext) -> Value:
    """A product in int32, exact for all mixes of int8 and uint8."""
    a, b, a_zero, b_zero = ctx.input(0), ctx.input(1), ctx.optional(2), ctx.optional(3)
    return integer_product(ctx, a, b, a_zero, b_zero)


def integer_product(
    ctx: NodeContext, a: Value, b: Value, a_zero: Value | None, b_zero: Value | None
) -> Value:
    """Multiply integer matrices (vectors as NumPy does) less their zero points.

    Zero points are single, or one a row of `a` and one a column of `b`.
    """
    g = ctx.graph
    a_matrix = g.unsqueeze(a, [0]) if a.rank == 1 else a
    b_matrix = g.unsqueeze(b, [1]) if b.rank == 1 else b
    product = g.matmul_integer(a_matrix, b_matrix, rows(ctx, a_zero), b_zero)
    if b.rank == 1:
        product = g.squeeze(product, [-1])
    return g.squeeze(product, [-1 if b.rank == 1 else -2]) if a.rank == 1 else product


def rows(ctx: NodeContext, x: Value | None) -> Value | None:
    """Turn a vector with one number a row into a column; other ranks broadcast as they are."""
    return x if x is None or x.rank != 1 else ctx.graph.unsqueeze(x, [1])


@converter("QLinearMatMul", since=10)
def qlinear_matmul(ctx: NodeContext) -> Value:
    """A quantized product of quantized matrices; sums are int32, of float8 float32."""
    g = ctx.graph
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = (ctx.input(i) for i in range(8))
    y_scale, y_zero = single(ctx, y_scale), single(ctx, y_zero)
    if not (a.dtype.is_int and b.dtype.is_int):
        product = g.matmul(
            g.dequantize(a, rows(ctx, a_scale) or a_scale, rows(ctx, a_zero)),
            g.dequantize(b, b_scale, b_zero),
        )
        return g.quantize(product, y_scale, y_zero, dtype=y_zero.dtype)
    total = integer_product(ctx, a, b, a_zero, b_zero)
    # scales of rows stand in a column, unless the product is a vector
    scale_of_a = a_scale if total.rank < 2 else rows(ctx, a_scale)
    assert scale_of_a is not None
    scale = product_scale(ctx, scale_of_a, b_scale, y_scale)
    return g.requantize(total, scale, y_zero, dtype=y_zero.dtype)


@converter("ConvInteger", since=10)
def conv_integer(ctx: NodeContext) -> Value:
    """A convolution in int32, exact for all mixes of int8 and uint8."""
    x, w = ctx.input(0), ctx.input(1)
    return integer_conv(ctx, x, w, ctx.optional(2), ctx.optional(3))


def integer_conv(
    ctx: NodeContext, x: Value, w: Value, x_zero: Value | None, w_zero: Value | None
) -> Value:
    """Take the attributes of a convolution and apply it to integers less their zero points."""
    window = window_attributes(ctx, x.shape[2:], kernel_of_weights(ctx, x, w))
    return ctx.graph.conv_integer(
        x,
        w,
        None if x_zero is None else single(ctx, x_zero),
        one_or_vector(ctx, w_zero),
        groups=ctx.integer("group", 1),
        **window.steps,
    )


def one_or_vector(ctx: NodeContext, x: Value | None) -> Value | None:
    """Return a vector of one element with rank 0, anything else as it is."""
    return single(ctx, x) if x is not None and x.shape == (1,) else x


@converter("QLinearConv", since=10)
def qlinear_conv(ctx: NodeContext) -> Value:
    """A convolution of quantized tensors with the sum in int32, quantized."""
    return quantized_conv(ctx, ctx.input(0))


def quantized_conv(ctx: NodeContext, x: Value) -> Value:
    """Convert QLinearConv for an x [N, C, *spatial] that stands for input 0."""
    g = ctx.graph
    w, bias = ctx.input(3), ctx.optional(8)
    x_scale, x_zero, w_scale, w_zero = (ctx.input(i) for i in (1, 2, 4, 5))
    y_scale, y_zero = single(ctx, ctx.input(6)), single(ctx, ctx.input(7))
    total = integer_conv(ctx, x, w, x_zero, w_zero)
    if bias is not None:
        total = g.add(total, g.channels(bias, total.rank))
    w_scale = one_or_vector(ctx, w_scale) or w_scale
    scale = product_scale(ctx, single(ctx, x_scale), w_scale, y_scale)
    scale = g.channels(scale, total.rank) if scale.rank else scale
    return g.requantize(total, scale, y_zero, dtype=y_zero.dtype)


def product_scale(ctx: NodeContext, a: Value, b: Value, y: Value) -> Value:
    """Return a * b / y in float32: what an integer sum is multiplied with."""
    g = ctx.graph
    a, b, y = (g.cast(s, DType.FLOAT32) for s in (a, b, y))
    return g.binary("div", g.binary("mul", a, b), y)


def single(ctx: NodeContext, x: Value) -> Value:
    """Return a tensor of one element with rank 0."""
    if x.rank == 0:
        return x
    return ctx.graph.view(x, ())
