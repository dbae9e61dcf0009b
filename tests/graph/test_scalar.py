"""Every row of the scalar table through every derivation, over the values that break things."""

from __future__ import annotations

import ctypes
import math
import operator
import shutil
import subprocess
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special

from kn_graph import scalar
from kn_graph.dtype import DType, Kind
from kn_graph.errors import DTypeError, GraphError
from kn_graph.scalar import SCALAR_TABLE, Arg, NanRule, ScalarFunction, evaluate, evaluate_scalar
from kn_graph.scalar.primitives import erf, erfc

pytestmark = pytest.mark.filterwarnings("error")

FLOATS = (DType.FLOAT32, DType.FLOAT64)
INTS = tuple(d for d in DType if d.is_int and d.bits >= 8)
NARROW = (DType.FLOAT16, DType.BFLOAT16)
ROWS = list(SCALAR_TABLE.values())
FLOAT_ROWS = [r for r in ROWS if Kind.FLOAT in r.kinds]
# what parameters are tried besides their defaults
OTHER_PARAMS = {"alpha": 0.75, "beta": -0.25, "gamma": 1.5, "lambd": 1.5, "bias": 0.25,
                "detect_negative": False, "detect_positive": True}  # fmt: skip
# rows that may give either zero
ANY_ZERO = {"min", "max", *(r.name for r in ROWS if r.name not in scalar.PRIMITIVES)}


def letters(row: ScalarFunction) -> str:
    """Return a letter an operand: T for the common type, B for bool."""
    return row.signature.pattern.split("-")[0]


def param_sets(row: ScalarFunction) -> list[dict[str, float]]:
    other = {n: OTHER_PARAMS[n] for n in row.params}
    return [dict(row.params), other] if other else [{}]


def operand_types(row: ScalarFunction, dtype: DType) -> list[DType]:
    return [DType.BOOL if t == "B" else dtype for t in letters(row)]


def float_operands(row: ScalarFunction, dtype: DType) -> list[np.ndarray]:
    """Return all combinations of special values, then 600 random ones."""
    info, rng, typed = np.finfo(dtype.numpy), np.random.default_rng(7), letters(row)
    deep = float(np.log(float(info.tiny)))
    some = [0.0, 0.5, 1.0, 1.5, 2.5, 3.0, np.inf, float(info.smallest_subnormal), float(info.tiny),
            float(info.max), 1e-8, 1e-30, 1e5, 6.0, 20.0, 88.5, 100.0, -deep - 3, -deep + 9,
            0.999999]  # fmt: skip
    values = np.array([*some, *(-v for v in some), np.nan], dtype.numpy)
    grids = np.meshgrid(*([values[:: 3 if len(typed) == 3 else 1]] * len(typed)))
    noise = rng.normal(0, 3, (len(typed), 600))
    noise[:, ::3] *= np.exp(rng.normal(0, 6, noise[:, ::3].shape))
    arrays = [np.append(grids[i], noise[i].astype(dtype.numpy)) for i in range(len(typed))]
    return [a > 0 if typed[i] == "B" else a for i, a in enumerate(arrays)]


# --- oracles: textbook formulas in a wider type, or exact fractions ----------------------------


def exactly(function: Callable[..., Fraction], fallback: Callable[..., Any]) -> Callable[..., Any]:
    """Compute with fractions where all operands are finite and the function is defined."""

    def oracle(*arrays: np.ndarray) -> np.ndarray:
        result = np.array(fallback(*arrays), np.longdouble)
        for index in np.ndindex(result.shape):
            operands = [float(a[index]) for a in arrays]
            if not np.isfinite(operands).all() or (len(operands) == 2 and operands[1] == 0):
                continue
            value = function(*map(Fraction, operands))
            if value and abs(value) < Fraction(1.7e308):
                high = float(value)
                result[index] = np.longdouble(high) + np.longdouble(float(value - Fraction(high)))
        return result

    return oracle


