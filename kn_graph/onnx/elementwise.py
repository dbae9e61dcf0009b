"""Converters of elementwise operators: arithmetic, activations, comparisons, logic, casts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from kn_graph.condition import size_eq
from kn_graph.dim import Dim
from kn_graph.dtype import DType
from kn_graph.onnx.random import keep_mask
from kn_graph.onnx.registry import converter

if TYPE_CHECKING:
    from kn_graph.onnx.context import NodeContext
    from kn_graph.value import Value

__all__: list[str] = []

UNARY = {
    "Abs": "abs", "Acos": "acos", "Acosh": "acosh", "Asin": "asin", "Asinh": "asinh",
    "Atan": "atan", "Atanh": "atanh", "BitwiseNot": "bit_not", "Ceil": "ceil", "Cos": "cos",
    "Cosh": "cosh", "Erf": "erf", "Exp": "exp", "Floor": "floor", "HardSwish": "hard_swish",
    "IsNaN": "isnan", "Log": "log", "Mish": "mish", "Neg": "neg", "Not": "logical_not",
    "Reciprocal": "reciprocal", "Relu": "relu", "Round": "round_even", "Sigmoid": "sigmoid",
    "Sign": "sign", "Sin": "sin", "Sinh": "sinh", "Softplus": "softplus", "Softsign": "softsign",
    "Sqrt": "sqrt", "Tan": "tan", "Tanh": "tanh",
}  # fmt: skip
"""Operators without attributes that are one row of the scalar table."""

ACTIVATIONS: dict[str, tuple[str, dict[str, float]]] = {
    "Celu": ("celu", {"alpha": 1.0}),
    "Elu": ("elu", {"alpha": 1.0}),
    "HardSigmoid": ("hard_sigmoid", {"alpha": 0.2, "beta": 0.5}),
    "LeakyRelu": ("leaky_relu", {"alpha": 0.01}),
    "Selu": ("selu", {"alpha": 1.67326319217681884765625, "gamma": 1.05070102214813232421875}),
    "Shrink": ("shrink", {"lambd": 0.5, "bias": 0.0}),
    "Swish": ("swish", {"alpha": 1.0}),
    "ThresholdedRelu": ("thresholded_relu", {"alpha": 1.0}),
}
"""Operators with float attributes: their row, and the defaults."""

BINARY = {
    "Add": "add", "And": "logical_and", "BitwiseAnd": "bit_and", "BitwiseOr": "bit_or",
    "BitwiseXor": "bit_xor", "Div": "div", "Mul": "mul", "Or": "logical_or", "PRelu": "prelu",
    "Sub": "sub", "Xor": "logical_xor",
}  # fmt: skip

COMPARE = {
    "Equal": "eq", "Greater": "gt", "GreaterOrEqual": "ge", "Less": "lt", "LessOrEqual": "le",
}  # fmt: skip

VARIADIC = {"Max": "max", "Mean": "add", "Min": "min", "Sum": "add"}


def _legacy_broadcast(ctx: NodeContext, x: Value, y: Value) -> Value:
    """Before opset 7 the second operand aligns at `axis` instead of at the right."""
    if ctx.opset >= 7:
        return y
    ctx.ignore("consumed_inputs", "broadcast")
    axis = ctx.integer("axis", None)
    if axis is None:
        return y
    after = x.rank - (axis % x.rank) - y.rank
    return ctx.graph.view(y, (*y.shape, *(1,) * after))


@converter(*UNARY)
def unary(ctx: NodeContext) -> Value:
    """One row of the scalar table."""
    ctx.ignore("consumed_inputs")
    return ctx.graph.unary(UNARY[ctx.op], ctx.input(0))


@converter(*ACTIVATIONS)
def activation(ctx: NodeContext) -> Value:
    """One row of the scalar table with parameters."""
    ctx.ignore("consumed_inputs")
    fn, defaults = ACTIVATIONS[ctx.op]
    defaults = _old_defaults(ctx, defaults)
    params = {name: ctx.real(name, value) for name, value in defaults.items()}
    return ctx.graph.unary(fn, ctx.input(0), **params)


def _old_defaults(ctx: NodeContext, defaults: dict[str, float]) -> dict[str, float]:
    """Selu's constants were rounded in opset 1."""
    return {"alpha": 1.6732, "gamma": 1.0507} if ctx.op == "Selu" and ctx.opset < 6 else defaults


@converter("Gelu")
def gelu(ctx: NodeContext) -> Value:
    """The error-function form, or the tanh approximation."""
    form = ctx.choice("approximate", "none", ("none", "tanh"))
    return ctx.graph.unary("gelu" if form == "none" else "gelu_tanh", ctx.input(0))


