"""Comparisons of sizes say the same with examples as by proofs alone, only sooner."""

import random

import pytest

from kn_graph.dim import Size, evaluate, floordiv, size_max, symbol, symbols_of
from kn_graph.dim_facts import bounds, provably_ge, surely_ge


def expression(rng: random.Random, atoms: list[Size], depth: int) -> Size:
    """Return a random size."""
    if depth == 0:
        return rng.choice([*atoms, rng.randint(-3, 40)])
    a, b = (expression(rng, atoms, depth - 1) for _ in range(2))
    made = (
        lambda: a + b,
        lambda: a - b,
        lambda: a * b,
        lambda: floordiv(a, rng.choice([2, 3, 64])),
        lambda: floordiv(a, size_max(b, 1)),
        lambda: size_max(a, b),
    )
    return rng.choice(made)()


def proven(size: Size) -> bool | None:
    """Return whether a size is at least 0 by what its bounds say."""
    lo, hi = bounds(size)
    return True if lo >= 0 else False if hi < 0 else None


@pytest.mark.parametrize("seed", range(150))
def test_examples_only_save_time(seed):
    rng = random.Random(seed)
    atoms = [symbol("a"), symbol("b", lo=0), symbol("c", lo=2, hi=9)]
    a, b = (expression(rng, atoms, rng.randint(1, 3)) for _ in range(2))
    expected, found = proven(a - b), provably_ge(a, b)
    assert expected is None or found == expected
    assert surely_ge(a, b) == (found is True)
    symbols = symbols_of(a) | symbols_of(b)
    for _ in range(40):
        env = {s: rng.randint(s.lo, s.hi or rng.choice([3, 100, 10**7])) for s in symbols}
        if found is not None:
            assert (evaluate(a, env) >= evaluate(b, env)) == found


def test_a_symbol_that_can_be_one_number_only():
    n = symbol("n", lo=4, hi=4)
    assert provably_ge(n, 4) is True
    assert provably_ge(3, n) is False


def test_a_division_by_what_may_be_zero_has_no_examples():
    n = symbol("n", lo=0)
    assert provably_ge(floordiv(100, n), 3) is None
    assert not surely_ge(floordiv(100, n), 3)
    assert surely_ge(floordiv(100, n) + n + 1, floordiv(100, n))