ORACLES: dict[str, Callable[..., Any]] = {
    **{n: getattr(operator, n) for n in ("add", "sub", "mul", "neg", "abs", "eq", "lt", "le")},
    **{n: getattr(operator, n) for n in ("gt", "ge", "ne", "pow")},
    **{n: getattr(np, n) for n in ("sign", "exp", "log", "log1p", "expm1", "sqrt", "sin", "cos")},
    **{n: getattr(np, n) for n in ("tan", "sinh", "cosh", "tanh", "floor", "ceil", "trunc")},
    **{n: getattr(np, f"arc{n[1:]}") for n in ["asin", "acos", "atan", "asinh", "acosh", "atanh"]},
    **{n: getattr(np, n) for n in ("isnan", "isinf", "square", "reciprocal", "fmod")},
    "div": operator.truediv,
    "mod": exactly(operator.mod, np.mod),
    "fmod": exactly(lambda a, b: a - int(a / b) * b, np.fmod),
    "fma": exactly(lambda a, b, c: a * b + c, lambda a, b, c: a * b + c),
    "min": lambda a, b: np.where(np.isnan(a) | np.isnan(b), np.nan, np.where(a < b, a, b)),
    "max": lambda a, b: np.where(np.isnan(a) | np.isnan(b), np.nan, np.where(a < b, b, a)),
    "erf": lambda x: special.erf(x.astype(np.float64)),
    "round_even": np.rint,
    "select": np.where,
    "is_inf": lambda x, detect_negative, detect_positive: (
        (detect_negative and x == -np.inf) | (detect_positive and x == np.inf)),
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "affine": lambda x, alpha, beta: alpha * x + beta,
    "relu": lambda x: np.where(x < 0, 0, x),
    "leaky_relu": lambda x, alpha: np.where(x < 0, alpha * x, x),
    "prelu": lambda x, slope: np.where(x < 0, slope * x, x),
    "thresholded_relu": lambda x, alpha: np.where(x > alpha, x, 0),
    "elu": lambda x, alpha: np.where(x < 0, alpha * np.expm1(x), x),
    "celu": lambda x, alpha: np.maximum(0, x) + np.minimum(0, alpha * np.expm1(x / alpha)),
    "selu": lambda x, alpha, gamma: gamma * np.where(x < 0, alpha * np.expm1(x), x),
    "shrink": lambda x, lambd, bias: np.where(
        x < -lambd, x + bias, np.where(x > lambd, x - bias, 0)),
    "sigmoid": special.expit,
    "hard_sigmoid": lambda x, alpha, beta: np.maximum(0, np.minimum(1, alpha * x + beta)),
    "softplus": lambda x: np.logaddexp(x, np.zeros_like(x)),
    "softsign": lambda x: x / (1 + np.abs(x)),
    "scaled_tanh": lambda x, alpha, beta: alpha * np.tanh(beta * x),
    "hard_swish": lambda x: x * np.maximum(0, np.minimum(1, x / 6 + 0.5)),
    "silu": lambda x: x * special.expit(x),
    "swish": lambda x, alpha: x * special.expit(alpha * x),
    "quick_gelu": lambda x, alpha: x * special.expit(alpha * x),
    "mish": lambda x: x * np.tanh(np.log1p(np.exp(x))),
    "gelu": lambda x: x * special.ndtr(x.astype(np.float64)),
    "gelu_tanh": lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
}  # fmt: skip


def assert_close(
    row: ScalarFunction, result: Any, arrays: Sequence[Any], params: Any, dtype: DType
) -> None:
    """Compare with the row's bound; NaN, infinities, bools and (of primitives) zeros exactly."""
    wide_type = np.float64 if dtype.bits <= 32 else np.longdouble
    with np.errstate(all="ignore"):
        wider = [a if a.dtype == np.bool_ else a.astype(wide_type) for a in arrays]
        exact = np.asarray(ORACLES[row.name](*wider, **params))
    assert result.dtype == row.result_type(*operand_types(row, dtype)).numpy
    assert result.shape == exact.shape
    if result.dtype == np.bool_:
        np.testing.assert_array_equal(result, exact)
        return
    info, wide = ml_dtypes.finfo(dtype.numpy), result.astype(np.longdouble)
    with np.errstate(all="ignore"):
        bound = row.tolerance(exact, wider, params, dtype) * np.longdouble(1.001)
        almost = float(info.max) * (1 - max(row.ulps, 1) * float(info.eps))
        good = (wide == exact) | (np.abs(wide - exact) <= bound)
        good |= np.isnan(wide) & np.isnan(exact)
        good |= np.isinf(wide) & (np.sign(wide) == np.sign(exact)) & (np.abs(exact) >= almost)
    if row.name not in ANY_ZERO:
        good &= (wide != 0) | (np.signbit(wide) == np.signbit(exact))
    shown = [([a[i] for a in arrays], result[i], exact[i], bound[i]) for i in np.flatnonzero(~good)]
    assert not shown, f"{row.name} {dtype} {params}: (operands, got, exact, bound) {shown[:5]}"


