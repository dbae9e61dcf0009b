"""What scalar functions make of elements that are known before running.

Elements of integer tensors are sizes (int or Dim), those of boolean ones truths (bool or
Condition), those of floats `Exact`: sizes over a power of two, as in `floor(float(size) * 0.5)`.
A float holds such a number exactly as long as its numerator has no more digits than the type; what
that asks of sizes is collected, and becomes a guard where the number turns into a size again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from kn_graph.condition import Condition, size_eq, size_ge, truth_not
from kn_graph.dim import Dim, Size, ceildiv, size_max, size_min
from kn_graph.dim_facts import provably_ge
from kn_graph.dtype import DType

__all__ = [
    "BINARY",
    "COMPARE",
    "DIGITS",
    "UNARY",
    "Exact",
    "Limit",
    "as_dtype",
    "exact_number",
    "tracked",
]

DIGITS = {DType.FLOAT64: 53, DType.FLOAT32: 24, DType.FLOAT16: 11, DType.BFLOAT16: 8}
"""Binary digits of the types that hold sizes."""

INT_RANGE = {d: (np.iinfo(d.numpy).min, np.iinfo(d.numpy).max) for d in (DType.INT64, DType.INT32)}

MAX_DEGREE = 64
"""Of a size that is tracked: squared again and again, the next one would be twice as long."""

SMALL = 1024
"""Numerators and denominators of constants up to here are worth tracking."""

Limit = tuple[Dim, int]
"""A size, and what it must not exceed on either side of 0."""


@dataclass(frozen=True)
class Exact:
    """A float that is known: numerator / denominator.

    Attributes:
        numerator: any size.
        denominator: a power of two.
        limits: what sizes must keep to for no step so far to have rounded.
    """

    numerator: Size
    denominator: int = 1
    limits: frozenset[Limit] = frozenset()


def exact_number(x: float) -> Exact | None:
    """Return a constant, where it has few digits."""
    if x - x != 0:  # infinite, or no number
        return None
    numerator, denominator = float(x).as_integer_ratio()
    if abs(numerator) > SMALL or denominator > SMALL:
        return None
    return Exact(numerator, denominator)


def tracked(dtype: DType, element: Any) -> Any:
    """Return an element as a tensor of this type holds it; None where that is left to run time.

    Integers that leave the range of the type wrap there; floats that a type cannot hold round.
    """
    if isinstance(element, Exact):
        return _held(dtype, element)
    if isinstance(element, int):
        lo, hi = INT_RANGE.get(dtype, (0, 1))
        return element if lo <= element <= hi else None
    if element is None:
        return None
    size = element.dim if isinstance(element, Condition) else element
    return element if all(len(monomial) <= MAX_DEGREE for monomial, _ in size.terms) else None


def _held(dtype: DType, x: Exact) -> Exact | None:
    n, most = x.numerator, 1 << DIGITS[dtype]
    if isinstance(n, int):
        return x if abs(n) <= most else None
    if provably_ge(most, n) and provably_ge(n, -most):
        return x
    return Exact(n, x.denominator, x.limits | {(n, most)})


def as_dtype(dtype: DType, x: Any) -> Any:
    """Convert an element to another type, as Cast does; None where that is not known."""
    if isinstance(x, Exact):
        return _of_float(dtype, x)
    if dtype is DType.BOOL:
        return truth_not(size_eq(x, 0)) if isinstance(x, Dim) else _truth(x)
    if isinstance(x, Condition):
        return None
    x = int(x) if isinstance(x, bool) else x
    return Exact(x) if dtype.is_float else x


def _truth(x: Any) -> Any:
    return x if isinstance(x, Condition) else bool(x)


def _of_float(dtype: DType, x: Exact) -> Any:
    if dtype.is_float:
        return x
    if dtype is DType.BOOL:
        return truth_not(size_eq(x.numerator, 0))
    if x.denominator == 1:
        return x.numerator
    # truncation is the floor of what is not negative
    return x.numerator // x.denominator if provably_ge(x.numerator, 0) else None


# ---- functions of sizes ---------------------------------------------------------------------


def _div(x: Any, y: Any) -> Any:
    if isinstance(x, int) and isinstance(y, int):
        if y == 0:
            return None
        q = abs(x) // abs(y)
        return q if (x >= 0) == (y > 0) else -q
    # floor and truncation agree only where the signs are proven
    return x // y if provably_ge(x, 0) and provably_ge(y, 1) else None


def _mod(x: Any, y: Any) -> Any:
    if isinstance(y, int):
        return x % y if y else None
    return x % y if provably_ge(y, 1) else None


def _abs(x: Any) -> Any:
    return abs(x) if isinstance(x, int) else (x if provably_ge(x, 0) else None)


def _logical(when_known: bool) -> Callable[[Any, Any], Any]:
    """`and` (decided by False) or `or` (decided by True) of truths."""

    def combine(x: Any, y: Any) -> Any:
        for a, b in ((x, y), (y, x)):
            if isinstance(a, bool):
                return a if a is when_known else b
        return x if x == y else None

    return combine


# ---- functions of floats --------------------------------------------------------------------


def _divided(x: Exact, y: Exact) -> Exact | None:
    n = y.numerator
    if not isinstance(n, int) or n == 0 or abs(n) & (abs(n) - 1):
        return None  # thirds have no end
    sign = 1 if n > 0 else -1
    return _reduced(x.numerator * (y.denominator * sign), x.denominator * abs(n), x.limits)


def _reduced(n: Size, d: int, limits: frozenset[Limit]) -> Exact:
    """Cancel twos, as far as that is plain."""
    while d > 1 and isinstance(n, int) and n % 2 == 0:
        n, d = n // 2, d // 2
    if isinstance(n, Dim) and d > 1:
        parts = [c for _, c in n.terms]
        while d > 1 and all(c % 2 == 0 for c in parts):
            n, d, parts = n // 2, d // 2, [c // 2 for c in parts]
    return Exact(n, d, limits)


def _common(f: Callable[[Size, Size], Any]) -> Callable[[Exact, Exact], Any]:
    """Apply a function of sizes to numerators over one denominator."""

    def apply(x: Exact, y: Exact) -> Any:
        d = max(x.denominator, y.denominator)
        out = f(x.numerator * (d // x.denominator), y.numerator * (d // y.denominator))
        if out is None or isinstance(out, (bool, Condition)):
            return out
        return _reduced(out, d, x.limits | y.limits)

    return apply


def _product(x: Exact, y: Exact) -> Exact:
    n, d = x.numerator * y.numerator, x.denominator * y.denominator
    return _reduced(n, d, x.limits | y.limits)


def _whole(f: Callable[[Size, int], Size]) -> Callable[[Exact], Exact]:
    return lambda x: Exact(f(x.numerator, x.denominator), 1, x.limits)


def _equal(x: Any, y: Any) -> Any:
    if isinstance(x, (bool, Condition)) or isinstance(y, (bool, Condition)):
        return x is y if isinstance(x, bool) and isinstance(y, bool) else None
    return size_eq(x, y)


def _not_known(t: Any) -> Any:
    return None if t is None else truth_not(t)


def _comparison(of_sizes: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    of_floats = _common(of_sizes)

    def compare(x: Any, y: Any) -> Any:
        return of_floats(x, y) if isinstance(x, Exact) else of_sizes(x, y)

    return compare


def _either(
    of_sizes: Callable[..., Any] | None, of_floats: Callable[..., Any] | None
) -> Callable[..., Any]:
    """Choose by the elements; truths have no arithmetic."""

    def apply(*args: Any) -> Any:
        if any(isinstance(x, (bool, Condition)) for x in args):
            return None
        f = of_floats if isinstance(args[0], Exact) else of_sizes
        return None if f is None else f(*args)

    return apply


UNARY: dict[str, Callable[[Any], Any]] = {
    "neg": _either(lambda x: -x, lambda x: Exact(-x.numerator, x.denominator, x.limits)),
    "abs": _either(_abs, None),
    "floor": _either(None, _whole(lambda n, d: n // d)),
    "ceil": _either(None, _whole(ceildiv)),
    "logical_not": truth_not,
}
BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": _either(lambda x, y: x + y, _common(lambda x, y: x + y)),
    "sub": _either(lambda x, y: x - y, _common(lambda x, y: x - y)),
    "mul": _either(lambda x, y: x * y, _product),
    "div": _either(_div, _divided),
    "mod": _either(_mod, None),
    "min": _either(size_min, _common(size_min)),
    "max": _either(size_max, _common(size_max)),
    "logical_and": _logical(False),
    "logical_or": _logical(True),
}
COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "eq": _comparison(_equal),
    "ne": _comparison(lambda x, y: _not_known(_equal(x, y))),
    "ge": _comparison(_either(size_ge, None)),
    "gt": _comparison(_either(lambda x, y: size_ge(x, y + 1), None)),
    "le": _comparison(_either(lambda x, y: size_ge(y, x), None)),
    "lt": _comparison(_either(lambda x, y: size_ge(y, x + 1), None)),
}
"""By the names of the scalar table: None where the result is not known."""
