"""What is provable about symbolic sizes, and what has to hold once they have numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from math import gcd, inf

from kn_graph.dim import (
    Atom,
    Dim,
    FloorDiv,
    Max,
    Size,
    Symbol,
    evaluate,
    expand_product,
    of_atom,
)
from kn_graph.dim.evaluate import ordered_atoms
from kn_graph.dim.polynomial import to_size

__all__ = [
    "Constraint",
    "ConstraintKind",
    "Constraints",
    "SizeError",
    "bounds",
    "provably_eq",
    "provably_ge",
    "surely_ge",
]

Bound = float  # an int of any size, or an infinity: mixing them overflows, hence `_plus`
PROOF_DEPTH = 3


class SizeError(ValueError):
    """Sizes contradict each other for all numbers of their symbols."""


def bounds(size: Size) -> tuple[Bound, Bound]:
    """Return (lo, hi) that hold for all legal numbers of the symbols: sound, not always tight."""
    return _at(to_size(size), PROOF_DEPTH)


def _plus(x: Bound, y: Bound) -> Bound:
    """Add, where an infinity wins: Python cannot add one to an integer beyond the floats."""
    return x if abs(x) == inf else y if abs(y) == inf else x + y


def _width_product(widths: list[Bound], coefficient: int) -> Bound:
    if 0 in widths:
        return 0
    if inf in widths:
        return inf if coefficient > 0 else -inf
    for w in widths:
        coefficient *= int(w)
    return coefficient


@lru_cache(maxsize=65536)
def _bounds(size: Dim, depth: int) -> tuple[Bound, Bound]:
    lo, hi = _interval(size)
    compound = [a for a in size.atoms if a.depth]
    if not depth or not compound:
        return lo, hi
    atom = max(compound)  # outermost first
    uses = [(m, c) for m, c in size.terms if atom in m]
    linear = len(uses) == 1 and len(uses[0][0]) == 1
    factor = uses[0][1] if linear else 0
    if isinstance(atom, Max):
        better = _by_cases(size, atom, factor, depth)
    elif linear and isinstance(atom, FloorDiv) and isinstance(atom.args[1], int):
        better = _by_remainder(size, atom, factor, depth)
    else:
        return lo, hi
    return max(lo, better[0]), min(hi, better[1])


def _at(size: Size, depth: int) -> tuple[Bound, Bound]:
    return (size, size) if isinstance(size, int) else _bounds(size, depth)


def _by_cases(size: Dim, atom: Atom, factor: int, depth: int) -> tuple[Bound, Bound]:
    """A maximum is one of its arguments: at least each of them, and one of them exactly."""
    if factor:
        without = size - of_atom(atom, factor)
        replaced = [without + x * factor for x in atom.args]
    else:
        replaced = [_replaced(size, atom, x) for x in atom.args]
    cases = [_at(x, depth - 1) for x in replaced]
    lows, highs = zip(*cases, strict=True)
    return (max if factor > 0 else min)(lows), (min if factor < 0 else max)(highs)


def _by_remainder(size: Dim, atom: Atom, factor: int, depth: int) -> tuple[Bound, Bound]:
    """Use k*(n//k) = n - r with 0 <= r < k."""
    n, k = atom.args
    assert isinstance(k, int)
    without = size - of_atom(atom, factor)
    lo, hi = _at(without * k + n * factor, depth - 1)
    lo, hi = _plus(lo, -max(factor, 0) * (k - 1)), _plus(hi, -min(factor, 0) * (k - 1))
    return (lo if lo == -inf else -(-lo // k)), (hi if hi == inf else hi // k)


def _replaced(size: Dim, atom: Atom, by: Size) -> Size:
    """Replace one atom, never naming the result: that would not end."""
    total: Size = 0
    for monomial, coefficient in size.terms:
        term: Size = coefficient
        for a in monomial:
            term = expand_product(term, by if a is atom else of_atom(a))
        total = total + term
    return total


def _atom_bounds(atom: Atom) -> tuple[Bound, Bound]:
    """Return the limits of an atom, those of all atoms inside of it first: chains are long."""
    if atom.limits is None:
        for a in ordered_atoms(of_atom(atom), lambda a: a.limits is not None):
            a.limits = _find_limits(a)
    assert atom.limits is not None
    return atom.limits


def _find_limits(atom: Atom) -> tuple[Bound, Bound]:
    if isinstance(atom, Symbol):
        return atom.lo, inf if atom.hi is None else atom.hi
    if isinstance(atom, FloorDiv):
        return _quotient_bounds(_at(atom.args[0], 2), _at(atom.args[1], 2))
    lows, highs = zip(*(_at(d, 2) for d in atom.args), strict=True)
    return max(lows), max(highs)


def _quotient_bounds(
    numerator: tuple[Bound, Bound], denominator: tuple[Bound, Bound]
) -> tuple[Bound, Bound]:
    (nlo, nhi), (dlo, dhi) = numerator, denominator
    if dlo < 1:
        return -inf, inf
    lo: Bound = -inf
    if nlo != -inf:
        lo = nlo // dlo if nlo < 0 else (0 if dhi == inf else nlo // dhi)
    hi: Bound = inf
    if nhi != inf:
        hi = nhi // dlo if nhi >= 0 else (-1 if dhi == inf else nhi // dhi)
    return lo, hi


def _interval(size: Dim) -> tuple[Bound, Bound]:
    """The interval of the polynomial with each atom written as lo + x, 0 <= x <= hi - lo."""
    if all(len(monomial) < 2 for monomial, _ in size.terms):
        return _linear_interval(size)
    limits = {a: _atom_bounds(a) for a in size.atoms}
    shifts: dict[Atom, Size] = {
        a: Dim((((), int(lo)), ((a,), 1))) for a, (lo, _) in limits.items() if lo not in (0, -inf)
    }
    shifted = _shifted(size, shifts) if shifts else size
    if isinstance(shifted, int):
        return shifted, shifted
    lo: Bound = shifted.constant_term
    hi: Bound = lo
    for monomial, coefficient in shifted.terms:
        if not monomial:
            continue
        if any(limits[a][0] == -inf for a in monomial):
            return -inf, inf
        widths = [_plus(limits[a][1], -limits[a][0]) for a in monomial]
        top = _width_product(widths, coefficient)
        lo, hi = (lo, _plus(hi, top)) if coefficient > 0 else (_plus(lo, top), hi)
    return lo, hi


def _linear_interval(size: Dim) -> tuple[Bound, Bound]:
    """Return the same for a sum of multiples of atoms, where the shifts need not be multiplied."""
    lo: Bound = 0
    hi: Bound = 0
    for monomial, coefficient in size.terms:
        least, most = _atom_bounds(monomial[0]) if monomial else (1, 1)
        if least == -inf:
            return -inf, inf
        near = coefficient * least
        far = _width_product([most], coefficient)
        lo, hi = (
            (_plus(lo, near), _plus(hi, far))
            if coefficient > 0
            else (_plus(lo, far), _plus(hi, near))
        )
    return lo, hi


def _low(size: Dim) -> Bound:
    """Return a lower bound that is found faster than that of `_interval`, and may be lower."""
    total = 0
    for monomial, number in size.terms:
        for a in monomial:
            lo, hi = _atom_bounds(a)
            most = lo if number > 0 else hi
            if lo < 0 or most == inf:
                return -inf
            number *= int(most)
        total += number
    return total


def _shifted(size: Dim, shifts: Mapping[Atom, Size]) -> Size:
    total: Size = 0
    for monomial, coefficient in size.terms:
        term: Size = coefficient
        for atom in monomial:
            term = expand_product(term, shifts[atom] if atom in shifts else of_atom(atom))
        total = total + term
    return total


# ---- examples: what they contradict need not be tried to prove -----------------------------

SPREADS = (0, 97, 10**6 + 3)
"""How far above their smallest numbers symbols are tried, at most."""


def _samples(size: Dim) -> tuple[int, ...]:
    """Return what a size is for some legal numbers of its symbols; nothing where one divides by 0.

    Symbols get the same numbers in all sizes.
    """
    for atom in size.atoms:
        if atom.samples is None:
            for a in ordered_atoms(of_atom(atom), lambda a: a.samples is not None):
                a.samples = _atom_samples(a)
    columns = range(len(SPREADS))
    if not all(a.samples for a in size.atoms):
        return ()
    return tuple([_sample(size, i) for i in columns])


def _sample(size: Size, column: int) -> int:
    if isinstance(size, int):
        return size
    total = 0
    for monomial, number in size.terms:
        for a in monomial:
            assert a.samples is not None
            number *= a.samples[column]
        total += number
    return total


def _atom_samples(atom: Atom) -> tuple[int, ...]:
    if isinstance(atom, Symbol):
        most = SPREADS[-1] if atom.hi is None else atom.hi - atom.lo
        # unequal symbols should be unequal: a serial number times a prime
        return tuple([atom.lo + min(atom.order[1] * 7919 % (n + 1), most) for n in SPREADS])
    if not all(a.samples for d in atom.args if isinstance(d, Dim) for a in d.atoms):
        return ()
    try:
        return tuple(
            [atom.compute([_sample(d, i) for d in atom.args]) for i in range(len(SPREADS))]
        )
    except ZeroDivisionError:
        return ()


def surely_ge(a: Size, b: Size = 0) -> bool:
    """Return whether a >= b is proven for all numbers; quicker than `provably_ge`."""
    if a is b:
        return True
    difference = to_size(a) - to_size(b)
    if isinstance(difference, int):
        return difference >= 0
    if min(_samples(difference), default=0) < 0:
        return False
    return _low(difference) >= 0 or _bounds(difference, PROOF_DEPTH)[0] >= 0


def provably_ge(a: Size, b: Size = 0) -> bool | None:
    """Return whether a >= b for all numbers (True), for none (False), or unknown (None)."""
    if surely_ge(a, b):
        return True
    difference = to_size(a) - to_size(b)
    if isinstance(difference, int):
        return False
    if max(_samples(difference), default=-1) >= 0:
        return None
    return False if _bounds(difference, PROOF_DEPTH)[1] < 0 else None


def provably_eq(a: Size, b: Size) -> bool | None:
    """Return whether a == b for all numbers (True), for none (False), or unknown (None)."""
    if a is b or (isinstance(a, Dim) and a == b):
        return True
    difference = to_size(a) - to_size(b)
    if isinstance(difference, int):
        return difference == 0
    lo, hi = _bounds(difference, PROOF_DEPTH)
    common = gcd(*(c for m, c in difference.terms if m))
    if lo > 0 or hi < 0 or difference.constant_term % common:
        return False
    return None


class ConstraintKind(Enum):
    """How the size of a constraint compares with 0."""

    EQ = "=="
    GE = ">="


@dataclass(frozen=True, slots=True)
class Constraint:
    """A requirement on the numbers of symbols.

    Attributes:
        kind: `dim == 0` or `dim >= 0`.
        dim: divided by its common factor; for EQ the leading coefficient is positive.
        why: what needs it.
    """

    kind: ConstraintKind
    dim: Dim
    why: str

    @property
    def symbols(self) -> frozenset[Symbol]:
        """Symbols that it is about."""
        return self.dim.symbols

    def holds(self, env: Mapping[Symbol, int]) -> bool:
        """Return whether it holds for these numbers.

        Raises:
            UnboundSymbolError: a symbol has none.
        """
        number = evaluate(self.dim, env)
        return number == 0 if self.kind is ConstraintKind.EQ else number >= 0

    def __str__(self) -> str:
        """Return text such as `a-b == 0 (concat operands 0 and 1 at axis 2)`."""
        return f"{self.dim} {self.kind.value} 0 ({self.why})"


class Constraints:
    """The requirements of a graph, each once, in the order they came up."""

    def __init__(self) -> None:
        self._items: dict[tuple[ConstraintKind, Dim], Constraint] = {}

    def require_eq(self, a: Size, b: Size, why: str) -> None:
        """Require a == b; what is proven is not recorded.

        Raises:
            SizeError: they never are.
        """
        known = provably_eq(a, b)
        if known is False:
            raise SizeError(f"{why}: {a} is not {b}")
        if known is None:
            self._record(ConstraintKind.EQ, to_size(a) - to_size(b), why)

    def require_ge(self, a: Size, b: Size, why: str) -> None:
        """Require a >= b; what is proven is not recorded.

        Raises:
            SizeError: it never holds.
        """
        known = provably_ge(a, b)
        if known is False:
            raise SizeError(f"{why}: {a} is less than {b}")
        if known is None:
            self._record(ConstraintKind.GE, to_size(a) - to_size(b), why)

    def _record(self, kind: ConstraintKind, dim: Size, why: str) -> None:
        assert isinstance(dim, Dim)  # a number would have been decided
        common = gcd(*(c for _, c in dim.terms))
        if kind is ConstraintKind.EQ and dim.terms[-1][1] < 0:
            common = -common
        reduced = Dim(tuple((m, c // common) for m, c in dim.terms))
        self._items.setdefault((kind, reduced), Constraint(kind, reduced, why))

    def copy(self) -> Constraints:
        """Return a copy that can grow by itself."""
        out = Constraints()
        out._items = dict(self._items)
        return out

    def failed(self, env: Mapping[Symbol, int]) -> list[Constraint]:
        """Return those that do not hold for these numbers."""
        return [c for c in self if not c.holds(env)]

    def __iter__(self) -> Iterator[Constraint]:
        """Iterate in the order of recording."""
        return iter(list(self._items.values()))

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._items)
