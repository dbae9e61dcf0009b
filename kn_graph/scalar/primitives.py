"""The primitives: the smallest scalar functions, each with a NumPy function and a C expression.

Everything scalar is built from these. A primitive has a signature such as `TT->T` (`T` is one
element type shared by these operands, `B` is bool) and one `Form` for each kind of `T`.

Numerics, which every other derivation has to follow:

* Narrow floats (float16, bfloat16, float8, float6, float4) are computed in float32 and rounded once
  by each primitive; sub-byte integers are computed in 8 bits and wrapped.
* Integers wrap silently, division truncates toward zero, and `div(x, 0)`, `mod(x, 0)` and
  `fmod(x, 0)` are 0. No integer passes through a float.
* NaN propagates through every float function but the comparisons, `min` and `max` included.
* Object arrays of Python ints and symbolic sizes pass `add`, `sub` and `mul` by their operators;
  these are exact and do not wrap.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from kn_graph.dtype import DType, Kind
from kn_graph.errors import DTypeError, GraphError

__all__ = [
    "PRIMITIVES",
    "Array",
    "Compute",
    "Form",
    "Primitive",
    "Signature",
    "erf",
    "erfc",
    "widen",
]

Array = npt.NDArray[Any]
Compute = Callable[..., Any]

# the letters of NumPy's dtype.kind, and of the table below
_KINDS = {
    "f": Kind.FLOAT,
    "i": Kind.INT,
    "u": Kind.UINT,
    "b": Kind.BOOL,
    "c": Kind.COMPLEX,
    "O": Kind.STRING,
    "U": Kind.STRING,
}

_WIDENED = {
    d.numpy: np.dtype(np.float32 if d.is_float else np.int8 if d.kind is Kind.INT else np.uint8)
    for d in DType
    if (d.is_float and d.bits < 32) or (d.is_int and d.bits < 8)
}


def widen(array: Array) -> Array:
    """Convert to the type that scalar functions compute in; most types are their own."""
    wide = _WIDENED.get(array.dtype)
    return array if wide is None else array.astype(wide)


@dataclass(frozen=True)
class Signature:
    """Which element types a scalar function takes, and which it gives.

    Attributes:
        owner: the function, as error messages name it.
        pattern: one letter an operand, then the result: `T` the common type, `B` bool.
        kinds: the kinds that `T` may be of.
        objects: how object arrays of sizes are computed, if they are allowed.
    """

    owner: str
    pattern: str
    kinds: frozenset[Kind]
    objects: np.ufunc | None = None

    @cached_property
    def arity(self) -> int:
        """Number of operands."""
        return self.pattern.index("-")

    @cached_property
    def typed(self) -> int:
        """Index of the first operand of type `T`."""
        return self.pattern.index("T")

    @cached_property
    def gives_bool(self) -> bool:
        """Whether the result is bool whatever `T` is."""
        return self.pattern.endswith("B")

    def result_type(self, *dtypes: DType) -> DType:
        """Return the element type of the result.

        Raises:
            DTypeError: an operand has a type that is not allowed, or operands differ.
            GraphError: the number of operands is wrong.
        """
        if len(dtypes) != self.arity:
            raise GraphError(f"{self.owner} takes {self.arity} operand(s), got {len(dtypes)}")
        common = dtypes[self.typed]
        for index, (letter, dtype) in enumerate(zip(self.pattern, dtypes, strict=False)):
            if letter == "B" and dtype is not DType.BOOL:
                raise DTypeError(f"{self.owner}: operand {index} is {dtype}, expected bool")
            if letter == "T" and dtype.kind not in self.kinds:
                allowed = ", ".join(k.value for k in Kind if k in self.kinds)
                raise DTypeError(
                    f"{self.owner}: operand {index} is {dtype}, allowed are types of kind {allowed}"
                )
            if letter == "T" and dtype is not common:
                raise DTypeError(
                    f"{self.owner}: operand {index} is {dtype}, but operand {self.typed} is"
                    f" {common}; cast one of them, types are never promoted"
                )
        return DType.BOOL if self.gives_bool else common

    def run(self, compute: Compute, arrays: Sequence[Any], *, exact: bool = True) -> Array:
        """Check the operands, call `compute` on widened arrays, and round its result once.

        Args:
            compute: gets arrays of native types, with warnings off.
            arrays: the operands; they may broadcast.
            exact: whether float32 arithmetic rounds `compute` correctly. Otherwise float32 operands
                are widened to float64, so that the definition of a function carries no noise.

        Returns:
            A fresh array, of rank 0 if all operands are.
        """
        arrays = [np.asarray(a) for a in arrays]
        if self.objects is not None and any(a.dtype == np.object_ for a in arrays):
            return self._run_objects(self.objects, arrays)
        dtype = self.result_type(*[DType.from_numpy(a.dtype) for a in arrays]).numpy
        with np.errstate(all="ignore"):
            wide = [widen(a) for a in arrays]
            if not exact and dtype == np.float32:
                wide = [a.astype(np.float64) if a.dtype == dtype else a for a in wide]
            result = np.asarray(compute(*wide))
            return result if result.dtype == dtype else result.astype(dtype)

    def _run_objects(self, ufunc: np.ufunc, arrays: Sequence[Array]) -> Array:
        if any(isinstance(v, str) for a in arrays if a.dtype == np.object_ for v in a.flat):
            self.result_type(*[DType.STRING] * len(arrays))
        # without `out`, a rank 0 result would lose its array
        out = np.empty(np.broadcast_shapes(*(a.shape for a in arrays)), np.object_)
        ufunc(*arrays, out=out, dtype=np.object_)
        return out


class Form(NamedTuple):
    """How one primitive is computed for one kind of type.

    Attributes:
        numpy: the NumPy function, for native types.
        c: a C expression over `{0}`, `{1}`, `{2}`, or empty; it may use `{T}` the type, `{U}` an
            unsigned type that arithmetic wraps in, `{bits}`, `{s}` the suffix of `<math.h>` names,
            `{inf}`, and `{name}`, the suffix of helpers such as `kn_pow_i32`. Operands are names or
            literals, so writing one twice costs nothing.
    """

    numpy: Compute
    c: str


@dataclass(frozen=True, eq=False)
class Primitive:
    """One primitive scalar function.

    Attributes:
        name: what rows and programs call it.
        signature: its operand and result types.
        forms: how it is computed, by kind of the operands of type `T`.
    """

    name: str
    signature: Signature
    forms: Mapping[Kind, Form]

    @property
    def arity(self) -> int:
        """Number of operands."""
        return self.signature.arity

    def result_type(self, *dtypes: DType) -> DType:
        """Return the element type of the result; see `Signature.result_type`."""
        return self.signature.result_type(*dtypes)

    def numpy(self, *arrays: Any) -> Array:
        """Compute the primitive, checking types; see `Signature.run`."""
        return self.signature.run(self.compute, arrays)

    def compute(self, *arrays: Any) -> Any:
        """Compute without checks or rounding, for native types; warnings are the caller's."""
        kind = _KINDS[arrays[self.signature.typed].dtype.kind]
        return self.forms[kind].numpy(*arrays)

    def __repr__(self) -> str:
        """Return the name."""
        return f"<primitive {self.name}>"


