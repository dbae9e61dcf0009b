"""Writers of scalar functions, comparisons, selection and conversion."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kn_graph.dtype import DType, Kind
from kn_graph.onnx.write.registry import refuse, writer
from kn_graph.ops.elementwise import Binary, BitCast, Cast, Compare, Select, Unary

if TYPE_CHECKING:
    from kn_graph.onnx.write.node import NodeWriter

__all__ = ["apply_unary"]

UNARY = {
    "abs": "Abs", "acos": "Acos", "acosh": "Acosh", "asin": "Asin", "asinh": "Asinh",
    "atan": "Atan", "atanh": "Atanh", "bit_not": "BitwiseNot", "ceil": "Ceil", "cos": "Cos",
    "cosh": "Cosh", "erf": "Erf", "exp": "Exp", "floor": "Floor", "hard_swish": "HardSwish",
    "isinf": "IsInf", "isnan": "IsNaN", "log": "Log", "logical_not": "Not", "mish": "Mish",
    "neg": "Neg", "reciprocal": "Reciprocal", "relu": "Relu", "round_even": "Round",
    "sigmoid": "Sigmoid", "sign": "Sign", "sin": "Sin", "sinh": "Sinh", "softplus": "Softplus",
    "softsign": "Softsign", "sqrt": "Sqrt", "tan": "Tan", "tanh": "Tanh", "gelu": "Gelu",
}  # fmt: skip
"""Rows of the scalar table that are operators."""

WITH_PARAMS = {
    "celu": "Celu", "elu": "Elu", "hard_sigmoid": "HardSigmoid", "leaky_relu": "LeakyRelu",
    "selu": "Selu", "shrink": "Shrink", "thresholded_relu": "ThresholdedRelu", "is_inf": "IsInf",
}  # fmt: skip
"""Rows whose parameters are attributes of the same names."""

BINARY = {
    "add": "Add", "sub": "Sub", "mul": "Mul", "div": "Div", "pow": "Pow", "min": "Min",
    "max": "Max", "prelu": "PRelu", "logical_and": "And", "logical_or": "Or", "logical_xor": "Xor",
    "bit_and": "BitwiseAnd", "bit_or": "BitwiseOr", "bit_xor": "BitwiseXor",
}  # fmt: skip

COMPARE = {
    "eq": "Equal", "gt": "Greater", "ge": "GreaterOrEqual", "lt": "Less", "le": "LessOrEqual",
}  # fmt: skip

UNSIGNED = {8: DType.UINT8, 16: DType.UINT16, 32: DType.UINT32, 64: DType.UINT64}

Form = Callable[..., str]


# ---- one argument -------------------------------------------------------------------------------


def _times_sigmoid(ctx: NodeWriter, x: str, alpha: float = 1.0) -> str:
    inner = x if alpha == 1 else ctx.emit("Mul", x, ctx.scalar(alpha, x))
    return ctx.emit("Mul", x, ctx.emit("Sigmoid", inner))


def _affine(ctx: NodeWriter, x: str, alpha: float = 1.0, beta: float = 0.0) -> str:
    x = ctx.emit("Mul", x, ctx.scalar(alpha, x))
    return ctx.emit("Add", x, ctx.scalar(beta, x))


def _scaled_tanh(ctx: NodeWriter, x: str, alpha: float = 1.0, beta: float = 1.0) -> str:
    inner = ctx.emit("Mul", x, ctx.scalar(beta, x))
    return ctx.emit("Mul", ctx.emit("Tanh", inner), ctx.scalar(alpha, x))


def _trunc(ctx: NodeWriter, x: str) -> str:
    below = ctx.emit("Less", x, ctx.scalar(0, x))
    return ctx.emit("Where", below, ctx.emit("Ceil", x), ctx.emit("Floor", x))


def _log1p(ctx: NodeWriter, x: str) -> str:
    """The quotient takes back what the rounding of 1 + x changed."""
    one = ctx.scalar(1, x)
    sum_ = ctx.emit("Add", x, one)
    rounded = ctx.emit("Sub", sum_, one)
    log = ctx.emit("Log", sum_)
    ratio = ctx.emit("Mul", log, ctx.emit("Div", x, rounded))
    exact = ctx.emit("Or", ctx.emit("Equal", rounded, x), ctx.emit("IsInf", sum_))
    out = ctx.emit("Where", exact, log, ratio)
    return ctx.emit("Where", ctx.emit("Equal", sum_, one), x, out)


def _expm1(ctx: NodeWriter, x: str) -> str:
    """2 tanh(x/2) / (1 - tanh(x/2)) near 0, the difference elsewhere."""
    t = ctx.emit("Tanh", ctx.emit("Mul", x, ctx.scalar(0.5, x)))
    near = ctx.emit("Div", ctx.emit("Add", t, t), ctx.emit("Sub", ctx.scalar(1, x), t))
    far = ctx.emit("Sub", ctx.emit("Exp", x), ctx.scalar(1, x))
    small = ctx.emit("Less", ctx.emit("Abs", x), ctx.scalar(0.5, x))
    return ctx.emit("Where", small, near, far)


FORMS: dict[str, Form] = {
    "affine": _affine,
    "expm1": _expm1,
    "gelu_tanh": lambda ctx, x: ctx.emit("Gelu", x, approximate="tanh"),
    "log1p": _log1p,
    "quick_gelu": lambda ctx, x, alpha=1.702: _times_sigmoid(ctx, x, alpha),
    "rsqrt": lambda ctx, x: ctx.emit("Reciprocal", ctx.emit("Sqrt", x)),
    "scaled_tanh": _scaled_tanh,
    "silu": _times_sigmoid,
    "square": lambda ctx, x: ctx.emit("Mul", x, x),
    "swish": _times_sigmoid,
    "trunc": _trunc,
}
"""Rows that are several operators."""


@writer(Unary)
def unary(ctx: NodeWriter, op: Unary) -> str:
    """An operator, or a few."""
    return apply_unary(ctx, op.fn, ctx.x, dict(op.params))


def apply_unary(ctx: NodeWriter, fn: str, x: str, params: dict[str, float]) -> str:
    """Write a row of the scalar table, applied to a tensor."""
    if fn in UNARY:
        return ctx.emit(UNARY[fn], x)
    if fn in WITH_PARAMS:
        flags = fn == "is_inf"
        given = {n: int(v) if flags else float(v) for n, v in params.items()}
        return ctx.emit(WITH_PARAMS[fn], x, **given)
    if fn in FORMS:
        return FORMS[fn](ctx, x, **params)
    refuse(f"there is no form of {fn}")


# ---- two arguments ------------------------------------------------------------------------------


def _mod(ctx: NodeWriter, x: str, y: str) -> str:
    """Floats have only the remainder with the sign of the dividend."""
    dtype = ctx.scope.dtype(x)
    assert dtype is not None
    if not dtype.is_float:
        return ctx.emit("Mod", x, y)
    zero = ctx.scalar(0, x)
    rest = ctx.emit("Mod", x, y, fmod=1)
    signs = [ctx.emit("Less", v, zero) for v in (rest, y)]
    shifted = ctx.emit(
        "And", ctx.emit("Xor", *signs), ctx.emit("Not", ctx.emit("Equal", rest, zero))
    )
    return ctx.emit("Where", shifted, ctx.emit("Add", rest, y), rest)


def _shift(ctx: NodeWriter, x: str, y: str, direction: str) -> str:
    """Only unsigned integers shift; ones come in from the left of what is negative."""
    dtype = ctx.scope.dtype(x)
    assert dtype is not None
    if dtype.kind is Kind.UINT:
        return ctx.emit("BitShift", x, y, direction=direction)
    wide = UNSIGNED.get(dtype.bits)
    if wide is None:
        refuse(f"{dtype} cannot be shifted")
    amount = ctx.cast(y, wide)
    if direction == "LEFT":
        return ctx.cast(ctx.emit("BitShift", ctx.cast(x, wide), amount, direction=direction), dtype)
    below = ctx.emit("Less", x, ctx.scalar(0, x))
    turned = ctx.emit("Where", below, ctx.emit("BitwiseNot", x), x)
    shifted = ctx.emit("BitShift", ctx.cast(turned, wide), amount, direction=direction)
    shifted = ctx.cast(shifted, dtype)
    return ctx.emit("Where", below, ctx.emit("BitwiseNot", shifted), shifted)


TWO: dict[str, Form] = {
    "mod": _mod,
    "fmod": lambda ctx, x, y: ctx.emit("Mod", x, y, fmod=1),
    "shift_left": lambda ctx, x, y: _shift(ctx, x, y, "LEFT"),
    "shift_right": lambda ctx, x, y: _shift(ctx, x, y, "RIGHT"),
}


@writer(Binary)
def binary(ctx: NodeWriter, op: Binary) -> str:
    """An operator, which broadcasts by itself."""
    if op.fn in BINARY:
        return ctx.emit(BINARY[op.fn], *ctx.inputs)
    if op.fn in TWO:
        return TWO[op.fn](ctx, *ctx.inputs)
    refuse(f"there is no form of {op.fn}")


@writer(Compare)
def compare(ctx: NodeWriter, op: Compare) -> str:
    """A comparison."""
    if op.fn == "ne":
        return ctx.emit("Not", ctx.emit("Equal", *ctx.inputs))
    return ctx.emit(COMPARE[op.fn], *ctx.inputs)


@writer(Select)
def select(ctx: NodeWriter, op: Select) -> str:
    """Where."""
    return ctx.emit("Where", *ctx.inputs)


@writer(Cast)
def cast(ctx: NodeWriter, op: Cast) -> str:
    """Cast; how to round to powers of two can be said from opset 24 on."""
    saturate = None if op.saturate else 0
    mode = None if op.round_mode == "up" else op.round_mode
    return ctx.emit("Cast", ctx.x, to=op.dtype, saturate=saturate, round_mode=mode)


@writer(BitCast)
def bit_cast(ctx: NodeWriter, op: BitCast) -> str:
    """Integers wrap as their bits; floats need the operator."""
    before = ctx.values[0].dtype
    if before.is_int and op.dtype.is_int:
        return ctx.emit("Cast", ctx.x, to=op.dtype)
    return ctx.emit("BitCast", ctx.x, to=op.dtype, dtype=op.dtype)
