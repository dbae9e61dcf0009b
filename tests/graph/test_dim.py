"""Symbolic sizes against plain integers."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from fractions import Fraction
from math import ceil, floor, inf
from threading import Barrier, Thread
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kn_graph.dim import (
    Dim,
    Size,
    SymbolKind,
    UnboundSymbolError,
    ceildiv,
    evaluate,
    exact_div,
    floordiv,
    parse_size,
    size_max,
    size_min,
    size_prod,
    size_sum,
    substitute,
    symbol,
    symbols_of,
)
from kn_graph.dim_facts import Constraints, SizeError, bounds, provably_eq, provably_ge

A, B, C = symbol("a"), symbol("b"), symbol("c", lo=0)
A_SYMBOL: Any = A.as_symbol
SYMBOLS = {"a": A, "b": B, "c": C}
Reference = Callable[[dict[str, int]], int]


def env(numbers: dict[str, int]) -> dict[Any, int]:
    return {SYMBOLS[n].as_symbol: k for n, k in numbers.items()}


def random_numbers(rng: random.Random) -> dict[str, int]:
    choices = {"a": [1, 1, 2, 3, 7], "b": [1, 2, 5, 9], "c": [0, 0, 1, 4]}
    return {n: rng.choice(c) for n, c in choices.items()}


def random_size(rng: random.Random, depth: int) -> tuple[Size, Reference]:
    """Return a size, and the same function of plain integers."""
    if depth == 0 or rng.random() < 0.15:
        if rng.random() < 0.4:
            k = rng.randint(-4, 6)
            return k, lambda e: k
        name = rng.choice("abc")
        return SYMBOLS[name], lambda e: e[name]
    (x, f), (y, g) = random_size(rng, depth - 1), random_size(rng, depth - 1)
    k = rng.randint(1, 6)
    cases: list[tuple[Size, Reference]] = [
        (x + y, lambda e: f(e) + g(e)),
        (x - y, lambda e: f(e) - g(e)),
        (x * y, lambda e: f(e) * g(e)),
        (x // k, lambda e: f(e) // k),
        (x // -k, lambda e: f(e) // -k),
        (x % k, lambda e: f(e) % k),
        (size_min(x, y), lambda e: min(f(e), g(e))),
        (size_max(x, y, k), lambda e: max(f(e), g(e), k)),
    ]
    return rng.choice(cases)


@pytest.mark.parametrize("seed", range(20))
def test_random_expressions_evaluate_and_are_bounded_soundly(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(150):
        size, reference = random_size(rng, rng.randint(1, 4))
        lo, hi = bounds(size)
        for _ in range(8):
            numbers = random_numbers(rng)
            want = reference(numbers)
            assert evaluate(size, env(numbers)) == want, (size, numbers)
            assert lo <= want <= hi, (size, lo, hi, numbers)


@pytest.mark.parametrize("seed", range(10))
def test_substitution_commutes_with_evaluation(seed: int) -> None:
    rng = random.Random(seed)
    table = {A.as_symbol: B * 2 + C, B.as_symbol: 3}
    for _ in range(30):
        size, reference = random_size(rng, 3)
        e = random_numbers(rng)
        got = substitute(size, table)  # type: ignore[arg-type]
        assert evaluate(got, env(e)) == reference({**e, "a": e["b"] * 2 + e["c"], "b": 3})


EQUAL = [
    (A * (B + 1), B * A + A),
    ((A // 2 + 1) // 3, (A + 2) // 6),
    ((4 * A + B + 5) // 4, A + 1 + (B + 1) // 4),
    (A, 3 * (A // 3) + A % 3),
    (size_min(A, B) + size_max(A, B), A + B),
    (size_max(A, size_max(B, C)), size_max(size_max(C, A), B)),
    (size_max(A + C, B + C), C + size_max(A, B)),
    (size_max(2 * A, 2 * B), 2 * size_max(A, B)),
    (size_max(A, 1), A),
    (size_max(A + B, A), A + B),
    ((2 * A + 1) // 4, A // 2),
    (((A + C) * B) // (A + C), B),
    (size_min(size_max(C, 0), C + B), C),
    (ceildiv(A, 2), (A + 1) // 2),
    (size_prod([2, A, 3, B]), 6 * A * B),
    (size_sum([A, 1, A]), 2 * A + 1),
]


@pytest.mark.parametrize(("x", "y"), EQUAL, ids=[str(x) for x, _ in EQUAL])
def test_equal_expressions_have_one_form(x: Dim, y: Dim) -> None:
    assert x == y
    assert hash(x) == hash(y)


NUMBERS = [(A - A, 0), (A - A + 3, 3), ((A + B) - (B + A) + 2, 2), (size_min(C, 0), 0)]


@pytest.mark.parametrize(("x", "n"), [*NUMBERS, (0 * A, 0), (A * B // (A * B), 1)])
def test_what_is_a_number_is_an_int(x: Size, n: int) -> None:
    assert type(x) is int
    assert x == n


def test_a_dim_is_no_number() -> None:
    for use in (bool, int, range, float):
        with pytest.raises(TypeError, match="symbolic"):
            use(A)
    assert A != 1
    assert A + np.int64(2) == A + 2
    assert np.int64(2) + A == A + 2


def test_division_is_exact_only_as_polynomials() -> None:
    assert exact_div((A + C) * (A + 2), A + C) == A + 2
    assert exact_div(A * B + 1, A) is None
    assert exact_div(12, 4) == 3
    assert exact_div(12, 5) is None
    assert exact_div(6 * A, 4) is None
    assert (C * A) // C != A  # c may be 0: not cancelled


PROVEN = [
    (A * B, A), (A + C, A), (A % 4, 0), (3, A % 4), (A, size_min(A, B)), (size_max(A, B), A),
    (A, 2 * (A // 2)), ((A + 1) // 2, 1), (A * B * 4 - A * 2 - B, 0), (size_max(A, C), 1),
]  # fmt: skip


@pytest.mark.parametrize(("x", "y"), PROVEN, ids=[f"{x}>={y}" for x, y in PROVEN])
def test_order_that_always_holds_is_proven(x: Size, y: Size) -> None:
    assert provably_ge(x, y) is True
    assert provably_ge(y - 1, x) is False


def test_what_depends_is_unknown() -> None:
    assert provably_ge(C, 1) is None
    assert provably_eq(A, B) is None
    assert provably_eq(2 * A, 2 * B + 1) is False
    assert provably_eq(A + B, 1) is False


def test_symbols_of_one_name_are_different() -> None:
    other = symbol("a", lo=0)
    assert other != A
    assert provably_ge(A, 1) is True
    assert provably_ge(other, 1) is None
    assert symbols_of(A * other) == {A.as_symbol, other.as_symbol}
    assert symbol("n", kind=SymbolKind.DATA).as_symbol.kind is SymbolKind.DATA  # type: ignore[union-attr]
    assert (A + 1).as_symbol is None


def test_evaluation_names_the_unbound_symbol() -> None:
    with pytest.raises(UnboundSymbolError, match="'b' has no number"):
        evaluate(A + B, {A.as_symbol: 1})  # type: ignore[dict-item]


def test_numbers_are_exact() -> None:
    assert evaluate(A * A * A, env({"a": 2**40})) == 2**120


def test_nested_expressions_stay_small() -> None:
    sizes = [symbol(f"n{i}") for i in range(60)]
    numbers = {s.as_symbol: 3 + i * 7 % 11 for i, s in enumerate(sizes)}
    x: Size = sizes[0]
    want = 3
    for i, s in enumerate(sizes[1:], 1):
        n = numbers[s.as_symbol]
        if i % 2:
            x, want = size_max(x, s), max(want, n)
        else:
            x, want = size_min(x, s + 2), min(want, n + 2)
    assert evaluate(x, numbers) == want  # type: ignore[arg-type]
    assert len(str(x)) < 20_000


def test_long_chains_neither_recurse_nor_slow_down() -> None:
    x: Size = A
    want = 5
    for _ in range(2000):
        x, want = (x + 1) // 2 * B, (want + 1) // 2 * 2
    assert evaluate(x, env({"a": 5, "b": 2})) == want
    assert evaluate(substitute(x, {B.as_symbol: 2}), env({"a": 5})) == want  # type: ignore[dict-item]


TEXTS = [
    ("a", A),
    ("a + b", A + B),
    ("2*a", 2 * A),
    ("floor(a/2)", A // 2),
    ("(a-1)//2+1", (A - 1) // 2 + 1),
    ("max(a, b)", size_max(A, B)),
    ("min(a,3)", size_min(A, 3)),
    ("a % 4", A % 4),
    ("7", 7),
    ("-a+9", 9 - A),
]


@pytest.mark.parametrize(("text", "size"), TEXTS, ids=[t for t, _ in TEXTS])
def test_expressions_are_read(text: str, size: Size) -> None:
    assert parse_size(text, SYMBOLS.__getitem__) == size


NO_SIZES = ["unk__0:1", "a b", "", "a.b", "f(a)", "a//0", "2.5*a", "a[0]", "("]


@pytest.mark.parametrize("text", NO_SIZES)
def test_what_is_no_expression_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no expression|divides by zero"):
        parse_size(text, lambda name: A)


@pytest.mark.parametrize("seed", range(5))
def test_text_reads_back(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(50):
        size, reference = random_size(rng, 3)
        if "let" not in str(size):
            again = parse_size(str(size), SYMBOLS.__getitem__)
            numbers = random_numbers(rng)
            assert evaluate(again, env(numbers)) == reference(numbers), str(size)


def test_constraints_keep_only_what_is_open() -> None:
    facts = Constraints()
    facts.require_eq(A, A, "same")
    facts.require_ge(A * B, A, "proven")
    facts.require_eq(2 * A, 2 * B, "halves")
    facts.require_eq(B, A, "again")
    facts.require_ge(C, 2, "long enough")
    assert [str(c) for c in facts] == ["b-a == 0 (halves)", "c-2 >= 0 (long enough)"]
    assert [c.why for c in facts.failed(env({"a": 1, "b": 2, "c": 5}))] == ["halves"]
    with pytest.raises(SizeError, match="split: 3 is not 4"):
        facts.require_eq(3, 4, "split")
    with pytest.raises(SizeError, match="pad"):
        facts.require_ge(-A, 0, "pad")


INT64: Any = np.int64
NUMPY: list[tuple[Any, Size]] = [
    (floordiv(A, INT64(2)), A // 2),
    (floordiv(INT64(7), A), 7 // A),
    (exact_div(4 * A, INT64(2)), 2 * A),
    (ceildiv(A, INT64(2)), (A + 1) // 2),
    (size_max(INT64(3), INT64(2)), 3),
    (size_min(A, INT64(0)), 0),
    (size_prod([INT64(2**40), INT64(2**40)]), 2**80),
    (size_sum([INT64(2**62), INT64(2**62)]), 2**63),
    (evaluate(A * A, {A_SYMBOL: INT64(2**40)}), 2**80),
    (evaluate(INT64(3), {}), 3),
    (substitute(A * A, {A_SYMBOL: INT64(2**40)}), 2**80),
    (INT64(7) // A, 7 // A),
    (INT64(7) % A, 7 % A),
    (A % np.int32(4), A % 4),
    (np.uint8(3) - A, 3 - A),
]


@pytest.mark.parametrize(("got", "want"), NUMPY, ids=range(len(NUMPY)))
def test_integers_of_numpy_are_exact_like_those_of_python(got: Any, want: Size) -> None:
    assert type(got) is type(want)
    assert got == want
    if isinstance(got, Dim):
        assert all(type(c) is int for _, c in got.terms)


def test_numpy_integers_can_be_compared() -> None:
    assert provably_eq(INT64(2), INT64(2)) is True
    assert provably_ge(INT64(0), A) is False
    assert bounds(INT64(2)) == (2, 2)
    assert symbols_of(INT64(2)) == frozenset()


CHAIN = [symbol(f"s{i}") for i in range(300)]
STEPS: dict[str, Callable[[Any, Any, int], Size]] = {
    "half": lambda x, s, i: (x + 1) // 2,
    "scaled half": lambda x, s, i: (x + 1) // 2 * B + 1,
    "quotient": lambda x, s, i: (x + 1) // s,
    "product": lambda x, s, i: x * (s + 1),
    "max": lambda x, s, i: size_max(x, s),
    "min and max": lambda x, s, i: size_max(x, s) if i % 2 else size_min(x, s + 2),
}


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
def test_long_chains_are_built_bounded_and_substituted(
    step: Callable[[Any, Any, int], Size],
) -> None:
    numbers = {s.as_symbol: 1 + i * 7 % 11 for i, s in enumerate(CHAIN)} | env({"a": 5, "b": 2})
    x: Size = A
    for i, s in enumerate(CHAIN):
        x = step(x, s, i)
    want = evaluate(x, numbers)
    lo, hi = bounds(x)
    assert lo <= want <= hi
    assert lo > -inf
    assert evaluate(substitute(x, {A_SYMBOL: 5}), numbers) == want
    assert len(str(x)) < 2000


def test_a_maximum_of_many_is_one_of_named_maxima() -> None:
    x: Size = A
    for s in CHAIN[:100]:
        x = size_max(x, s)
    assert isinstance(x, Dim)
    assert all(len(a.args) <= 48 for a in x.atoms)
    assert len(x.symbols) == 101


def test_bounds_beyond_floats_are_exact() -> None:
    huge = 2**2000
    assert bounds(A * huge - B) == (-inf, inf)
    assert bounds(A * huge + B) == (huge + 1, inf)
    assert bounds(-A * huge) == (-inf, -huge)
    short = symbol("short", lo=2, hi=3)
    assert bounds(short * huge) == (2 * huge, 3 * huge)
    assert bounds((A + huge) // huge) == (1, inf)
    assert bounds(symbol("large", lo=huge) * 2) == (2 * huge, inf)


def test_threads_make_the_same_sizes() -> None:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(30):
            assert all(made == made_first for made, made_first in _made_by_threads())
    finally:
        sys.setswitchinterval(before)


def _made_by_threads() -> list[tuple[list[Size], list[Size]]]:
    x, barrier = symbol("x"), Barrier(4)
    made: list[list[Size]] = [[] for _ in range(4)]

    def work(out: list[Size]) -> None:
        barrier.wait()
        out.extend((x * 7 + j) // (11 + j) for j in range(20))

    threads = [Thread(target=work, args=(out,)) for out in made]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return [(out, made[0]) for out in made]


RATIONAL: list[tuple[str, Callable[[int, int], int]]] = [
    ("floor(a/2 - 1/2) + 1", lambda a, b: floor(Fraction(a - 1, 2)) + 1),
    ("floor(a/3 + b/2)", lambda a, b: floor(Fraction(a, 3) + Fraction(b, 2))),
    ("ceiling(a/2) * b", lambda a, b: ceil(Fraction(a, 2)) * b),
    ("ceil(a/(0-2))", lambda a, b: ceil(Fraction(a, -2))),
    ("2*(a/2)", lambda a, b: a),
    ("b*(a/2)", lambda a, b: floor(Fraction(a * b, 2))),
    ("a/b", lambda a, b: a // b),
    ("Max(a, b) - Min(a, b)", lambda a, b: abs(a - b)),
    (" a + b ", lambda a, b: a + b),
    ("a/2//b", lambda a, b: floor(Fraction(a, 2 * b))),
    ("(a/2) % 2", lambda a, b: floor(Fraction(a, 2) % 2)),
]


@pytest.mark.parametrize(("text", "want"), RATIONAL, ids=[t for t, _ in RATIONAL])
@given(a=st.integers(1, 40), b=st.integers(1, 40))
def test_a_slash_divides_exactly_until_it_is_rounded(
    text: str, want: Callable[[int, int], int], a: int, b: int
) -> None:
    size = parse_size(text, SYMBOLS.__getitem__)
    assert evaluate(size, env({"a": a, "b": b})) == want(a, b)


@pytest.mark.parametrize("text", ["floor(a, b)", "floor()", "max()", "max(a, key=b)", "floor(*a)"])
def test_calls_of_another_form_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no expression"):
        parse_size(text, SYMBOLS.__getitem__)


DIVISORS = [
    B // (A * C + 1), B // (A * B), (A // 2) // B, B // (A // 2 + 1), B // ((A + 1) // 2),
    A // (B // 2 + B),
    7 // (2 * A), -(A // 2) + B, (A * B) // 2, A * (B // 2), A // size_max(B, 2),
]  # fmt: skip


@pytest.mark.parametrize("size", DIVISORS, ids=map(str, DIVISORS))
@given(a=st.integers(1, 9), b=st.integers(1, 9), c=st.integers(0, 4))
def test_text_of_quotients_reads_back(size: Size, a: int, b: int, c: int) -> None:
    numbers = env({"a": a, "b": b, "c": c})
    again = parse_size(str(size), SYMBOLS.__getitem__)
    try:
        want = evaluate(size, numbers)
    except ZeroDivisionError:
        return
    assert evaluate(again, numbers) == want


def test_text_is_plain() -> None:
    assert str(2 * A + 1) == "2*a+1"
    assert str(size_max(A, B)) == "max(a, b)"
    assert str(B // (A * B * B + A)) == "(b//(a*b*b+a))"


@given(x=st.integers(-9, 9), k=st.integers(1, 9), j=st.integers(1, 9), n=st.integers(-60, 60))
def test_divisions_of_negative_numbers_round_down(x: int, k: int, j: int, n: int) -> None:
    s = symbol("s", lo=-60)
    size = ((s * x + n) // j + x) // k
    want = lambda v: ((v * x + n) // j + x) // k  # noqa: E731
    for v in (-60, -7, 0, 3):
        assert evaluate(size, {s.as_symbol: v}) == want(v)  # type: ignore[dict-item]
        lo, hi = bounds(size)
        assert lo <= want(v) <= hi
