"""Activations as exporters spell them out: each becomes one row of the scalar table."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kn_graph import DType, Graph, cpu_eval_graph, load_graph_from_onnx_bytes
from kn_graph.optimizer import OptimizerSettings, optimize_graph_report
from kn_graph.optimizer.editor import Editor
from kn_graph.optimizer.polynomial import polynomial
from kn_graph.transform import clone_graph
from models.generate import model_bytes
from tests.optimizer.exported import drawn, exported, only, special
from tests.optimizer.rewriting import EXPORTS, MODELS, ops, optimized, refusals, stored

Exact = Callable[[np.ndarray], np.ndarray]
EPS = {"float64": 2e-16, "float32": 1.2e-7, "float16": 1e-3, "bfloat16": 8e-3}

HALF_ROOT = 0.7071067811865476
ROOT = 1.4142135623730951
K = 0.7978845608028654

erf = np.vectorize(math.erf, otypes=[np.float64])


def expit(x: np.ndarray) -> np.ndarray:
    return np.exp(-np.logaddexp(0, -x))


def gelu(x: np.ndarray) -> np.ndarray:
    return x / 2 * (1 + erf(x * HALF_ROOT))


def gelu_tanh(x: np.ndarray) -> np.ndarray:
    return x / 2 * (1 + np.tanh(K * (x + 0.044715 * x**3)))


def hard_swish(x: np.ndarray) -> np.ndarray:
    return x * np.clip(x / 6 + 0.5, 0, 1)


def silu(x: np.ndarray) -> np.ndarray:
    return x * expit(x)


def mish(x: np.ndarray) -> np.ndarray:
    return x * np.tanh(np.logaddexp(x, 0))


# (exporter and form, text, rule, row of the scalar table, closed form)
FORMS: list[tuple[str, str, str, str, Exact]] = [
    ("torch gelu", f"y = Mul(Mul(x, Add(Erf(Div(x, {ROOT})), 1.0)), 0.5)", "gelu", "gelu", gelu),
    ("transformers", f"y = Mul(x, Mul(0.5, Add(1.0, Erf(Div(x, {ROOT})))))", "gelu", "gelu", gelu),
    ("tf2onnx", f"y = Mul(Mul(0.5, x), Add(1.0, Erf(Mul(x, {HALF_ROOT}))))", "gelu", "gelu", gelu),
    ("paddle", f"y = Mul(Mul(x, 0.5), Add(Erf(Div(x, {ROOT})), 1.0))", "gelu", "gelu", gelu),
    ("keras", f"y = Mul(Mul(Add(Erf(Mul({HALF_ROOT}, x)), 1.0), x), 0.5)", "gelu", "gelu", gelu),
    ("halved", f"y = Div(Mul(x, Add(Erf(Div(x, {ROOT})), 1.0)), 2.0)", "gelu", "gelu", gelu),
    ("gate", f"y = Mul(x, Add(Mul(Erf(Div(x, {ROOT})), 0.5), 0.5))", "gelu", "gelu", gelu),
    (
        "gpt2",
        f"u = Mul(Add(x, Mul(Pow(x, 3.0), 0.044715)), {K})\n"
        "y = Mul(Mul(x, 0.5), Add(Tanh(u), 1.0))",
        "gelu_tanh",
        "gelu_tanh",
        gelu_tanh,
    ),
    (
        "gelu_fast",
        f"u = Mul(Mul(x, {K}), Add(1.0, Mul(Mul(0.044715, x), x)))\n"
        "y = Mul(Mul(0.5, x), Add(1.0, Tanh(u)))",
        "gelu_tanh",
        "gelu_tanh",
        gelu_tanh,
    ),
    (
        "tf gelu",
        f"u = Mul({K}, Add(x, Mul(0.044715, Mul(Mul(x, x), x))))\n"
        "y = Mul(x, Mul(0.5, Add(1.0, Tanh(u))))",
        "gelu_tanh",
        "gelu_tanh",
        gelu_tanh,
    ),
    (
        "gelu with sigmoid",
        f"u = Mul(Add(x, Mul(0.044715, Pow(x, 3.0))), {2 * K})\ny = Mul(x, Sigmoid(u))",
        "gelu_tanh",
        "gelu_tanh",
        gelu_tanh,
    ),
    (
        "clip",
        "y = Mul(x, Sigmoid(Mul(x, 1.702)))",
        "swish",
        "quick_gelu",
        lambda x: x * expit(1.702 * x),
    ),
    ("torch silu", "y = Mul(x, Sigmoid(x))", "silu", "silu", silu),
    ("paddle silu", "y = Mul(Sigmoid(Mul(x, 1.0)), x)", "silu", "silu", silu),
    ("written out", "y = Div(x, Add(1.0, Exp(Neg(x))))", "silu", "silu", silu),
    ("swish", "y = Mul(x, Sigmoid(Mul(1.5, x)))", "swish", "swish", lambda x: x * expit(1.5 * x)),
    ("torch 17", "y = Mul(x, HardSigmoid(x, alpha=0.1666666716337204))", "hard_swish",
     "hard_swish", hard_swish),
    ("paddle", "y = Div(Mul(x, Clip(Add(x, 3.0), 0.0, 6.0)), 6.0)", "hard_swish", "hard_swish",
     hard_swish),
    ("relu6", "y = Mul(x, Div(Clip(Add(x, 3.0), 0.0, 6.0), 6.0))", "hard_swish", "hard_swish",
     hard_swish),
    ("scaled", "y = Mul(Mul(x, Min(Relu(Add(x, 3.0)), 6.0)), 0.16666666666666666)", "hard_swish",
     "hard_swish", hard_swish),
    ("torch 9", "y = Mul(x, Tanh(Softplus(x)))", "mish", "mish", mish),
    ("darknet", "y = Mul(x, Tanh(Log(Add(Exp(x), 1.0))))", "mish", "mish", mish),
    ("sigmoid", "y = Div(1.0, Add(1.0, Exp(Neg(x))))", "sigmoid", "sigmoid", expit),
    ("sigmoid", "y = Reciprocal(Add(Exp(Mul(x, -1.0)), 1.0))", "sigmoid", "sigmoid", expit),
    ("sigmoid", "y = Div(1.0, Add(1.0, Exp(Sub(0.0, x))))", "sigmoid", "sigmoid", expit),
    ("softplus", "y = Log(Add(Exp(x), 1.0))", "softplus", "softplus",
     lambda x: np.logaddexp(x, 0)),
    ("softsign", "y = Div(x, Add(1.0, Abs(x)))", "softsign", "softsign",
     lambda x: x / (1 + np.abs(x))),
    ("relu", "y = Max(x, 0.0)", "relu", "relu", lambda x: np.maximum(x, 0)),
    ("relu", "y = Clip(x, 0.0, None)", "relu", "relu", lambda x: np.maximum(x, 0)),
    ("leaky", "y = Max(Mul(x, 0.2), x)", "leaky_relu", "leaky_relu",
     lambda x: np.where(x < 0, 0.2 * x, x)),
    ("leaky", "y = Min(x, Mul(3.0, x))", "leaky_relu", "leaky_relu",
     lambda x: np.where(x < 0, 3 * x, x)),
    ("leaky", "y = Where(Greater(x, 0.0), x, Mul(x, 0.2))", "leaky_relu", "leaky_relu",
     lambda x: np.where(x < 0, 0.2 * x, x)),
    ("leaky", "y = Where(Less(x, 0.0), Mul(x, 0.2), x)", "leaky_relu", "leaky_relu",
     lambda x: np.where(x < 0, 0.2 * x, x)),
    ("leaky", "y = Where(Less(0.0, x), x, Div(x, 5.0))", "leaky_relu", "leaky_relu",
     lambda x: np.where(x < 0, 0.2 * x, x)),
    ("keras prelu", "y = Add(Relu(x), Mul(-0.2, Relu(Neg(x))))", "prelu_sum", "leaky_relu",
     lambda x: np.where(x < 0, 0.2 * x, x)),
    ("elu", "y = Where(Greater(x, 0.0), x, Mul(Sub(Exp(x), 1.0), 0.7))", "elu", "elu",
     lambda x: np.where(x < 0, 0.7 * np.expm1(x), x)),
    ("safe elu", "y = Where(GreaterOrEqual(x, 0.0), x, Sub(Exp(Min(x, 0.0)), 1.0))", "elu", "elu",
     lambda x: np.where(x < 0, np.expm1(x), x)),
    ("threshold", "y = Where(Greater(x, 0.5), x, 0.0)", "thresholded_relu", "thresholded_relu",
     lambda x: np.where(x > 0.5, x, 0)),
    ("masked", "y = Where(Less(x, 0.0), 0.0, x)", "thresholded_relu", "relu",
     lambda x: np.where(x < 0, 0, x)),
    ("hard sigmoid", "y = Clip(Add(Mul(x, 0.2), 0.5), 0.0, 1.0)", "hard_sigmoid", "hard_sigmoid",
     lambda x: np.clip(0.2 * x + 0.5, 0, 1)),
    ("hard sigmoid", "y = Div(Clip(Add(x, 3.0), 0.0, 6.0), 6.0)", "hard_sigmoid", "hard_sigmoid",
     lambda x: np.clip(x / 6 + 0.5, 0, 1)),
    ("torch softplus", "y = Where(Greater(x, 20.0), x, Log(Add(Exp(x), 1.0)))",
     "guarded_softplus", "softplus", lambda x: np.logaddexp(x, 0)),
]  # fmt: skip
IDS = [f"{row}, {exporter}" for exporter, _, _, row, _ in FORMS]

INEXACT_IN_FLOAT64 = {
    "y = Where(Greater(x, 20.0), x, Log(Add(Exp(x), 1.0)))",
    "y = Mul(x, HardSigmoid(x, alpha=0.1666666716337204))",  # attributes are float32
}


def exact_of(form: Exact, x: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        return np.asarray(form(x.astype(np.float64)))


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize(("exporter", "text", "rule", "row", "form"), FORMS, ids=IDS)
def test_each_form_is_one_row(exporter, text, rule, row, form, dtype):
    graph = exported(text, dtype=dtype)
    if dtype == "float64" and text in INEXACT_IN_FLOAT64:
        optimized(graph, **{rule: 0})
        return
    out, _ = optimized(graph, **{rule: 1})
    assert dict(ops(out)) == {row: 1}
    for rows in (0, 1, 5):
        x = drawn(dtype, (rows, 4), rows)
        exact, got = exact_of(form, x), cpu_eval_graph(out, {"x": x})["y"]
        scale = np.maximum(np.abs(exact), np.abs(x.astype(np.float64)))
        assert got.dtype == x.dtype
        # parameters such as 0.2 are rounded to the type, so a few ulps of the terms
        assert (np.abs(got.astype(np.float64) - exact) <= 8 * EPS[dtype] * (scale + 0.5)).all()


@pytest.mark.parametrize(("exporter", "text", "rule", "row", "form"), FORMS, ids=IDS)
def test_no_other_rule_is_needed(exporter, text, rule, row, form):
    out, report = optimize_graph_report(
        exported(text), only("activation", "gate", "slope", "piecewise")
    )
    assert report.fired[rule] == 1, str(report)
    assert dict(ops(out)) == {row: 1}


@pytest.mark.parametrize(("exporter", "text", "rule", "row", "form"), FORMS, ids=IDS)
def test_nan_comes_out_where_it_did(exporter, text, rule, row, form):
    graph = exported(text)
    out, _ = optimized(graph)
    x = special("float32")
    before, after = (cpu_eval_graph(g, {"x": x})["y"] for g in (graph, out))
    np.testing.assert_array_equal(np.isnan(before), np.isnan(after))
    small = np.isfinite(x) & (np.abs(x) < 100)
    np.testing.assert_allclose(after[small], before[small], rtol=3e-6, atol=2e-7)


NEAR_MISSES = {
    "wrong root": f"y = Mul(Mul(x, Add(Erf(Div(x, {ROOT * 1.001})), 1.0)), 0.5)",
    "no half": f"y = Mul(x, Add(Erf(Div(x, {ROOT})), 1.0))",
    "wrong one": f"y = Mul(Mul(x, Add(Erf(Div(x, {ROOT})), 1.01)), 0.5)",
    "minus": f"y = Mul(Mul(x, Sub(1.0, Erf(Div(x, {ROOT})))), 0.5)",
    "wrong cubic": f"u = Mul(Add(x, Mul(Pow(x, 3.0), 0.0447)), {K})\n"
    "y = Mul(Mul(x, 0.5), Add(Tanh(u), 1.0))",
    "wrong power": f"u = Mul(Add(x, Mul(Pow(x, 2.0), 0.044715)), {K})\n"
    "y = Mul(Mul(x, 0.5), Add(Tanh(u), 1.0))",
    "wrong scale": "u = Mul(Add(x, Mul(Pow(x, 3.0), 0.044715)), 0.8)\n"
    "y = Mul(Mul(x, 0.5), Add(Tanh(u), 1.0))",
    "shifted sigmoid": "y = Mul(x, Sigmoid(Add(x, 1.0)))",
    "doubled": "y = Mul(Mul(x, 2.0), Sigmoid(x))",
    "clip to 5": "y = Div(Mul(x, Clip(Add(x, 3.0), 0.0, 5.0)), 6.0)",
    "plus 2": "y = Div(Mul(x, Clip(Add(x, 2.0), 0.0, 6.0)), 6.0)",
    "clip the wrong way": "y = Div(Clip(Add(x, 3.0), 0.0, -6.0), -6.0)",
    "wrong beta": "y = Mul(x, HardSigmoid(x, alpha=0.1666666716337204, beta=0.4))",
    "doubled swish": "y = Mul(Mul(x, 2.0), Sigmoid(Mul(x, 1.5)))",
    "wrong alpha": "y = Mul(x, HardSigmoid(x, alpha=0.2))",
    "tanh of softsign": "y = Mul(x, Tanh(Softsign(x)))",
    "two plus": "y = Div(1.0, Add(2.0, Exp(Neg(x))))",
    "minus exp": "y = Div(1.0, Sub(1.0, Exp(Neg(x))))",
    "log of two plus": "y = Log(Add(Exp(x), 2.0))",
    "signed": "y = Div(x, Sub(1.0, Abs(x)))",
    "maximum with minus zero": "y = Max(x, -0.0)",
    "steep": "y = Max(Mul(x, 1.5), x)",
    "negative slope": "y = Max(Mul(x, -0.5), x)",
    "flat min": "y = Min(Mul(x, 0.5), x)",
    "kink at 1": "y = Where(Greater(x, 1.0), x, Mul(x, 0.2))",
    "turned": "y = Where(Greater(x, 0.0), Mul(x, 0.2), x)",
    "unlike elu": "y = Where(Greater(x, 0.0), x, Sub(Exp(x), 0.9))",
    "threshold at bound": "y = Where(GreaterOrEqual(x, 0.5), x, 0.0)",
    "threshold with nan": "y = Where(LessOrEqual(x, 0.5), 0.0, x)",
    "clip to 2": "y = Clip(Add(Mul(x, 0.2), 0.5), 0.0, 2.0)",
    "plain clip": "y = Clip(x, 0.0, 1.0)",
    "early guard": "y = Where(Greater(x, 5.0), x, Softplus(x))",
}
MINE = {
    "gelu", "gelu_tanh", "silu", "swish", "hard_swish", "mish", "sigmoid", "softplus", "softsign",
    "leaky_relu", "prelu", "prelu_sum", "elu", "thresholded_relu", "hard_sigmoid",
    "guarded_softplus",
}  # fmt: skip


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_near_misses_are_left_alone(name):
    graph = exported(NEAR_MISSES[name])
    _, report = optimize_graph_report(graph, only("activation", "gate", "slope", "piecewise"))
    assert not MINE & report.fired.keys(), str(report)
    out, report = optimize_graph_report(graph)
    assert not MINE & report.fired.keys(), str(report)
    if name == "maximum with minus zero":
        assert not report.fired["relu"]
    x = drawn("float32", (5, 4))
    before, after = (cpu_eval_graph(g, {"x": x})["y"] for g in (graph, out))
    np.testing.assert_allclose(after, before, rtol=2e-6, atol=2e-6)


def test_another_operand_is_another_function():
    two = {"x": ("float32", ["n", 4]), "z": ("float32", ["n", 4])}
    for text in (
        f"y = Mul(Mul(z, Add(Erf(Div(x, {ROOT})), 1.0)), 0.5)",
        "y = Mul(z, Sigmoid(x))",
        "y = Div(Mul(z, Clip(Add(x, 3.0), 0.0, 6.0)), 6.0)",
        "y = Mul(x, Mul(Sigmoid(x), z))",
        "y = Max(z, Mul(x, 0.1))",
        "y = Div(z, Add(1.0, Abs(x)))",
        "y = Where(Greater(z, 0.0), x, Mul(x, 0.2))",
        "y = Mul(Mul(x, Add(Erf(Div(x, z)), 1.0)), 0.5)",
    ):
        _, report = optimize_graph_report(exported(text, two))
        assert not MINE & report.fired.keys(), f"{text}\n{report}"


@pytest.mark.parametrize(
    ("text", "shared", "rule"),
    [
        (f"e = Erf(Div(x, {ROOT}))\ny = Mul(Mul(x, Add(e, 1.0)), 0.5)", "e", "gelu"),
        (f"e = Div(x, {ROOT})\ny = Mul(Mul(x, Add(Erf(e), 1.0)), 0.5)", "e", "gelu"),
        ("s = Sigmoid(x)\ny = Mul(x, s)", "s", "silu"),
        ("s = Mul(x, 1.5)\ny = Mul(x, Sigmoid(s))", "s", "swish"),
        ("c = Clip(Add(x, 3.0), 0.0, 6.0)\ny = Div(Mul(x, c), 6.0)", "c", "hard_swish"),
        ("c = Clip(Add(x, 3.0), 0.0, 6.0)\ny = Div(c, 6.0)", "c", "hard_sigmoid"),
        ("s = Exp(Neg(x))\ny = Div(1.0, Add(s, 1.0))", "s", "sigmoid"),
        ("s = Mul(x, 0.2)\ny = Max(s, x)", "s", "leaky_relu"),
    ],
)
def test_what_others_read_stays(text, shared, rule):
    read = clone_graph(exported(text))
    read.output("also", next(v for n in read.nodes for v in n.results if shared in v.names))
    out, report = optimize_graph_report(read)
    assert not report.fired[rule], str(report)
    assert refusals(report, rule) == ["an intermediate result has other readers"]
    x = {"x": drawn("float32", (5, 4))}
    before, after = cpu_eval_graph(read, x), cpu_eval_graph(out, x)
    for name in before:
        np.testing.assert_allclose(after[name], before[name], rtol=2e-6, atol=2e-6)


def test_constants_may_be_shared_by_many():
    text = f"a = Mul(Mul(x, Add(Erf(Div(x, {ROOT})), 1.0)), 0.5)\n"
    text += f"y = Mul(Mul(a, Add(Erf(Div(a, {ROOT})), 1.0)), 0.5)"
    out, _ = optimized(exported(text), gelu=2)
    assert dict(ops(out)) == {"gelu": 2}


def test_settings_switch_them_off():
    text = f"y = Mul(Mul(x, Add(Erf(Div(x, {ROOT})), 1.0)), 0.5)"
    _, report = optimize_graph_report(exported(text), OptimizerSettings(fuse_activation=False))
    assert not MINE & report.fired.keys()
    _, report = optimize_graph_report(
        exported(text), OptimizerSettings(disabled=frozenset({"gelu"}))
    )
    assert not report.fired["gelu"]


@pytest.mark.parametrize("exponent", [2, 3])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_power_with_an_integer_exponent_stays_narrow(exponent, dtype):
    graph = exported(f"y = Pow(x, Cast({float(exponent)}, to=7))", dtype=dtype)
    out, _ = optimized(graph)
    assert "Cast" not in ops(out)
    x = drawn(dtype, (5, 4))
    before, after = (cpu_eval_graph(g, {"x": x})["y"] for g in (graph, out))
    np.testing.assert_allclose(after, before, rtol=0 if exponent == 2 else 4 * EPS[dtype])


# ---- slopes ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "slopes", "fires"),
    [
        ("y = Max(Mul(x, w), x)", [0.1, 0.2, 0.3, 1.0], True),
        ("y = Max(Mul(x, w), x)", [0.1, 0.0, 0.3, 1.0], False),
        ("y = Max(Mul(x, w), x)", [0.1, 0.2, 0.3, 1.5], False),
        ("y = Min(Mul(x, w), x)", [1.0, 2.0, 3.0, 4.0], True),
        ("y = Min(Mul(x, w), x)", [1.0, 2.0, 3.0, np.inf], False),
        ("y = Where(Greater(x, 0.0), x, Mul(x, w))", [-1.0, 0.0, 2.0, 3.0], True),
        ("y = Where(Greater(x, 0.0), x, Mul(x, w))", [-1.0, 0.0, np.inf, 3.0], False),
        ("y = Where(Less(x, 0.0), Mul(w, x), x)", [-1.0, 0.0, np.nan, 3.0], True),
        ("y = Where(GreaterOrEqual(x, 0.0), x, Mul(w, x))", [-1.0, 0.0, np.inf, 3.0], True),
    ],
)
def test_a_slope_for_each_channel(text, slopes, fires):
    graph = exported(text, weights={"w": slopes})
    out, report = optimized(graph, prelu=int(fires))
    assert dict(ops(out)) == {"prelu": 1} if fires else refusals(report, "prelu")
    for x in (drawn("float32", (5, 4)), special("float32"), np.zeros((0, 4), np.float32)):
        before, after = (cpu_eval_graph(g, {"x": x})["y"] for g in (graph, out))
        np.testing.assert_array_equal(after, before)


@pytest.mark.parametrize(
    ("text", "sign"),
    [
        ("y = Add(Relu(x), Mul(w, Relu(Neg(x))))", -1),
        ("y = Sub(Relu(x), Mul(w, Relu(Neg(x))))", 1),
        ("y = Add(Relu(x), Mul(w, Min(x, 0.0)))", 1),
        ("y = Sub(Relu(x), Mul(Min(x, 0.0), w))", -1),
    ],
)
def test_the_two_halves_of_prelu(text, sign):
    slopes = np.array([0.5, -0.25, 2.0, 0.125], np.float32)
    graph = exported(text, weights={"w": slopes})
    out, _ = optimized(graph, prelu_sum=1)
    assert dict(ops(out)) == {"prelu": 1}
    x = np.concatenate([drawn("float32", (5, 4)), special("float32")])
    before, after = (cpu_eval_graph(g, {"x": x})["y"] for g in (graph, out))
    np.testing.assert_array_equal(after, before)
    np.testing.assert_array_equal(after, np.where(x < 0, sign * slopes * x, x))


def test_a_difference_the_wrong_way_round_is_no_prelu():
    _, report = optimized(exported("y = Sub(Mul(w, Relu(Neg(x))), Relu(x))", weights={"w": [1.5]}))
    assert not report.fired["prelu_sum"]


def test_integers_are_left_to_clamps():
    for dtype in ("int32", "uint8"):
        _, report = optimized(exported("y = Max(x, 0)", dtype=dtype))
        assert not report.fired["relu"]


# ---- polynomials ----------------------------------------------------------------------------


@st.composite
def expressions(draw: Any, depth: int = 3) -> str:
    """Return a text of arithmetic in x and constants."""
    if depth == 0 or draw(st.integers(0, 3)) == 0:
        return draw(st.sampled_from(["x", "x", "2.0", "0.5", "-3.0", "1.0"]))
    fn = draw(st.sampled_from(["Add", "Sub", "Mul", "Neg", "Div"]))
    left = draw(expressions(depth - 1))
    if fn == "Neg":
        return f"Neg({left})"
    right = draw(st.sampled_from(["2.0", "-4.0"])) if fn == "Div" else draw(expressions(depth - 1))
    return f"{fn}({left}, {right})"


@settings(max_examples=150, deadline=None)
@given(expressions())
def test_polynomials_have_the_values_of_their_texts(text):
    graph = exported(f"y = Add({text}, Mul(x, 0.25))", dtype="float64")
    edit = Editor(graph)
    found = polynomial(edit, edit.graph.outputs["y"], (edit.graph.inputs[0],))
    x = np.array([[-1.5, 0.25, 1.0, 3.0]])
    if found is not None:
        value = sum(c * x**p for (p,), c in found.terms.items())
        got = cpu_eval_graph(graph, {"x": x})["y"]
        np.testing.assert_allclose(value, got, rtol=1e-12, atol=1e-12)


def test_what_cancels_is_no_polynomial():
    for text in ("Sub(x, x)", "Mul(x, 0.0)", "Add(Mul(x, 2.0), Mul(x, -2.0))"):
        graph = exported(f"y = Add({text}, 1.0)", dtype="float64")
        edit = Editor(graph)
        assert polynomial(edit, edit.graph.outputs["y"], (edit.graph.inputs[0],)) is None


# ---- models ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "fired"),
    [
        ("depthwise_cnn", {"hard_swish": 1}),
        ("gqa_decoder_step", {"norm": 5, "silu": 2}),
        ("transformer_layer", {"norm": 2, "gelu": 1}),
        ("unet_block", {"silu": 12}),
    ],
)
def test_generated_models(name, fired):
    optimized(load_graph_from_onnx_bytes(model_bytes(name)), **fired)


@pytest.mark.real_models
@pytest.mark.parametrize(
    ("name", "row", "count"),
    [
        ("bert_mini", "gelu", 4),
        ("clip_text", "quick_gelu", 4),
        ("convnext_tiny", "gelu", 18),
        ("distilbert", "gelu", 6),
        ("gpt2_kv", "gelu_tanh", 4),
        ("gpt2_prefill", "gelu_tanh", 4),
        ("llama_kv", "silu", 4),
        ("llama_prefill", "silu", 4),
        ("mobilenetv3s", "hard_swish", 19),
        ("sd_unet", "gelu", 4),
        ("sd_unet", "silu", 19),
        ("swin_tiny", "gelu", 8),
        ("vit_tiny", "gelu", 12),
        ("whisper_encoder", "gelu", 4),
    ],
)
@pytest.mark.parametrize("exporter", ["legacy", "dynamo"])
def test_activations_of_exports(name, row, count, exporter):
    out, _ = optimized(stored(EXPORTS, f"{name}.{exporter}.onnx"))
    left = ops(out)
    assert left[row] == count
    assert not {"erf", "tanh", "sigmoid", "pow"} & left.keys()


@pytest.mark.real_models
@pytest.mark.parametrize(
    ("name", "row", "count"),
    [
        ("22edcdb81193", "hard_swish", 28),
        ("48fc40f24f6d", "hard_swish", 28),
        ("6faa8ea85a8c", "silu", 74),
        ("8199be6f699a", "gelu", 6),
        ("e47acedf6632", "hard_swish", 18),
        ("fe2d2eb49c5f", "gelu_tanh", 2),
    ],
)
def test_activations_of_real_models(name, row, count):
    out, _ = optimized(stored(MODELS, f"{name}.onnx"))
    assert ops(out)[row] == count


def test_types_that_no_formula_is_known_for_are_left_alone():
    g = Graph("narrow")
    x = g.input("x", DType.FLOAT8E4M3FN, ["n", 4])
    g.output("y", g.mul(x, g.sigmoid(x)))
    _, report = optimize_graph_report(g)
    assert not report.fired["silu"]
