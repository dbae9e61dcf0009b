"""Arithmetic, logic, choices, powers and conversions that change nothing, or are something simpler.

Results are compared exactly, NaNs and infinities included; only the sign of a zero may differ.
"""

from __future__ import annotations

import numpy as np
import pytest

from kn_graph import DType, Graph, Value
from kn_graph.optimizer import OptimizerSettings
from tests.optimizer.check import check, check_model, model_graph, ops_of, untouched
from tests.small_models import info, node

FLOATS = ("float32", "float16", "bfloat16", "float64")
X = {"x": ("float32", ["n", 4])}
XY = {"x": ("float32", ["n", 4]), "y": ("float32", ["n", 4])}
INTS = {"x": ("int32", ["n", 4])}
B = {"x": ("bool", ["n", 4])}
BB = {"x": ("bool", ["n", 4]), "y": ("bool", ["n", 4])}


def with_number(fn: str, number: float, *, left: bool = False):
    """Return a builder of fn(x, number) or fn(number, x)."""

    def build(g: Graph, x: Value) -> Value:
        c = g.scalar(number, x.dtype)
        return g.binary(fn, c, x) if left else g.binary(fn, x, c)

    return build


# ---- neutral and deciding operands ----------------------------------------------------------


@pytest.mark.parametrize("dtype", [*FLOATS, "int32", "uint8", "int64"])
@pytest.mark.parametrize(
    ("fn", "number", "left"),
    [
        ("add", 0, False), ("add", 0, True), ("sub", 0, False), ("mul", 1, False),
        ("mul", 1, True), ("div", 1, False), ("pow", 1, False),
    ],
)  # fmt: skip
def test_neutral_numbers(dtype, fn, number, left):
    x = {"x": (dtype, ["n", 4])}
    out = check(with_number(fn, number, left=left), x, {"neutral_operand": 1})
    assert ops_of(out) == []


@pytest.mark.parametrize(
    ("fn", "number", "left"),
    [
        ("add", 1, False), ("mul", 0, False), ("mul", 2, True), ("sub", 1, False),
        ("div", 1, True), ("pow", 3, False), ("add", 1e-30, False),
    ],
)  # fmt: skip
def test_other_numbers(fn, number, left):
    untouched(with_number(fn, number, left=left), X, "neutral_operand", "decided_operand")


def test_the_result_keeps_the_broadcast_shape():
    zeros = np.zeros((3, 1, 4), np.float32)
    out = check(lambda g, x: x + g.constant(zeros), X, {"neutral_operand": 1})
    assert out.outputs["y0"].shape[0] == 3
    check(lambda g, x: g.constant(zeros) + x, X, {"neutral_operand": 1})


def test_added_zero_of_a_model():
    nodes = [node("Add", "x zero", "a"), node("Mul", "one a", "y")]
    weights = {"zero": np.zeros(4, np.float32), "one": np.float32(1)}
    graph = model_graph(nodes, [info("x", ["n", 4])], weights=weights)
    check_model(graph, {"neutral_operand": 2}, sizes=[{"n": 3}])


def test_a_product_with_zero_is_only_zero_for_integers():
    check(with_number("mul", 0), INTS, {"decided_operand": 1})
    check(with_number("mul", 0, left=True), INTS, {"decided_operand": 1})
    check(with_number("mul", 0), X, {"decided_operand": 0})


@pytest.mark.parametrize(
    ("fn", "number", "rule"),
    [
        ("logical_and", True, "neutral_operand"), ("logical_or", False, "neutral_operand"),
        ("logical_xor", False, "neutral_operand"), ("logical_and", False, "decided_operand"),
        ("logical_or", True, "decided_operand"), ("logical_xor", True, None),
    ],
)  # fmt: skip
def test_truths(fn, number, rule):
    for left in (False, True):
        build = with_number(fn, number, left=left)
        if rule is None:
            untouched(build, B, "neutral_operand", "decided_operand")
        else:
            assert len(ops_of(check(build, B, {rule: 1}))) < 2