# --- floats ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("row", FLOAT_ROWS, ids=lambda r: r.name)
def test_formula_and_expression_meet_the_bound_of_the_row(
    row: ScalarFunction, dtype: DType
) -> None:
    arrays = float_operands(row, dtype)
    for params in param_sets(row):
        assert_close(row, evaluate_scalar(row.name, arrays, params), arrays, params, dtype)
        assert_close(row, evaluate(row.expression, arrays, params), arrays, params, dtype)


@pytest.mark.parametrize("dtype", NARROW, ids=str)
@pytest.mark.parametrize("row", FLOAT_ROWS, ids=lambda r: r.name)
def test_narrow_floats_are_rounded_once(row: ScalarFunction, dtype: DType) -> None:
    some = [a[-600:] for a in float_operands(row, DType.FLOAT32)]
    arrays = [a if a.dtype == np.bool_ else a.clip(-60, 60).astype(dtype.numpy) for a in some]
    wide = [a if a.dtype == np.bool_ else a.astype(np.float32) for a in arrays]
    for compute in (row.evaluate, lambda *rest: evaluate(row.expression, *rest)):
        result, once = compute(arrays, row.params), compute(wide, row.params)
        with np.errstate(over="ignore"):
            once = once.astype(result.dtype).astype(np.float32)
        np.testing.assert_array_equal(result.astype(np.float32), once)
        assert_close(row, result, arrays, row.params, dtype)


NAN_RESULTS: dict[NanRule, Callable[[np.ndarray, int], bool]] = {
    NanRule.PROPAGATES: lambda r, i: bool(np.isnan(r)),
    NanRule.POWER: lambda r, i: bool(np.isnan(r)),
    NanRule.CHOSEN: lambda r, i: bool(np.isnan(r)) == (i == 0),
    NanRule.ZERO: lambda r, i: r == 0,
    NanRule.FALSE: lambda r, i: not r,
    NanRule.TRUE: lambda r, i: bool(r),
}


@pytest.mark.parametrize("row", FLOAT_ROWS, ids=lambda r: r.name)
def test_nan_rule_of_the_row_holds_for_each_operand(row: ScalarFunction) -> None:
    typed = letters(row)
    for dtype, position in product(FLOATS + NARROW, range(typed.count("T"))):
        values = [np.array(2.5, dtype.numpy) for _ in range(typed.count("T"))]
        values[position] = np.array(np.nan, dtype.numpy)
        arrays = [np.array(True), *values] if typed[0] == "B" else values
        for result in (row.evaluate(arrays), evaluate(row.expression, arrays, row.params)):
            assert NAN_RESULTS[row.nan](result, position), (dtype, position, result)


def test_float_powers_and_remainders_have_the_special_cases_of_c_and_onnx() -> None:
    inf, nan = np.inf, np.nan
    mod = [(0.0, 2.0, 0.0), (-0.0, 2.0, 0.0), (0.0, -2.0, -0.0), (inf, 2.0, nan), (1.0, 0.0, nan),
           (1.0, inf, 1.0), (-1.0, inf, inf), (1.0, -inf, -inf)]  # fmt: skip
    for name, rows in (("mod", mod), ("pow", [(1.0, nan, 1.0), (nan, 0.0, 1.0)])):
        for a, b, expected in rows:
            result = evaluate_scalar(name, [np.array(a), np.array(b)])
            assert repr(float(result)) == repr(expected), (name, a, b)


def test_erf_is_accurate_to_one_ulp_of_float64() -> None:
    x = np.concatenate([np.linspace(-6.5, 6.5, 40001), np.logspace(-310, 0, 999)])
    exact = np.array([math.erf(v) for v in x])
    assert (np.abs(erf(x) - exact) <= np.spacing(np.abs(exact))).all()
    tail = np.linspace(-5, 26, 20001)
    assert (np.abs(erfc(tail) / special.erfc(tail) - 1) < 3e-16 * (8 + tail**2)).all()


# --- integers and bools ------------------------------------------------------------------------