# --- NumPy functions that NumPy lacks ---------------------------------------------------------

# erf(x) / x - 1 over x*x, |x| <= 0.875; erf(x) - _ERF_MIDDLE over |x| - 1.25 up to 1.625: both are
# interpolated at Chebyshev nodes in 60 digits. The complement uses the rational functions of
# W. J. Cody, "Rational Chebyshev approximations for the error function", Math. Comp. 23 (1969).
_ERF_MIDDLE = 0.9229001282564583
_HEAD_P = np.array([-3.2613625958033313e-06, -0.00010280875575088704, -0.006276796320585667,
                    -0.03192063108432121, -0.3236529961772602, 0.12837916709551256])  # fmt: skip
_HEAD_Q = np.array([0.00022469695447859065, 0.006024466869914963, 0.0699369731266159,
                    0.4087376016042817, 1.0])  # fmt: skip
_MIDDLE = np.array([-6.128142360047284e-06, -2.2923966483218606e-06, 5.5764141175291214e-05,
                    -5.2900259529808524e-05, -0.00032394911917159585, 0.0007935306393720718,
                    0.000877635675275315, -0.005697679313167759, 0.003625982627325608,
                    0.02130127300827172, -0.047181036405164384, -0.006159404231184517,
                    0.16753579506683308, -0.2956514030591082, 0.2365211224472908,
                    -6.095619457464703e-17])  # fmt: skip