@pytest.mark.parametrize(
    ("fn", "number", "dtype", "rule"),
    [
        ("bit_and", -1, "int32", "neutral_operand"), ("bit_and", 255, "uint8", "neutral_operand"),
        ("bit_or", 0, "int8", "neutral_operand"), ("bit_xor", 0, "uint8", "neutral_operand"),
        ("bit_and", 0, "int32", "decided_operand"), ("bit_or", 255, "uint8", "decided_operand"),
        ("shift_left", 0, "int32", "neutral_operand"), ("bit_and", 255, "int32", None),
    ],
)  # fmt: skip
def test_bits(fn, number, dtype, rule):
    x = {"x": (dtype, ["n", 4])}
    check(with_number(fn, number), x, {rule: 1} if rule else {"neutral_operand": 0})


def test_one_operand_twice():
    for fn in ("min", "max"):
        check(lambda g, x, fn=fn: g.binary(fn, x, x), X, {"same_operands": 1})
    for fn in ("logical_and", "logical_or", "logical_xor"):
        check(lambda g, x, fn=fn: g.binary(fn, x, x), B, {"same_operands": 1})
    check(lambda g, x: x - x, INTS, {"same_operands": 1})
    check(lambda g, x: x - x, X, {"same_operands": 0})


# ---- functions of functions -----------------------------------------------------------------


def test_functions_that_undo_or_repeat_each_other():
    check(lambda g, x: g.neg(g.neg(x)), X, {"idle_unary": 1})
    check(lambda g, x: g.logical_not(g.logical_not(x)), B, {"idle_unary": 1})
    for fn in ("floor", "ceil", "trunc", "round_even"):
        check(lambda g, x, fn=fn: g.unary(fn, g.unary("floor", x)), X, {"idle_unary": 1})
    check(lambda g, x: g.unary("abs", g.relu(x)), X, {"idle_unary": 1})
    check(lambda g, x: g.unary("abs", g.exp(x)), X, {"idle_unary": 1})
    untouched(lambda g, x: g.unary("abs", g.tanh(x)), X, "idle_unary")
    untouched(lambda g, x: g.unary("floor", g.exp(x)), X, "idle_unary")
    # the smallest integer has no absolute value
    lowest = np.array([[-128, 127, 0, -1]], np.int8)
    build = lambda g, x: g.unary("abs", g.unary("abs", x))  # noqa: E731
    check(build, {"x": ("int8", ["n", 4])}, {"idle_unary": 0}, feeds=[{"x": lowest}])


@pytest.mark.parametrize(
    ("build", "left"),
    [
        (lambda g, x, y: x + -y, "sub"),
        (lambda g, x, y: -x + y, "sub"),
        (lambda g, x, y: x - -y, "add"),
        (lambda g, x, y: -(x - y), "sub"),
    ],
)
def test_negations_become_sums_and_differences(build, left):
    assert ops_of(check(build, XY, {"negation": 1})) == [left]
    integers = {n: ("int8", shape) for n, (_, shape) in XY.items()}
    assert ops_of(check(build, integers, {"negation": 1})) == [left]


def test_more_negations():
    assert ops_of(check(lambda g, x: 0 - x, X, {"negation": 1})) == ["neg"]
    assert ops_of(check(lambda g, x: g.unary("abs", -x), X, {"negation": 1})) == ["abs"]
    untouched(lambda g, x: 0 - x, {"x": ("uint8", ["n", 4])}, "negation")
    untouched(lambda g, x: 1 - x, X, "negation")
    untouched(lambda g, x, y: [-(x - y), x - y], XY, "negation")


def test_negated_comparisons():
    def build(fn):
        return lambda g, x, y: g.logical_not(g.compare(fn, x, y))

    integers = {n: ("int32", shape) for n, (_, shape) in XY.items()}
    for fn in ("eq", "ne", "lt", "le", "gt", "ge"):
        check(build(fn), XY, {"opposite_comparison": int(fn in ("eq", "ne"))})
        check(build(fn), integers, {"opposite_comparison": 1})


def test_comparisons_with_truths():
    for fn in ("eq", "ne"):
        for number in (False, True):
            check(
                lambda g, x, f=fn, n=number: g.compare(f, x, g.scalar(n, DType.BOOL)),
                B,
                {"compare_with_truth": 1},
            )
    untouched(lambda g, x, y: g.compare("eq", x, y), BB, "compare_with_truth")