def wrap(value: int, dtype: DType) -> int:
    low = -(1 << (dtype.bits - 1)) if dtype.kind is Kind.INT else 0
    return (value - low) % (1 << dtype.bits) + low


def int_div(a: int, b: int) -> int:
    return 0 if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


# the operands, then the number of bits
INT_ORACLES: dict[str, Callable[..., int]] = {
    "add": lambda a, b, n: a + b, "sub": lambda a, b, n: a - b, "mul": lambda a, b, n: a * b,
    "div": lambda a, b, n: int_div(a, b), "mod": lambda a, b, n: a % b if b else 0,
    "fmod": lambda a, b, n: a - int_div(a, b) * b if b else 0,
    "pow": lambda a, b, n: pow(a, b, 1 << n) if b >= 0 else int_div(1, a ** (-b % 2 + 2)),
    "fma": lambda a, b, c, n: a * b + c, "neg": lambda a, n: -a, "abs": lambda a, n: abs(a),
    "sign": lambda a, n: (a > 0) - (a < 0), "min": lambda a, b, n: min(a, b),
    "max": lambda a, b, n: max(a, b), "eq": lambda a, b, n: a == b, "ne": lambda a, b, n: a != b,
    "lt": lambda a, b, n: a < b, "le": lambda a, b, n: a <= b, "gt": lambda a, b, n: a > b,
    "ge": lambda a, b, n: a >= b, "select": lambda c, a, b, n: a if c else b,
    "bit_not": lambda a, n: ~a, "bit_and": lambda a, b, n: a & b, "bit_or": lambda a, b, n: a | b,
    "bit_xor": lambda a, b, n: a ^ b,
    "shift_right": lambda a, b, n: a >> (b if 0 <= b < n else n),
    "shift_left": lambda a, b, n: a << b if 0 <= b < n else 0,
    "square": lambda a, n: a * a, "relu": lambda a, n: max(a, 0),
    "prelu": lambda a, s, n: a * s if a < 0 else a, "shrink": lambda a, n: a,
}  # fmt: skip
INT_CASES = [(r, d) for r in ROWS for d in INTS if d.kind in r.kinds]