_TAIL_P = np.array([2.15311535474403846e-8, 0.564188496988670089, 8.88314979438837594,
                    66.1191906371416295, 298.635138197400131, 881.95222124176909,
                    1712.04761263407058, 2051.07837782607147, 1230.33935479799725])  # fmt: skip
_TAIL_Q = np.array([1.0, 15.7449261107098347, 117.693950891312499, 537.181101862009858,
                    1621.38957456669019, 3290.79923573345963, 4362.61909014324716,
                    3439.36767414372164, 1230.33935480374942])  # fmt: skip
_FAR_P = np.array([1.63153871373020978e-2, 0.305326634961232344, 0.360344899949804439,
                   0.125781726111229246, 1.60837851487422766e-2,
                   6.58749161529837803e-4])  # fmt: skip
_FAR_Q = np.array([1.0, 2.56852019228982242, 1.87295284992346725, 0.527905102951428412,
                   6.05183413124413191e-2, 2.33520497626869185e-3])  # fmt: skip
_BLOCK = 16384  # of float64: the dozen temporaries stay in the cache


def _polynomial(coefficients: Array, x: Array) -> Array:
    result = np.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        result *= x
        result += coefficient
    return result


def _erfc_tail(y: Array) -> Array:
    """Compute erfc for 0.46875 <= y; accurate to 1.5e-15, relatively, beyond 6 to 1e-7."""
    result: Array = np.exp(-y * y) * (_polynomial(_TAIL_P, y) / _polynomial(_TAIL_Q, y))
    return result


def _erf_block(x: Array) -> Array:
    y = np.minimum(np.abs(x), 6.0)
    z = y * y
    head = x + x * (_polynomial(_HEAD_P, z) / _polynomial(_HEAD_Q, z))
    middle = _ERF_MIDDLE + _polynomial(_MIDDLE, y - 1.25)
    rest = np.where(y <= 1.625, middle, 1.0 - _erfc_tail(y))
    return np.where(y <= 0.875, head, np.copysign(rest, x))


def _erfc_far(y: Array) -> Array:
    w = 1.0 / (y * y)
    series = 1 / np.sqrt(np.pi) - w * (_polynomial(_FAR_P, w) / _polynomial(_FAR_Q, w))
    result: Array = np.exp(-y * y) * series / y
    return result


def _erfc_block(x: Array) -> Array:
    y = np.clip(x, 0.46875, 30.0)
    tail, far = _erfc_tail(y), y > 4.0
    tail[far] = _erfc_far(y[far])
    return np.where(x > 0.46875, tail, 1.0 - _erf_block(x))


def _in_blocks(block: Callable[[Array], Array], x: Any) -> Array:
    """Apply a float64 function of one array piece by piece, and round to the type of `x`."""
    x = np.asarray(x)
    flat = x.reshape(-1)
    out: Array = np.empty(flat.shape, x.dtype)
    for start in range(0, flat.size, _BLOCK):
        part = slice(start, start + _BLOCK)
        out[part] = block(flat[part].astype(np.float64))
    return out.reshape(x.shape)


def erf(x: Any) -> Array:
    """Compute the error function, to 1 ulp of float64; float32 is rounded from float64."""
    return _in_blocks(_erf_block, x)


def erfc(x: Any) -> Array:
    """Compute `1 - erf(x)` to about 1e-15 relatively while `x < 6`, then to `x*x` ulps."""
    return _in_blocks(_erfc_block, x)