# ---- powers and quotients -------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [*FLOATS, "int32"])
def test_squares(dtype):
    x = {"x": (dtype, ["n", 4])}
    assert ops_of(check(with_number("pow", 2), x, {"power_form": 1})) == ["mul"]


def test_square_function_and_inverse():
    assert ops_of(check(lambda g, x: g.unary("square", x), X, {"power_form": 1})) == ["mul"]
    out = check(with_number("pow", -1), X, {"power_form": 1}, rtol=2e-7)
    assert ops_of(out) == ["reciprocal"]
    untouched(with_number("pow", -1), INTS, "power_form")
    untouched(with_number("pow", 2.5), X, "power_form")
    untouched(lambda g, x, y: g.binary("pow", x, y), XY, "power_form")


def test_roots_only_of_what_is_not_negative():
    for exponent, rest in ((0.5, ["sqrt"]), (-0.5, ["reciprocal", "sqrt"])):
        out = check(lambda g, x, e=exponent: (x * x + 1e-6) ** e, X, {"power_form": 1}, rtol=4e-7)
        assert set(rest) < set(ops_of(out))
    report = untouched(with_number("pow", 0.5), X, "power_form")
    assert report.refused["power_form", "the base of a power 0.5 may be -infinity"] == 1


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("number", [2, 8, -4, 0.25, 2.0**-12])
def test_division_by_powers_of_two(dtype, number):
    x = {"x": (dtype, ["n", 4])}
    check(with_number("div", number), x, {"divide_by_power_of_two": 1})


def test_division_by_a_vector_of_powers_of_two():
    vector = np.array([1, 2, 0.5, -8], np.float32)
    check(lambda g, x: x / g.constant(vector), X, {"divide_by_power_of_two": 1})
    mixed = np.array([1, 2, 3, 4], np.float32)
    untouched(lambda g, x: x / g.constant(mixed), X, "divide_by_power_of_two")


def test_other_divisions_stay():
    for number in (3, 10, 0, np.inf, np.nan):
        untouched(with_number("div", number), X, "divide_by_power_of_two", "divide_by_constant")
    untouched(with_number("div", 2), INTS, "divide_by_power_of_two")
    for number in (2.0**-149, 2.0**127):  # the inverse overflows, or is denormal
        report = untouched(with_number("div", number), X, "divide_by_power_of_two")
        assert any(rule == "divide_by_power_of_two" for rule, _ in report.refused)


def test_division_by_other_constants_where_it_is_allowed():
    allowed = OptimizerSettings(div_to_mul=True)
    build = with_number("div", 3)
    out = check(build, X, {"divide_by_constant": 1}, rtol=2e-7, settings=allowed)
    assert ops_of(out) == ["Broadcast", "mul"]
    zero = with_number("div", 0)
    check(zero, X, {"divide_by_constant": 0}, settings=allowed)


def test_one_divided_by_x():
    out = check(with_number("div", 1, left=True), X, {"reciprocal": 1})
    assert ops_of(out) == ["reciprocal"]
    untouched(with_number("div", 2, left=True), X, "reciprocal")
    untouched(with_number("div", 1, left=True), INTS, "reciprocal")


def test_inverse_roots_where_they_are_allowed():
    def build(g: Graph, x: Value) -> Value:
        return g.unary("reciprocal", g.sqrt(x))

    assert ops_of(check(build, X, {"rsqrt": 0})) == ["reciprocal", "sqrt"]
    allowed = OptimizerSettings(fuse_rsqrt=True)
    assert ops_of(check(build, X, {"rsqrt": 1}, settings=allowed, rtol=3e-7)) == ["rsqrt"]


