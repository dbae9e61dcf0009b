"""Division of sizes, rounding down."""

from __future__ import annotations

from functools import lru_cache
from math import gcd

from kn_graph.dim.polynomial import (
    REMEMBERED,
    Dim,
    FloorDiv,
    Size,
    expand_product,
    intern,
    named_if_large,
    of_atom,
    size_add,
    size_of,
    terms_of,
    to_size,
)

__all__ = ["ceildiv", "exact_div", "floordiv"]


def exact_div(a: Size, b: Size) -> Size | None:
    """Return q with q*b == a as polynomials, or None: long division by leading terms."""
    a, b = to_size(a), to_size(b)
    if isinstance(b, int):
        if b == 0 or any(c % b for _, c in terms_of(a)):
            return None
        return size_of({m: c // b for m, c in terms_of(a)})
    lead, lead_coefficient = b.terms[-1]
    quotient: Size = 0
    rest = a
    while rest != 0:
        monomial, coefficient = terms_of(rest)[-1]
        left = list(monomial)
        for atom in lead:
            if atom not in left:
                return None
            left.remove(atom)
        if coefficient % lead_coefficient:
            return None
        step = size_of({tuple(left): coefficient // lead_coefficient})
        quotient = size_add(quotient, step)
        rest = size_add(rest, -expand_product(step, b))
    return quotient


def floordiv(a: Size, b: Size) -> Size:
    """Divide, rounding down.

    Raises:
        ZeroDivisionError: b is 0.
    """
    a, b = to_size(a), to_size(b)
    if isinstance(a, int) and isinstance(b, int):
        return a // b
    return _quotient(a, b)


@lru_cache(maxsize=REMEMBERED)
def _quotient(a: Size, b: Size) -> Size:
    if isinstance(b, int):
        if b == 0:
            raise ZeroDivisionError(f"{a} // 0")
        return _divide_by_number(-a if b < 0 else a, abs(b))
    from kn_graph.dim_facts import surely_ge

    # n == q*b cancels only where b cannot be zero
    exact = exact_div(a, b) if surely_ge(b, 1) or surely_ge(-1, b) else None
    return exact if exact is not None else named_if_large(of_atom(intern(FloorDiv, a, b)))


def _divide_by_number(a: Size, k: int) -> Size:
    whole = size_of({m: c // k for m, c in terms_of(a)})  # multiples of k come out
    rest = size_of({m: c % k for m, c in terms_of(a)})
    if isinstance(rest, int):
        return whole
    constant = rest.constant_term
    common = gcd(k, *(c for m, c in rest.terms if m))
    # (g*x + c) // (g*k) = (x + c//g) // k
    rest = size_of({m: c // common for m, c in rest.terms if m} | {(): constant // common})
    k //= common
    if k == 1:
        return whole + rest
    assert isinstance(rest, Dim)
    return named_if_large(size_add(whole, _divide_reduced(rest, k)))


def _divide_reduced(rest: Dim, k: int) -> Size:
    linear = [(m, c) for m, c in rest.terms if m]
    if len(linear) == 1 and linear[0][1] == 1 and len(linear[0][0]) == 1:
        atom = linear[0][0][0]
        if isinstance(atom, FloorDiv) and isinstance(atom.args[1], int) and atom.args[1] > 0:
            # (x//j + c) // k = (x + c*j) // (j*k)
            x, j = atom.args
            assert isinstance(j, int)
            return floordiv(x + rest.constant_term * j, j * k)
    return of_atom(intern(FloorDiv, rest, k))


def ceildiv(a: Size, b: Size) -> Size:
    """Divide by a size of at least 1, rounding up."""
    a, b = to_size(a), to_size(b)
    return floordiv(a + (b - 1), b)