def _fma(a: Any, b: Any, c: Any) -> Any:
    """Compute `a*b + c` with one rounding.

    float32 is exact in float64 but for a second rounding. float64 carries the errors of the product
    (Dekker) and of the sum (Knuth) along, on mantissas so that nothing overflows.
    """
    if a.dtype == np.float32:
        wide = np.multiply(a, b, dtype=np.float64) + c
        return np.asarray(wide).astype(np.float32)
    (a_part, a_exponent), (b_part, b_exponent) = np.frexp(a), np.frexp(b)
    exponent = a_exponent + b_exponent
    addend, product = np.ldexp(c, -exponent), a_part * b_part
    a_high, b_high = _high_half(a_part), _high_half(b_part)
    a_low, b_low = a_part - a_high, b_part - b_high
    error = ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low
    total = product + addend
    part = total - product
    error = error + ((product - (total - part)) + (addend - part))
    exact = total + error
    # else an addend that swallows the product, or an operand that is zero or not finite
    usual = np.isfinite(product) & (product != 0)
    scaled = np.where(np.isfinite(exact), np.ldexp(exact, exponent), c)
    return np.where(usual, scaled, a * b + c)


def _high_half(x: Any) -> Any:
    scaled = x * 134217729.0  # 2**27 + 1
    return scaled - (scaled - x)


def _div_int(a: Any, b: Any) -> Any:
    quotient, rest = np.divmod(a, b)
    return quotient + ((rest != 0) & ((a < 0) != (b < 0)))


def _pow_int(a: Any, b: Any) -> Any:
    """Raise integers by repeated squaring; `1 / a**-b`, truncated, for negative exponents."""
    base, exponent = (np.array(v) for v in np.broadcast_arrays(a, b))
    left, result, square = np.maximum(exponent, 0), np.ones_like(base), base
    while left.any():
        result = np.where(left & 1, result * square, result)
        square, left = square * square, left >> 1
    if base.dtype.kind == "u":
        return result
    odd = (exponent & 1).astype(bool)
    inverse = np.where((base == 1) | ((base == -1) & ~odd), 1, np.where(base == -1, -1, 0))
    return np.where(exponent < 0, inverse.astype(base.dtype), result)


# --- the table --------------------------------------------------------------------------------


def _primitive(
    name: str, pattern: str, *forms: tuple[str, Compute, str], objects: np.ufunc | None = None
) -> Primitive:
    """Build one row; a form is (letters of the kinds it serves, NumPy function, C expression)."""
    by_kind = {_KINDS[k]: Form(numpy, c) for kinds, numpy, c in forms for k in kinds}
    signature = Signature(f"scalar function '{name}'", pattern, frozenset(by_kind), objects)
    return Primitive(name, signature, MappingProxyType(by_kind))


def _wrapping(operator: str) -> str:
    return "({T})(({U}){0} " + operator + " ({U}){1})"


# same name in <math.h>, one operand, floats only
_LIBRARY: dict[str, Compute] = {
    "exp": np.exp, "log": np.log, "log1p": np.log1p, "expm1": np.expm1, "sqrt": np.sqrt, "erf": erf,
    "sin": np.sin, "cos": np.cos, "tan": np.tan,
    "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan,
    "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh,
    "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh,
    "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc,
}  # fmt: skip