def int_operands(row: ScalarFunction, dtype: DType) -> list[np.ndarray]:
    """Return all combinations of small values and the ends of the range."""
    low, high = (int(v) for v in (np.iinfo(dtype.numpy).min, np.iinfo(dtype.numpy).max))
    near = [v for v in (*range(-9, 10), 31, 32, 63, 64) if low <= v <= high]
    values = [low, low + 1, *near, high // 3, high - 1, high][:: 3 if row.arity == 3 else 1]
    types = operand_types(row, dtype)
    rows = list(product(*([False, True] if t is DType.BOOL else values for t in types)))
    return [np.array([r[i] for r in rows], t.numpy) for i, t in enumerate(types)]


@pytest.mark.parametrize(("row", "dtype"), INT_CASES, ids=lambda v: getattr(v, "name", v))
def test_integers_are_exact_and_wrap(row: ScalarFunction, dtype: DType) -> None:
    arrays = int_operands(row, dtype)
    result = evaluate_scalar(row.name, arrays)
    columns = zip(*(a.tolist() for a in arrays), strict=True)
    expected = [INT_ORACLES[row.name](*values, dtype.bits) for values in columns]
    if result.dtype != np.bool_:
        assert result.dtype == dtype.numpy
        expected = [wrap(v, dtype) for v in expected]
    assert result.tolist() == expected
    assert evaluate(row.expression, arrays, row.params).tolist() == expected


@given(
    *[st.integers(-(2**63), 2**63 - 1)] * 2,
    st.sampled_from(["add", "sub", "mul", "div", "mod", "fmod", "pow"]),
)
def test_any_int64_is_exact(a: int, b: int, name: str) -> None:
    result = evaluate_scalar(name, [np.array(a), np.array(b)])
    assert int(result) == wrap(INT_ORACLES[name](a, b, 64), DType.INT64)


def test_types_of_a_byte_and_less_are_computed_in_wider_ones() -> None:
    x = np.array([1.0, -2.0, np.nan], ml_dtypes.float8_e4m3fn)
    assert evaluate_scalar("isnan", [x]).tolist() == [False, False, True]
    assert evaluate_scalar("relu", [x]).astype(float)[:2].tolist() == [1.0, 0.0]
    total = evaluate_scalar("add", [np.array([7], ml_dtypes.int4), np.array([1], ml_dtypes.int4)])
    assert (total.dtype.name, int(total[0])) == ("int4", -8)


@pytest.mark.parametrize("name", ["add", "mul"])
def test_bools_have_logic_but_no_arithmetic(name: str) -> None:
    a, b = np.array([False, False, True, True]), np.array([False, True, False, True])
    with pytest.raises(DTypeError, match=f"'{name}': operand 0 is bool, allowed.* float, int"):
        evaluate_scalar(name, [a, b])
    assert evaluate_scalar("logical_xor", [a, b]).tolist() == [False, True, True, False]


@pytest.mark.parametrize("shape", [(), (1,)])
def test_objects_such_as_symbolic_sizes_pass_by_their_operators(shape: tuple[int, ...]) -> None:
    sizes = np.full(shape, Fraction(1, 3), np.object_)
    five = evaluate_scalar("mul", [sizes, 5])
    total = evaluate_scalar("add", [np.full(shape, 2**70, np.object_), five])
    assert total.shape == shape
    assert total.reshape(-1)[0] == 2**70 + Fraction(5, 3)
    with pytest.raises(DTypeError):
        evaluate_scalar("add", [np.array(["a"], np.object_)] * 2)


# --- C text ------------------------------------------------------------------------------------

BOOL_ROWS = [r for r in ROWS if Kind.BOOL in r.kinds]
C_CASES = {
    f"{row.name}_{dtype}_{i}": (row, dtype, params)
    for row, dtypes in [*((r, FLOATS) for r in FLOAT_ROWS), *((r, (d,)) for r, d in INT_CASES),
                        *((r, (DType.BOOL,)) for r in BOOL_ROWS)]
    for dtype in dtypes
    for i, params in enumerate(param_sets(row))
}  # fmt: skip


def c_loop(name: str) -> str:
    """Render the function of a case and a loop over arrays around it."""
    row, dtype, params = C_CASES[name]
    text = scalar.c_function(name, row.expression, operand_types(row, dtype), params)
    result, arguments = text.split()[1], text[text.index("(") + 1 : text.index(")")].split(", ")
    pointers = ", ".join(f"const {a.replace(' ', ' *')}" for a in arguments)
    values = ", ".join(f"{a.split()[1]}[i]" for a in arguments)
    return (f"{text}void loop_{name}({result} *y, long n, {pointers})\n"
            f"{{ for (long i = 0; i < n; i++) y[i] = {name}({values}); }}\n")  # fmt: skip


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler on PATH")
    folder: Path = tmp_path_factory.mktemp("scalar")
    code = "".join(map(c_loop, C_CASES))
    (folder / "rows.c").write_text(scalar.c_prelude(code) + code)
    flags = ["-std=c99", "-O1", "-fPIC", "-shared", "-Wall", "-Werror", "-Wno-div-by-zero"]
    flags += ["-Wno-type-limits", "-Wno-tautological-compare"]
    subprocess.run([compiler, *flags, "rows.c", "-o", "rows.so", "-lm"], cwd=folder, check=True)
    return ctypes.CDLL(str(folder / "rows.so"))


@pytest.mark.parametrize("name", C_CASES)
def test_c_text_meets_the_bound_of_the_row(name: str, library: ctypes.CDLL) -> None:
    row, dtype, params = C_CASES[name]
    bools = [np.array(c) for c in zip(*product([False, True], repeat=row.arity), strict=True)]
    make = float_operands if dtype.is_float else int_operands
    arrays = bools if dtype is DType.BOOL else make(row, dtype)
    result = np.empty(arrays[0].shape, row.result_type(*operand_types(row, dtype)).numpy)
    pointers = [ctypes.c_void_p(a.ctypes.data) for a in arrays]
    loop = getattr(library, f"loop_{name}")
    loop(ctypes.c_void_p(result.ctypes.data), ctypes.c_long(result.size), *pointers)
    if dtype.is_float:
        assert_close(row, result, arrays, params, dtype)
    else:
        np.testing.assert_array_equal(result, evaluate_scalar(row.name, arrays, params))


def test_c_literals_are_exact_and_integers_cannot_overflow() -> None:
    cases = [(0.1, DType.FLOAT32, "0.1f"), (0.1, DType.FLOAT64, "0.1"),
             (-np.inf, DType.FLOAT32, "(-1.0f/0.0f)"), (-0.0, DType.FLOAT64, "(-0.0)"),
             (-(2**63), DType.INT64, "((int64_t)-9223372036854775807LL - 1)"),
             (-1, DType.UINT8, "((uint8_t)255U)"), (True, DType.INT8, "true")]  # fmt: skip
    for value, dtype, text in cases:
        assert scalar.c_literal(value, dtype) == text
    # signed overflow is undefined in C, and would only sometimes show
    for name in ("add", "sub", "mul", "div", "neg", "abs", "fma", "shift_left"):
        assert "{U}" in scalar.PRIMITIVES[name].forms[Kind.INT].c
    with pytest.raises(DTypeError, match="no scalar C code for float16"):
        scalar.c_literal(1.0, DType.FLOAT16)


# --- expressions and the table -----------------------------------------------------------------


def test_deep_and_doubling_expressions_stay_linear() -> None:
    chain = doubling = Arg(0) + 0
    for _ in range(20_000):
        chain = chain + 1
    for _ in range(60):
        doubling = doubling + doubling
    assert scalar.depth(chain) == evaluate(chain, [np.array(1)]) == 20_001
    assert evaluate(doubling, [np.array(1)]) == 2**60
    assert scalar.operation_counts(doubling) == {"add": 61}
    assert len(scalar.c_statements(doubling, [DType.INT64], ["x"])[0]) == 61
    assert evaluate(scalar.substitute(doubling, [scalar.Literal(1)]), [np.array(7)]) == 2**60


def test_mistakes_name_the_function_and_what_it_takes() -> None:
    x = np.ones(2, np.float32)
    with pytest.raises(KeyError, match="gelu"):
        scalar.scalar_function("gleu")
    with pytest.raises(DTypeError, match=r"'relu': operand 0 is uint8, allowed are .* float, int$"):
        evaluate_scalar("relu", [x.astype(np.uint8)])
    with pytest.raises(DTypeError, match=r"'add': operand 1 is float64, but operand 0 is float32"):
        evaluate_scalar("add", [x, x.astype(np.float64)])
    with pytest.raises(DTypeError, match=r"'select': operand 0 is float32, expected bool"):
        evaluate_scalar("select", [x, x, x])
    with pytest.raises(GraphError, match=r"'add' takes 2 operand\(s\), got 1"):
        evaluate_scalar("add", [x])
    with pytest.raises(GraphError, match="'elu' has no parameter 'beta'; it has alpha"):
        evaluate_scalar("elu", [x], {"beta": 1.0})
    with pytest.raises(GraphError, match="parameter 'alpha' of the expression has no value"):
        evaluate(scalar.Param("alpha") * Arg(0), [x])
    with pytest.raises(GraphError, match="no truth value"):
        bool(Arg(0) < 1)


def test_adding_an_activation_is_one_row() -> None:
    x = np.linspace(-2, 2, 9, dtype=np.float32)
    row = scalar.table._row("relu_squared", SCALAR_TABLE["square"](scalar.E.max(Arg(0), 0)),
                     lambda x: np.maximum(x, 0) ** 2, 0.5, "-", "max(x, 0)^2")  # fmt: skip
    try:
        expected = np.where(x > 0, x * x, 0)
        np.testing.assert_array_equal(evaluate_scalar("relu_squared", [x]), expected)
        np.testing.assert_array_equal(evaluate(row.expression, [x]), expected)
        assert "t0 * t0" in scalar.c_function("f", row.expression, [DType.FLOAT32])
    finally:
        del scalar.table._rows["relu_squared"]


@pytest.mark.parametrize("row", ROWS, ids=lambda r: r.name)
def test_results_are_fresh_arrays_of_the_shape_of_the_operands(row: ScalarFunction) -> None:
    dtype = next(d for d in (DType.FLOAT32, DType.INT32, DType.BOOL) if d.kind in row.kinds)
    for shape in ((), (0, 3), (2, 1)):
        arrays = [np.ones(shape, d.numpy) for d in operand_types(row, dtype)]
        for result in (row.evaluate(arrays), evaluate(row.expression, arrays, row.params)):
            assert type(result) is np.ndarray
            assert result.shape == shape
            assert not any(np.shares_memory(result, a) for a in arrays)
            assert result.dtype == row.result_type(*operand_types(row, dtype)).numpy
    assert all((row.doc, row.onnx, row.ulps >= 0.5))
