"""Every scalar function of the engine, one row each.

A row holds an expression over primitives, from which devices derive their code, and a NumPy formula
that is independent of it, from which the reference computes. The tests run both, and the C text of
the expression, over special values. Adding an activation is adding one row here (and one line in
the ONNX converter).

Formulas are evaluated as IEEE arithmetic would: `x * sigmoid(x)` of minus infinity is
`-inf * 0`, NaN, as it is in ONNX's function bodies.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Any

import ml_dtypes
import numpy as np

from kn_graph.dtype import DType, Kind
from kn_graph.errors import GraphError
from kn_graph.scalar.expression import (
    Arg,
    E,
    Expression,
    Operand,
    Param,
    common_type,
    constant,
    substitute,
)
from kn_graph.scalar.primitives import PRIMITIVES, Array, Compute, Primitive, Signature, erfc

__all__ = ["SCALAR_TABLE", "NanRule", "ScalarFunction", "evaluate_scalar", "scalar_function"]


CORRECTLY_ROUNDED = 0.5
"""An error bound in ulps that only a correctly rounded result keeps."""


class NanRule(Enum):
    """What a NaN operand does; the value is the text for people."""

    PROPAGATES = "NaN in any operand gives NaN"
    CHOSEN = "NaN of an operand that is not chosen is dropped; NaN is never less than zero"
    POWER = "NaN in any operand gives NaN, but pow(1, NaN) and pow(NaN, 0) are 1"
    ZERO = "NaN gives 0: it is on no side of the threshold"
    FALSE = "NaN in any operand gives False"
    TRUE = "NaN in any operand gives True"
    NONE = "there is no NaN in these types"


# magnitude that an error is measured at: (smallest normal number, *operands, **params)
Scale = Callable[..., Any]


@dataclass(frozen=True, eq=False)
class ScalarFunction:
    """One scalar function.

    Attributes:
        name: what graphs and scalar programs call it.
        signature: its operand and result types.
        params: names and default values; a bool default makes a bool parameter.
        expression: the function over primitives, of `Arg`s and `Param`s.
        numpy: the independent NumPy formula `numpy(*arrays, **params)`, for native types.
        ulps: bound of the error of a float32 implementation against exact arithmetic, in units in
            the last place of the result, or of `scale` where that is larger.
        scale: where cancellation or underflow makes more error than the result shows.
        nan: the NaN rule.
        onnx: the ONNX operators that this is.
        doc: the formula.
    """

    name: str
    signature: Signature
    params: Mapping[str, float]
    expression: Expression = field(repr=False)
    numpy: Compute = field(repr=False)
    ulps: float
    scale: Scale | None = field(repr=False)
    nan: NanRule
    onnx: str
    doc: str

    @property
    def arity(self) -> int:
        """Number of operands."""
        return self.signature.arity

    @property
    def kinds(self) -> frozenset[Kind]:
        """Kinds of types that the function takes."""
        return self.signature.kinds

    @property
    def rounds_once(self) -> bool:
        """Whether arithmetic in the type of the operands gives the correctly rounded result."""
        return self.ulps <= CORRECTLY_ROUNDED

    def result_type(self, *dtypes: DType) -> DType:
        """Return the element type of the result; see `Signature.result_type`."""
        return self.signature.result_type(*dtypes)

    def bind(self, params: Mapping[str, float] | None = None) -> dict[str, float]:
        """Return the value of every parameter.

        Raises:
            GraphError: a name is not a parameter of this function.
        """
        params = params or {}
        unknown = sorted(set(params) - set(self.params))
        if unknown:
            expected = ", ".join(self.params) or "none"
            raise GraphError(
                f"{self.signature.owner} has no parameter {unknown[0]!r}; it has {expected}"
            )
        bound = {name: params.get(name, default) for name, default in self.params.items()}
        # ONNX writes flags as 0 and 1
        return {n: bool(v) if isinstance(self.params[n], bool) else v for n, v in bound.items()}

    def evaluate(self, arrays: Sequence[Any], params: Mapping[str, float] | None = None) -> Array:
        """Compute the NumPy formula; see `evaluate_scalar`."""
        bound = self.bind(params)
        formula = _with_params(self.numpy, bound) if bound else self.numpy
        return self.signature.run(formula, arrays, exact=self.rounds_once)

    def tolerance(
        self,
        exact: Any,
        arrays: Sequence[Any],
        params: Mapping[str, float] | None = None,
        dtype: DType = DType.FLOAT32,
    ) -> Array:
        """Return the absolute error that an implementation may have, element by element.

        Args:
            exact: the result in higher precision; where it is not finite the tolerance is 0.
            arrays: the operands.
            params: the parameters.
            dtype: the float type of the implementation. One narrower than float32 is computed in
                float32, so that one ulp covers it.

        Returns:
            At least the smallest number of `dtype` where `exact` is finite.
        """
        info = ml_dtypes.finfo(dtype.numpy)  # type: ignore[no-untyped-call]
        tiny, eps = float(info.smallest_normal), float(info.eps)
        with np.errstate(all="ignore"):
            size = np.maximum(np.abs(np.asarray(exact, np.longdouble)), tiny)
            if self.scale is not None:
                size = np.maximum(size, self.scale(tiny, *arrays, **self.bind(params)))
            ulp = np.ldexp(np.longdouble(eps), np.frexp(size)[1] - 1)
            ulps = min(self.ulps, 1.0) if dtype.bits < 32 else self.ulps
            bound = np.maximum((ulps * ulp).astype(np.float64), float(info.smallest_subnormal))
            return np.where(np.isfinite(exact), bound, 0.0)

    def __call__(self, *operands: Operand, **params: Operand) -> Expression:
        """Return the expression of the function applied to expressions."""
        defaults = {n: v for n, v in self.params.items() if n not in params}
        return substitute(self.expression, operands, {**defaults, **params})


def _with_params(formula: Compute, params: Mapping[str, float]) -> Compute:
    def compute(*arrays: Array) -> Any:
        common = common_type([DType.from_numpy(a.dtype) for a in arrays])
        return formula(*arrays, **{n: constant(v, common) for n, v in params.items()})

    return compute


# --- the primitives as rows -------------------------------------------------------------------

# name: (ulps, ONNX operator, formula); 0.5 is correctly rounded, or exact
_PRIMITIVE_ROWS: dict[str, tuple[float, str, str]] = {
    "add": (0.5, "Add, Sum", "a + b"),
    "sub": (0.5, "Sub", "a - b"),
    "mul": (0.5, "Mul", "a * b"),
    "div": (0.5, "Div", "a / b; of integers, truncated toward zero, a / 0 = 0"),
    "mod": (0.5, "Mod(fmod=0)", "a - floor(a / b) * b, with the sign of b; mod(a, 0) = 0"),
    "fmod": (0.5, "Mod(fmod=1)", "a - trunc(a / b) * b, with the sign of a; fmod(a, 0) = 0"),
    "pow": (4, "Pow with equal types", "a ** b; of integers, wrapped; 1 / a**-b if b < 0"),
    "fma": (0.5, "-", "a * b + c, rounded once; integers wrap"),
    "neg": (0.5, "Neg", "-x"),
    "abs": (0.5, "Abs", "|x|; the smallest integer stays itself"),
    "sign": (0.5, "Sign", "1, -1 or 0"),
    "min": (0.5, "Min", "the smaller; of -0 and 0 either"),
    "max": (0.5, "Max", "the larger; of -0 and 0 either"),
    "exp": (3, "Exp", "e^x"),
    "log": (4, "Log", "ln(x)"),
    "log1p": (3, "-", "ln(1 + x)"),
    "expm1": (3, "-", "e^x - 1"),
    "sqrt": (0.5, "Sqrt", "sqrt(x)"),
    "erf": (5, "Erf", "2 / sqrt(pi) * integral of e^-t^2 from 0 to x"),
    **{n: (4, n.capitalize(), f"{n}(x)") for n in ("sin", "cos", "tan", "asin", "acos", "atan")},
    **{n: (4, n.capitalize(), f"{n}(x)") for n in ("sinh", "cosh", "asinh", "acosh", "atanh")},
    "tanh": (5, "Tanh", "tanh(x)"),
    "floor": (0.5, "Floor", "largest integer <= x"),
    "ceil": (0.5, "Ceil", "smallest integer >= x"),
    "trunc": (0.5, "-", "x without its fraction"),
    "round_even": (0.5, "Round", "nearest integer, halves to the even one"),
    "eq": (0.5, "Equal", "a = b; NaN differs from everything"),
    "lt": (0.5, "Less", "a < b"),
    "le": (0.5, "LessOrEqual", "a <= b"),
    "select": (0.5, "Where", "a where the condition holds, else b"),
    "logical_not": (0.5, "Not", "not x"),
    "logical_and": (0.5, "And", "a and b"),
    "logical_or": (0.5, "Or", "a or b"),
    "logical_xor": (0.5, "Xor", "a differs from b"),
    "bit_not": (0.5, "BitwiseNot", "~x"),
    "bit_and": (0.5, "BitwiseAnd", "a & b"),
    "bit_or": (0.5, "BitwiseOr", "a | b"),
    "bit_xor": (0.5, "BitwiseXor", "a ^ b"),
    "shift_left": (0.5, "BitShift(LEFT)", "a << b; 0 if b < 0 or b >= bits"),
    "shift_right": (0.5, "BitShift(RIGHT)", "a >> b, filled with the sign of a signed type"),
    "isnan": (0.5, "IsNaN", "whether x is NaN"),
    "isinf": (0.5, "IsInf with defaults", "whether x is infinite"),
}

_PRIMITIVE_NANS = {
    "pow": NanRule.POWER,
    "select": NanRule.CHOSEN,
    "isnan": NanRule.TRUE,
    **dict.fromkeys(("eq", "lt", "le", "isinf"), NanRule.FALSE),
}


def _primitive_row(primitive: Primitive) -> ScalarFunction:
    ulps, onnx, doc = _PRIMITIVE_ROWS[primitive.name]
    usual = NanRule.PROPAGATES if Kind.FLOAT in primitive.signature.kinds else NanRule.NONE
    return ScalarFunction(
        name=primitive.name,
        signature=primitive.signature,
        params={},
        expression=getattr(E, primitive.name)(*(Arg(i) for i in range(primitive.arity))),
        numpy=primitive.compute,
        ulps=ulps,
        scale=None,
        nan=_PRIMITIVE_NANS.get(primitive.name, usual),
        onnx=onnx,
        doc=doc,
    )


_rows: dict[str, ScalarFunction] = {n: _primitive_row(p) for n, p in PRIMITIVES.items()}


# --- everything else --------------------------------------------------------------------------

_KIND_LETTERS = {"f": Kind.FLOAT, "i": Kind.INT, "u": Kind.UINT, "b": Kind.BOOL, "s": Kind.STRING}


def _row(
    name: str,
    expression: Expression,
    formula: Compute,
    ulps: float,
    onnx: str,
    doc: str,
    *,
    pattern: str = "T->T",
    kinds: str = "f",
    params: Mapping[str, float] | None = None,
    scale: Scale | None = None,
    nan: NanRule = NanRule.PROPAGATES,
) -> ScalarFunction:
    """Add one row; `kinds` has a letter each: f(loat), i(nt), u(int), b(ool), s(tring)."""
    allowed = frozenset(_KIND_LETTERS[k] for k in kinds)
    signature = Signature(f"scalar function '{name}'", pattern, allowed)
    params = MappingProxyType(dict(params or {}))
    assert name not in _rows, name
    _rows[name] = ScalarFunction(
        name, signature, params, expression, formula, ulps, scale, nan, onnx, doc
    )
    return _rows[name]


def _f32(value: float) -> float:
    """ONNX attributes are float32, and so are their defaults."""
    return float(np.float32(value))


def _of_input(tiny: float, x: Any, **_: float) -> Any:
    """The result is a difference of terms as large as x."""
    return np.abs(x)


def _of_gate(tiny: float, x: Any, **_: float) -> Any:
    """The gate that x is multiplied with underflows."""
    return tiny * np.abs(x)


def _of_affine(tiny: float, x: Any, alpha: float, beta: float) -> Any:
    """The terms of alpha*x + beta cancel."""
    return np.abs(alpha * np.asarray(x)) + abs(beta)


def _expit(x: Any) -> Any:
    below = np.exp(np.minimum(x, 0))
    return below / (below + np.exp(-np.maximum(x, 0)))


def _mish(x: Any) -> Any:
    # tanh(ln(1 + n)) = w / (w + 2); from 20 on it is 1 in every type
    n = np.exp(np.minimum(x, 20))
    w = n * (n + 2)
    return x * (w / (w + 2))


def _shrink(x: Any, lambd: Any, bias: Any) -> Any:
    # an unsigned x is never below -lambd, which would wrap
    low = np.zeros_like(x, np.bool_) if x.dtype.kind == "u" else x < -lambd
    return np.where(low, x + bias, np.where(x > lambd, x - bias, np.zeros_like(x)))


def _is_inf(x: Any, detect_negative: Any, detect_positive: Any) -> Any:
    return (np.isneginf(x) & detect_negative) | (np.isposinf(x) & detect_positive)


_x, _y = Arg(0), Arg(1)
_alpha, _beta, _gamma = Param("alpha"), Param("beta"), Param("gamma")
_lambd, _bias = Param("lambd"), Param("bias")
_GELU_TANH = math.sqrt(2 / math.pi)

# fmt: off
_row("gt", _y < _x, np.greater, 0.5, "Greater", "a > b",
     pattern="TT->B", kinds="fiu", nan=NanRule.FALSE)
_row("ge", _y <= _x, np.greater_equal, 0.5, "GreaterOrEqual", "a >= b",
     pattern="TT->B", kinds="fiu", nan=NanRule.FALSE)
_row("ne", ~E.eq(_x, _y), np.not_equal, 0.5, "Not(Equal)", "a differs from b",
     pattern="TT->B", kinds="fiubs", nan=NanRule.TRUE)
_row("is_inf",
     E.isinf(_x) & E.select(_x < 0, Param("detect_negative"), Param("detect_positive")),
     _is_inf, 0.5, "IsInf", "whether x is an infinity of a sign that is looked for",
     pattern="T->B", params={"detect_negative": True, "detect_positive": True}, nan=NanRule.FALSE)

_row("reciprocal", 1 / _x, np.reciprocal, 0.5, "Reciprocal", "1 / x")
_row("rsqrt", 1 / E.sqrt(_x), lambda x: np.reciprocal(np.sqrt(x)), 2,
     "SimplifiedLayerNormalization", "1 / sqrt(x)")
_row("square", _x * _x, np.square, 0.5, "Mul(x, x)", "x * x", kinds="fiu")
_row("affine", _alpha * _x + _beta, lambda x, alpha, beta: x * alpha + beta, 1,
     "Affine, and as an activation of RNNs", "alpha * x + beta",
     params={"alpha": 1.0, "beta": 0.0}, scale=_of_affine)

_row("relu", E.max(_x, 0), lambda x: np.maximum(x, x.dtype.type(0)), 0.5, "Relu", "max(x, 0)",
     kinds="fi")
_row("leaky_relu", E.select(_x < 0, _alpha * _x, _x),
     lambda x, alpha: np.where(x >= 0, x, x * alpha), 0.5, "LeakyRelu",
     "alpha * x if x < 0, else x", params={"alpha": _f32(0.01)})
_row("prelu", E.select(_x < 0, _y * _x, _x),
     lambda x, slope: np.where(x < 0, x * slope, x), 0.5, "PRelu", "slope * x if x < 0, else x",
     pattern="TT->T", kinds="fiu", nan=NanRule.CHOSEN)
_row("thresholded_relu", E.select(_alpha < _x, _x, 0),
     lambda x, alpha: np.where(x > alpha, x, x.dtype.type(0)), 0.5, "ThresholdedRelu",
     "x if x > alpha, else 0", params={"alpha": 1.0}, nan=NanRule.ZERO)
_row("elu", E.select(_x < 0, _alpha * E.expm1(_x), _x),
     lambda x, alpha: np.maximum(x, 0) + alpha * np.expm1(np.minimum(x, 0)), 4, "Elu",
     "alpha * (e^x - 1) if x < 0, else x", params={"alpha": 1.0})
_row("celu", E.max(_x, 0) + E.min(0, _alpha * E.expm1(_x / _alpha)),
     lambda x, alpha: np.where(x < 0, np.minimum(alpha * np.expm1(x / alpha), 0), x), 4, "Celu",
     "max(0, x) + min(0, alpha * (e^(x / alpha) - 1))", params={"alpha": 1.0})
_row("selu", _gamma * E.select(_x < 0, _alpha * E.expm1(_x), _x),
     lambda x, alpha, gamma: gamma * np.maximum(x, 0) + gamma * alpha * np.expm1(np.minimum(x, 0)),
     5, "Selu", "gamma * (alpha * (e^x - 1) if x < 0, else x)",
     params={"alpha": 1.67326319217681884765625, "gamma": 1.05070102214813232421875})
_row("shrink",
     E.select(((_x < 0) | (_lambd < 0)) & (_x < 0 - _lambd), _x + _bias,
              E.select(_lambd < _x, _x - _bias, 0)),
     _shrink, 0.5, "Shrink",
     "x + bias if x < -lambd, else x - bias if x > lambd, else 0; lambd and bias are cast to the"
     " type of x first", kinds="fiu", params={"lambd": 0.5, "bias": 0.0}, nan=NanRule.ZERO)

_decay = E.exp(-abs(_x))
_sigmoid = _row("sigmoid", E.select(_x < 0, _decay, 1) / (1 + _decay), _expit, 5, "Sigmoid",
                "1 / (1 + e^-x)")
_hard_sigmoid = _row(
    "hard_sigmoid", E.max(0, E.min(1, _alpha * _x + _beta)),
    lambda x, alpha, beta: np.clip(x * alpha + beta, 0, 1), 2, "HardSigmoid",
    "max(0, min(1, alpha * x + beta))", params={"alpha": _f32(0.2), "beta": 0.5}, scale=_of_affine)
_softplus = _row(
    "softplus", E.max(_x, 0) + E.log1p(_decay), lambda x: np.logaddexp(x, x.dtype.type(0)), 5,
    "Softplus", "ln(1 + e^x)")
_row("softsign", _x / (1 + abs(_x)), lambda x: x / (np.abs(x) + 1), 1.5, "Softsign",
     "x / (1 + |x|); NaN at the infinities")
_row("scaled_tanh", _alpha * E.tanh(_beta * _x), lambda x, alpha, beta: np.tanh(x * beta) * alpha,
     7, "ScaledTanh, an activation of RNNs", "alpha * tanh(beta * x)",
     params={"alpha": 1.0, "beta": 1.0})

_row("hard_swish", _x * _hard_sigmoid(_x, alpha=1 / 6, beta=0.5),
     lambda x: x * (np.clip(x + 3, 0, 6) / 6), 2, "HardSwish", "x * max(0, min(1, x / 6 + 1 / 2))",
     scale=_of_input)
_row("silu", _x * _sigmoid(_x), lambda x: x * _expit(x), 6, "Swish(alpha=1)", "x * sigmoid(x)",
     scale=_of_gate)
_row("swish", _x * _sigmoid(_alpha * _x), lambda x, alpha: x * _expit(alpha * x), 4, "Swish",
     "x * sigmoid(alpha * x)", params={"alpha": 1.0}, scale=_of_input)
_row("quick_gelu", _x * _sigmoid(_alpha * _x), lambda x, alpha: x * _expit(alpha * x), 4,
     "com.microsoft QuickGelu", "x * sigmoid(alpha * x)", params={"alpha": _f32(1.702)},
     scale=_of_input)
_row("mish", _x * E.tanh(_softplus(_x)), _mish, 10, "Mish", "x * tanh(ln(1 + e^x))",
     scale=_of_gate)
_row("gelu", 0.5 * _x * (1 + E.erf(_x * math.sqrt(0.5))),
     lambda x: 0.5 * x * erfc(x * -math.sqrt(0.5)), 4, "Gelu(none)",
     "x / 2 * (1 + erf(x / sqrt(2)))", scale=_of_input)
_row("gelu_tanh",
     0.5 * _x * (1 + E.tanh(_GELU_TANH * (_x + 0.044715 * (_x * _x * _x)))),
     lambda x: x * _expit(2 * _GELU_TANH * x * (1 + 0.044715 * x * x)), 4,
     "Gelu(tanh), com.microsoft FastGelu",
     "x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3)))", scale=_of_input)

# fmt: on

SCALAR_TABLE: Mapping[str, ScalarFunction] = MappingProxyType(_rows)
"""Every scalar function by name."""


def scalar_function(name: str) -> ScalarFunction:
    """Return the row of this name.

    Raises:
        KeyError: there is none; the message suggests similar names.
    """
    try:
        return SCALAR_TABLE[name]
    except KeyError:
        close = difflib.get_close_matches(name, SCALAR_TABLE, n=3)
        hint = f"did you mean {', '.join(close)}?" if close else f"there are {', '.join(_rows)}"
        raise KeyError(f"no scalar function is named {name!r}; {hint}") from None


def evaluate_scalar(
    name: str, arrays: Sequence[Any], params: Mapping[str, float] | None = None
) -> Array:
    """Compute a scalar function with its NumPy formula: the definition of what is correct.

    Narrow floats are computed in float32 and rounded once at the end, float32 in float64 where its
    own arithmetic would not round correctly; integers wrap.

    Args:
        name: the row.
        arrays: the operands; they may broadcast, and are not modified.
        params: parameters that differ from their defaults.

    Returns:
        A fresh array of the function's result type, of rank 0 if all operands are.

    Raises:
        KeyError: there is no such function.
        DTypeError: an operand has a type that the function does not take.
        GraphError: a wrong number of operands, or an unknown parameter.
    """
    return scalar_function(name).evaluate(arrays, params)