_TABLE = (
    _primitive("add", "TT->T", ("fc", np.add, "{0} + {1}"), ("iu", np.add, _wrapping("+")),
               objects=np.add),
    _primitive("sub", "TT->T", ("fc", np.subtract, "{0} - {1}"),
               ("iu", np.subtract, _wrapping("-")), objects=np.subtract),
    _primitive("mul", "TT->T", ("fc", np.multiply, "{0} * {1}"),
               ("iu", np.multiply, _wrapping("*")), objects=np.multiply),
    _primitive("div", "TT->T", ("fc", np.true_divide, "{0} / {1}"),
               ("i", _div_int, "{1} == 0 ? ({T})0 : {1} == -1 ? ({T})(0 - ({U}){0}) : "
                               "({T})({0} / {1})"),
               ("u", np.floor_divide, "{1} == 0 ? ({T})0 : ({T})({0} / {1})")),
    _primitive("mod", "TT->T", ("f", np.remainder, "kn_mod_{name}({0}, {1})"),
               ("i", np.remainder, "kn_mod_{name}({0}, {1})"),
               ("u", np.remainder, "{1} == 0 ? ({T})0 : ({T})({0} % {1})")),
    _primitive("fmod", "TT->T", ("f", np.fmod, "fmod{s}({0}, {1})"),
               ("i", np.fmod, "{1} == 0 || {1} == -1 ? ({T})0 : ({T})({0} % {1})"),
               ("u", np.fmod, "{1} == 0 ? ({T})0 : ({T})({0} % {1})")),
    _primitive("pow", "TT->T", ("f", np.power, "pow{s}({0}, {1})"),
               ("iu", _pow_int, "kn_pow_{name}({0}, {1})")),
    _primitive("fma", "TTT->T", ("f", _fma, "fma{s}({0}, {1}, {2})"),
               ("iu", lambda a, b, c: a * b + c, "({T})(({U}){0} * ({U}){1} + ({U}){2})")),
    _primitive("neg", "T->T", ("fc", np.negative, "-{0}"),
               ("i", np.negative, "({T})(0 - ({U}){0})")),
    _primitive("abs", "T->T", ("f", np.abs, "fabs{s}({0})"), ("u", np.abs, "{0}"),
               ("i", np.abs, "{0} < 0 ? ({T})(0 - ({U}){0}) : {0}")),
    _primitive("sign", "T->T", ("i", np.sign, "({T})(({0} > 0) - ({0} < 0))"),
               ("u", np.sign, "({T})({0} != 0)"),
               ("f", np.sign, "{0} > 0 ? ({T})1 : {0} < 0 ? ({T})-1 : {0} == 0 ? ({T})0 : {0}")),
    # `x != x` picks a NaN of the first operand; one of the second falls through the comparison
    _primitive("min", "TT->T", ("f", np.minimum, "({0} < {1} || {0} != {0}) ? {0} : {1}"),
               ("iu", np.minimum, "{0} < {1} ? {0} : {1}")),
    _primitive("max", "TT->T", ("f", np.maximum, "({0} > {1} || {0} != {0}) ? {0} : {1}"),
               ("iu", np.maximum, "{0} > {1} ? {0} : {1}")),
    *(_primitive(n, "T->T", ("f", fn, n + "{s}({0})")) for n, fn in _LIBRARY.items()),
    _primitive("round_even", "T->T", ("f", np.rint, "rint{s}({0})")),
    _primitive("eq", "TT->B", ("fiubcOU", np.equal, "{0} == {1}")),
    _primitive("lt", "TT->B", ("fiu", np.less, "{0} < {1}")),
    _primitive("le", "TT->B", ("fiu", np.less_equal, "{0} <= {1}")),
    _primitive("select", "BTT->T", ("fiubcOU", np.where, "{0} ? {1} : {2}")),
    _primitive("logical_not", "T->T", ("b", np.logical_not, "!{0}")),
    _primitive("logical_and", "TT->T", ("b", np.logical_and, "{0} && {1}")),
    _primitive("logical_or", "TT->T", ("b", np.logical_or, "{0} || {1}")),
    _primitive("logical_xor", "TT->T", ("b", np.logical_xor, "{0} != {1}")),
    _primitive("bit_not", "T->T", ("iu", np.bitwise_not, "({T})~{0}")),
    _primitive("bit_and", "TT->T", ("iu", np.bitwise_and, "({T})({0} & {1})")),
    _primitive("bit_or", "TT->T", ("iu", np.bitwise_or, "({T})({0} | {1})")),
    _primitive("bit_xor", "TT->T", ("iu", np.bitwise_xor, "({T})({0} ^ {1})")),
    # an amount that is negative or too large shifts everything out, as ONNX and NumPy say
    _primitive("shift_left", "TT->T",
               ("iu", np.left_shift, "({U}){1} < {bits} ? ({T})(({U}){0} << {1}) : ({T})0")),
    _primitive("shift_right", "TT->T",
               ("i", np.right_shift, "({U}){1} < {bits} ? ({T})({0} >> {1}) : ({T})-({0} < 0)"),
               ("u", np.right_shift, "({U}){1} < {bits} ? ({T})({0} >> {1}) : ({T})0")),
    _primitive("isnan", "T->B", ("f", np.isnan, "{0} != {0}")),
    _primitive("isinf", "T->B", ("f", np.isinf, "fabs{s}({0}) == {inf}")),
)  # fmt: skip

PRIMITIVES: Mapping[str, Primitive] = MappingProxyType({p.name: p for p in _TABLE})
"""Every primitive by name."""