@converter("IsInf")
def is_inf(ctx: NodeContext) -> Value:
    """Infinities of the signs asked for."""
    signs = {n: float(ctx.flag(n, True)) for n in ("detect_negative", "detect_positive")}
    return ctx.graph.unary("is_inf", ctx.input(0), **signs)


@converter(*BINARY)
def binary(ctx: NodeContext) -> Value:
    """One row of the scalar table with two operands."""
    x, y = ctx.input(0), ctx.input(1)
    y = _prelu_slope(x, y, ctx) if ctx.op == "PRelu" else _legacy_broadcast(ctx, x, y)
    result = ctx.graph.binary(BINARY[ctx.op], x, y)
    return _size_quotients(ctx, x, y, result) if ctx.op == "Div" else result


def _size_quotients(ctx: NodeContext, x: Value, y: Value, result: Value) -> Value:
    """Return quotients of sizes as sizes, also where only a call shows that none is negative.

    Sizes round down and ONNX truncates, which is the same then. Exporters write the length behind
    each convolution so, and it is negative for inputs that are too short for them.
    """
    if result.content is not None or x.content is None or y.content is None:
        return result
    over, under = np.broadcast_arrays(x.content, y.content)
    pairs = list(zip(over.ravel().tolist(), under.ravel().tolist(), strict=True))
    if not all(isinstance(n, (int, Dim)) and isinstance(d, int) and d > 0 for n, d in pairs):
        return result
    if not all(ctx.graph.decide_ge(n, 0, ctx.name) for n, _ in pairs):
        return result
    quotients = np.array([n // d for n, d in pairs], object).reshape(over.shape)
    return ctx.graph.size_tensor(quotients, result.dtype)


def _prelu_slope(x: Value, slope: Value, ctx: NodeContext) -> Value:
    """Before opset 7 a slope of rank 1 belongs to the channels (axis 1).

    So it does in files of MXNet for 7 and 8, which do not broadcast to the right as they should.
    """
    ctx.ignore("consumed_inputs")
    if ctx.opset >= 9 or slope.rank != 1 or x.rank < 2 or slope.shape == (1,):
        return slope
    if ctx.opset >= 7 and size_eq(slope.shape[0], x.shape[-1]) is not False:
        return slope
    return ctx.graph.view(slope, (*slope.shape, *(1,) * (x.rank - 2)))


@converter(*COMPARE)
def compare(ctx: NodeContext) -> Value:
    """A comparison; booleans compare for equality as numbers do."""
    x, y = ctx.input(0), ctx.input(1)
    return ctx.graph.compare(COMPARE[ctx.op], x, _legacy_broadcast(ctx, x, y))


@converter(*VARIADIC)
def variadic(ctx: NodeContext) -> Value:
    """A fold over one or more operands."""
    ctx.ignore("consumed_inputs")
    g, xs = ctx.graph, ctx.inputs()
    total = reduce(lambda x, y: g.binary(VARIADIC[ctx.op], x, y), xs)
    return total / len(xs) if ctx.op == "Mean" else total


@converter("Pow")
def power(ctx: NodeContext) -> Value:
    """Raise x to the y. From opset 12 on y may have another type; the result has that of x."""
    g, x, y = ctx.graph, ctx.input(0), ctx.input(1)
    y = _legacy_broadcast(ctx, x, y)
    if x.dtype is y.dtype:
        return g.binary("pow", x, y)
    # the wider of both holds base and exponent, as in a float exponent of an integer
    wide = DType.FLOAT64 if DType.FLOAT64 in (x.dtype, y.dtype) else _common_float(x.dtype, y.dtype)
    if x.dtype.is_int and y.dtype.is_int:
        wide = x.dtype
    return g.cast(g.binary("pow", g.cast(x, wide), g.cast(y, wide)), x.dtype)


def _common_float(x: DType, y: DType) -> DType:
    # int32 and wider integers need a double to be exact
    wide_int = any(d.is_int and d.bits >= 32 for d in (x, y))
    return DType.FLOAT64 if wide_int else DType.FLOAT32


@converter("Mod")
def mod(ctx: NodeContext) -> Value:
    """Remainder with the sign of the divisor, or of the dividend with fmod=1."""
    truncated = ctx.flag("fmod", False)
    return ctx.graph.binary("fmod" if truncated else "mod", ctx.input(0), ctx.input(1))


@converter("BitShift")
def bit_shift(ctx: NodeContext) -> Value:
    """Shift left or right; zeros come in."""
    direction = ctx.choice("direction", "", ("LEFT", "RIGHT"))
    fn = "shift_left" if direction == "LEFT" else "shift_right"
    return ctx.graph.binary(fn, ctx.input(0), ctx.input(1))


@converter("Where")
def where(ctx: NodeContext) -> Value:
    """Choose by a condition."""
    return ctx.graph.select(ctx.input(0), ctx.input(1), ctx.input(2))


@converter("Clip", until=10)
def clip_attributes(ctx: NodeContext) -> Value:
    """Bounds are attributes."""
    ctx.ignore("consumed_inputs")
    g, x = ctx.graph, ctx.input(0)
    low, high = ctx.real("min", None), ctx.real("max", None)
    bounds = [None if b is None else g.scalar(b, x.dtype) for b in (low, high)]
    return _clip(ctx, x, bounds)


@converter("Clip", since=11)
def clip(ctx: NodeContext) -> Value:
    """Bounds are inputs, each of which may be missing."""
    return _clip(ctx, ctx.input(0), [ctx.optional(1), ctx.optional(2)])


def _clip(ctx: NodeContext, x: Value, bounds: Sequence[Value | None]) -> Value:
    """min(max(x, low), high), in this order: where low > high the result is high."""
    low, high = bounds
    if low is not None:
        x = ctx.graph.binary("max", x, _scalar(ctx, low))
    return x if high is None else ctx.graph.binary("min", x, _scalar(ctx, high))


def _scalar(ctx: NodeContext, x: Value) -> Value:
    return x if x.rank == 0 else ctx.graph.view(x, ())


@converter("Cast", until=5)
def cast_by_name(ctx: NodeContext) -> Value:
    """The type is a word."""
    return ctx.graph.cast(ctx.input(0), DType.parse(_TYPE_WORDS.get(w := ctx.text("to"), w)))


_TYPE_WORDS = {"FLOAT": "float32", "DOUBLE": "float64"}


@converter("Cast", since=6)
def cast(ctx: NodeContext) -> Value:
    """Convert the element type."""
    return _cast(ctx, ctx.dtype("to"))


@converter("CastLike")
def cast_like(ctx: NodeContext) -> Value:
    """Convert to the element type of the second input."""
    return _cast(ctx, ctx.input(1).dtype)


def _cast(ctx: NodeContext, dtype: DType) -> Value:
    saturate = ctx.flag("saturate", True)
    mode: Any = ctx.choice("round_mode", "up", ("up", "down", "nearest"))
    return ctx.graph.cast(ctx.input(0), dtype, saturate=saturate, round_mode=mode)


@converter("BitCast")
def bit_cast(ctx: NodeContext) -> Value:
    """Reinterpret bits."""
    return ctx.graph.bit_cast(ctx.input(0), ctx.dtype("to"))


@converter("Dropout", until=11)
def dropout_inference(ctx: NodeContext) -> list[Value | None]:
    """Keep everything; the mask says so."""
    ctx.ignore("consumed_inputs", "ratio", "is_test")
    x = ctx.input(0)
    return [x, _full_mask(ctx, x) if ctx.wants(1) else None]


@converter("Dropout", since=12)
def dropout(ctx: NodeContext) -> list[Value | None]:
    """Keep everything, unless training is on: then drop elements at random and scale the rest."""
    x, ratio, training = ctx.input(0), ctx.optional(1), ctx.optional(2)
    if training is None or _is(training, False) or (ratio is not None and _is(ratio, 0.0)):
        ctx.ignore("seed")
        return [x, _full_mask(ctx, x) if ctx.wants(1) else None]
    g = ctx.graph
    rate = g.scalar(0.5, DType.FLOAT32) if ratio is None else _scalar(ctx, ratio)
    wide = DType.FLOAT64 if x.dtype is DType.FLOAT64 else DType.FLOAT32
    scale, zero = 1 / (1 - g.cast(rate, wide)), g.scalar(0, wide)
    mask = keep_mask(ctx, x, g.cast(rate, DType.FLOAT32))
    if not _is(training, True):
        on = _scalar(ctx, training)
        mask = g.binary("logical_or", mask, g.logical_not(on))
        scale = g.select(on, scale, g.scalar(1, wide))
    kept = g.cast(g.select(mask, g.mul(g.cast(x, wide), scale), zero), x.dtype)
    return [kept, mask]


def _is(x: Value, number: float) -> bool:
    return x.constant is not None and bool((x.constant == number).all())


def _full_mask(ctx: NodeContext, x: Value) -> Value:
    dtype = DType.BOOL if ctx.opset >= 10 else x.dtype
    one: Any = np.ones((), dtype.numpy)
    return ctx.graph.broadcast(ctx.graph.constant(one), x.shape)