# ---- conversions ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "through", "last", "left"),
    [
        ("float16", "float32", "float16", 0),
        ("bfloat16", "float32", "bfloat16", 0),
        ("float32", "float64", "float16", 1),
        ("float16", "float64", "bfloat16", 1),
        ("int8", "int32", "uint8", 1),
        ("uint8", "int16", "uint8", 0),
        ("int32", "float64", "int32", 0),
        ("int8", "float16", "int8", 0),
        ("bool", "int64", "bool", 0),
        ("bool", "float32", "int8", 1),
        ("int64", "int32", "int64", 2),
        ("float32", "float16", "float32", 2),
        ("int32", "float32", "int32", 2),
        ("uint8", "int8", "uint8", 2),
        ("float16", "bfloat16", "float16", 2),
        ("float16", "float32", "int8", 2),
        ("int32", "float64", "int8", 2),
        ("bool", "int8", "string", 2),
    ],
)
def test_conversions_after_conversions(first, through, last, left):
    def build(g: Graph, x: Value) -> Value:
        return g.cast(g.cast(x, DType.parse(through)), DType.parse(last))

    feeds = [{"x": np.array([[0, 1, 100, 3]]).astype(DType.parse(first).numpy)}]
    x = {"x": (first, ["n", 4])}
    out = check(build, x, {"cast_of_cast": int(left < 2)}, feeds=feeds)
    assert len(ops_of(out)) == left


def test_a_conversion_to_a_truth_keeps_nan_true():
    def build(g: Graph, x: Value) -> Value:
        return g.cast(g.cast(x, DType.FLOAT32), DType.BOOL)

    check(build, {"x": ("float16", ["n", 4])}, {"cast_of_cast": 1})


# ---- choices --------------------------------------------------------------------------------


def test_choices():
    c = {"c": ("bool", ["n", 4]), **XY}
    assert ops_of(check(lambda g, c, x, y: g.select(c, x, x), c, {"decided_select": 1})) == []
    for truth in (True, False):
        out = check(
            lambda g, c, x, y, t=truth: g.select(g.scalar(t, DType.BOOL), x, y),
            c,
            {"decided_select": 1},
        )
        assert ops_of(out) == []
    out = check(lambda g, c, x, y: g.select(g.logical_not(c), x, y), c, {"select_of_not": 1})
    assert ops_of(out) == ["Select"]
    mixed = np.array([True, False, True, True])
    untouched(lambda g, c, x, y: g.select(g.constant(mixed), x, y), c, "decided_select")


def test_choices_of_truths():
    for then in (True, False):
        check(
            lambda g, x, t=then: g.select(x, g.scalar(t, DType.BOOL), g.scalar(not t, DType.BOOL)),
            B,
            {"select_of_truths": 1},
        )
    untouched(lambda g, x, y: g.select(x, y, g.scalar(False, DType.BOOL)), BB, "select_of_truths")


# ---- reductions -----------------------------------------------------------------------------


@pytest.mark.parametrize("fn", ["sum", "mean", "prod", "max", "min"])
def test_reductions_of_one_element(fn):
    x = {"x": ("float32", ["n", 1, 4, 1])}
    out = check(lambda g, x: g.reduce(fn, x, [1, 3]), x, {"reduce_units": 1})
    assert ops_of(out) == ["View"]
    check(lambda g, x: g.reduce(fn, x, [1, 2]), x, {"reduce_units": 1}, rtol=1e-6)
    untouched(lambda g, x: g.reduce(fn, x, [0, 2]), x, "reduce_units")


def test_reductions_of_reductions():
    x = {"x": ("float32", ["n", 3, 4])}
    for fn in ("max", "min"):
        out = check(
            lambda g, x, f=fn: g.reduce(f, g.reduce(f, x, [1]), [0]), x, {"reduce_of_reduce": 1}
        )
        assert ops_of(out) == [f"reduce_{fn}"]
    integers = {"x": ("int8", ["n", 3, 4])}
    check(
        lambda g, x: g.reduce("sum", g.reduce("sum", x, [2]), [1]), integers,
        {"reduce_of_reduce": 1},
    )  # fmt: skip
    untouched(lambda g, x: g.reduce("sum", g.reduce("sum", x, [2]), [1]), x, "reduce_of_reduce")
    untouched(lambda g, x: g.reduce("max", g.reduce("min", x, [2]), [1]), x, "reduce_of_reduce")


def test_reductions_of_permutations():
    x = {"x": ("int32", ["n", 2, 3, 4])}
    build = lambda g, x: g.reduce("sum", g.permute(x, [0, 2, 3, 1]), [1, 2])  # noqa: E731
    assert ops_of(check(build, x, {"reduce_of_permute": 1})) == ["reduce_sum"]
    turned = lambda g, x: g.reduce("sum", g.permute(x, [3, 1, 0, 2]), [1])  # noqa: E731
    untouched(turned, x, "reduce_of_permute")
