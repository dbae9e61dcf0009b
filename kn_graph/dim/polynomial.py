"""Symbolic sizes: integers, or canonical integer polynomials over interned atoms.

There are four kinds of atoms: symbols, floor divisions, n-ary maxima, and names given to
expressions that grew too large. Modulo and minimum are no atoms: `a % b = a - b*(a//b)` and
`min(a, b) = -max(-a, -b)`, so `a == b*(a//b) + a % b` and `min + max == a + b` hold by
construction. Every rewrite is valid for all integers with floor semantics, never only for
non-negative ones.

A `Size` is an `int` or a `Dim`; a `Dim` is never constant, so arithmetic whose result is a number
returns an `int`. Equal expressions are equal objects up to `==`, which costs one tuple comparison.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from enum import Enum
from functools import lru_cache
from itertools import count
from numbers import Integral
from threading import Lock
from typing import Any, TypeAlias
from weakref import WeakValueDictionary

__all__ = [
    "REMEMBERED",
    "Atom",
    "Dim",
    "FloorDiv",
    "Let",
    "Max",
    "Monomial",
    "Size",
    "Symbol",
    "SymbolKind",
    "expand_product",
    "intern",
    "named_if_large",
    "of_atom",
    "size_add",
    "size_multiply",
    "size_of",
    "size_prod",
    "size_sum",
    "symbol",
    "term_key",
    "terms_of",
    "to_size",
]

MAX_TERMS, MAX_DEPTH = 48, 3
"""An expression beyond these gets a name: nested min and max would double with every level, and
a maximum of n sizes costs n proofs for each size that joins it. Terms inside of atoms count."""


REMEMBERED = 4096
"""How many results of each kind of arithmetic are kept: layers of a model repeat their sizes."""


class SymbolKind(Enum):
    """Where the number of a symbol comes from."""

    INPUT = "input"
    """The shapes of inputs."""
    DATA = "data"
    """A node, when it has run."""


_serial = count()


class Atom:
    """What polynomials are made of; compared by identity.

    Attributes:
        order: (nesting over all, creation number): sorts atoms, operands before what uses them.
        depth: the nesting below the next named expression.
        args: the sizes inside.
        symbols: all symbols inside.
        weight: how many terms there are inside, down to the next named expressions.
        limits: its smallest and largest number, once `dim_facts` has found them.
        samples: its numbers for some legal numbers of symbols, once `dim_facts` has tried them.
    """

    __slots__ = ("__weakref__", "args", "depth", "limits", "order", "samples", "symbols", "weight")

    args: tuple[Size, ...]
    depth: int
    order: tuple[int, int]
    symbols: frozenset[Symbol]
    weight: int
    limits: tuple[float, float] | None
    samples: tuple[int, ...] | None

    def __init__(self, args: tuple[Size, ...], symbols: frozenset[Symbol] | None = None) -> None:
        inner = [a for d in args if isinstance(d, Dim) for a in d.atoms]
        self.args = args
        self.limits = self.samples = None
        self.weight = sum(map(_weight, args))
        rank = 1 + max((a.order[0] for a in inner), default=-1)
        self.order = (rank, next(_serial))
        self.depth = 1 + max((a.depth for a in inner), default=-1)
        self.symbols = (
            symbols if symbols is not None else frozenset().union(*(a.symbols for a in inner))
        )

    def __lt__(self, other: Atom) -> bool:
        """Order canonically."""
        return self.order < other.order

    def compute(self, numbers: list[int]) -> int:
        """Return the value for values of `args`."""
        raise NotImplementedError


class Symbol(Atom):
    """A named unknown. Two symbols of the same name are different.

    Attributes:
        name: what texts call it.
        kind: where its number comes from.
        lo: the smallest number it stands for.
        hi: the largest, or None.
    """

    __slots__ = ("hi", "kind", "lo", "name")

    def __init__(self, name: str, kind: SymbolKind, lo: int, hi: int | None) -> None:
        super().__init__((), frozenset([self]))
        self.depth = 0
        self.name, self.kind, self.lo, self.hi = name, kind, lo, hi

    def __str__(self) -> str:
        """Return the name."""
        return self.name

    def __repr__(self) -> str:
        """Return name and bounds."""
        return f"<Symbol {self.name} {self.lo}..{'' if self.hi is None else self.hi}>"


class FloorDiv(Atom):
    """`args[0] // args[1]`."""

    __slots__ = ()

    def compute(self, numbers: list[int]) -> int:
        """Divide, rounding down."""
        return numbers[0] // numbers[1]

    def __str__(self) -> str:
        """Return `(a+1)//2`."""
        return "//".join(map(_operand_text, self.args))


class Max(Atom):
    """The largest of `args`."""

    __slots__ = ()

    def compute(self, numbers: list[int]) -> int:
        """Take the largest."""
        return max(numbers)

    def __str__(self) -> str:
        """Return `max(a, b)`."""
        return f"max({', '.join(map(str, self.args))})"


class Let(Atom):
    """A name for `args[0]`, which grew too large to be looked into."""

    __slots__ = ()

    def __init__(self, args: tuple[Size, ...]) -> None:
        super().__init__(args)
        self.depth = self.weight = 0

    def compute(self, numbers: list[int]) -> int:
        """Return the number itself."""
        return numbers[0]

    def __str__(self) -> str:
        """Return `let7`."""
        return f"let{self.order[1]}"


def _weight(size: Size) -> int:
    if isinstance(size, int):
        return 1
    return len(size.terms) + sum(a.weight for a in size.atoms)


AtomKind: TypeAlias = "Callable[[tuple[Size, ...]], Atom]"

_interned: WeakValueDictionary[tuple[AtomKind, tuple[Size, ...]], Atom] = WeakValueDictionary()
_interning = Lock()


def intern(kind: AtomKind, *args: Size) -> Atom:
    """Return the one atom of a kind, a class or what makes its objects, with these arguments."""
    found = _interned.get((kind, args))
    if found is None:
        with _interning:  # two threads must not make one each: atoms compare by identity
            found = _interned.get((kind, args))
            if found is None:
                found = kind(args)
                _interned[kind, args] = found
    return found


Monomial: TypeAlias = "tuple[Atom, ...]"
Terms: TypeAlias = "dict[Monomial, int]"


class Dim:
    """A sum of integer coefficients times products of atoms; immutable and never constant.

    Attributes:
        terms: ((atoms, coefficient), ...), sorted by degree and atoms; the constant comes first.
    """

    __slots__ = ("_atoms", "_hash", "terms")

    def __init__(self, terms: tuple[tuple[Monomial, int], ...]) -> None:
        self.terms = terms
        self._hash = hash(terms)
        self._atoms: frozenset[Atom] | None = None

    @property
    def atoms(self) -> frozenset[Atom]:
        """The atoms of the polynomial, not those inside of them."""
        if self._atoms is None:
            self._atoms = frozenset(a for m, _ in self.terms for a in m)
        return self._atoms

    @property
    def symbols(self) -> frozenset[Symbol]:
        """All symbols inside."""
        return frozenset().union(*(a.symbols for a in self.atoms))

    @property
    def as_symbol(self) -> Symbol | None:
        """The symbol, where this is one and nothing else."""
        if len(self.terms) == 1 and self.terms[0][1] == 1 and len(self.terms[0][0]) == 1:
            atom = self.terms[0][0][0]
            return atom if isinstance(atom, Symbol) else None
        return None

    @property
    def constant_term(self) -> int:
        """The number that is added."""
        monomial, coefficient = self.terms[0]
        return 0 if monomial else coefficient

    def __eq__(self, other: object) -> bool:
        """Compare canonical forms; a Dim never equals a number."""
        return self is other or (isinstance(other, Dim) and self.terms == other.terms)

    def __hash__(self) -> int:
        """Hash the canonical form."""
        return self._hash

    def __add__(self, other: Any) -> Any:
        """Add a size."""
        return _arithmetic(_sum, self, other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        """Subtract a size."""
        return _arithmetic(_difference, self, other)

    def __rsub__(self, other: Any) -> Any:
        """Subtract from a size."""
        return _arithmetic(lambda a, b: _difference(b, a), self, other)

    def __mul__(self, other: Any) -> Any:
        """Multiply with a size."""
        return _arithmetic(size_multiply, self, other)

    __rmul__ = __mul__

    def __neg__(self) -> Dim:
        """Negate."""
        return Dim(tuple((m, -c) for m, c in self.terms))

    def __floordiv__(self, other: Any) -> Any:
        """Divide, rounding down."""
        return _arithmetic(_floordiv, self, other)

    def __rfloordiv__(self, other: Any) -> Any:
        """Divide a size by this, rounding down."""
        return _arithmetic(lambda a, b: _floordiv(b, a), self, other)

    def __mod__(self, other: Any) -> Any:
        """Take the remainder with the sign of the divisor."""
        return _arithmetic(lambda a, b: a - _floordiv(a, b) * b, self, other)

    def __rmod__(self, other: Any) -> Any:
        """Take the remainder of a size divided by this."""
        return _arithmetic(lambda a, b: b - _floordiv(b, a) * a, self, other)

    def _no_number(self) -> Any:
        raise TypeError(
            f"the size {self} is symbolic: it has no number before inputs are given. "
            "Use evaluate(size, numbers), or a comparison of kn_graph.dim_facts"
        )

    __bool__ = __int__ = __index__ = __float__ = _no_number

    def __str__(self) -> str:
        """Return text such as `2*seq+1`, the terms of highest degree first."""
        parts = [_term_text(m, c) for m, c in reversed(self.terms)]
        return "".join(parts).removeprefix("+")

    __repr__ = __str__


Size: TypeAlias = int | Dim


def _term_text(monomial: Monomial, coefficient: int) -> str:
    sign = "-" if coefficient < 0 else "+"
    factors = [_atom_text(a) for a in monomial]
    if abs(coefficient) != 1 or not monomial:
        factors.insert(0, str(abs(coefficient)))
    return sign + "*".join(factors)


def _atom_text(atom: Atom) -> str:
    return f"({atom})" if isinstance(atom, FloorDiv) else str(atom)


def _operand_text(size: Size) -> str:
    if isinstance(size, Dim):
        (monomial, coefficient), *more = size.terms
        # `b//a*c` would be read as `(b//a)*c`
        if more or coefficient != 1 or len(monomial) != 1:
            return f"({size})"
    return str(size)


def _arithmetic(f: Callable[[Any, Any], Size], a: Dim, b: Any) -> Any:
    if isinstance(b, (int, Dim)):
        return f(a, b)
    return f(a, operator.index(b)) if isinstance(b, Integral) else NotImplemented


def _floordiv(a: Size, b: Size) -> Size:
    from kn_graph.dim.division import floordiv  # which is written with these operators

    return floordiv(a, b)


def to_size(number: Any) -> Size:
    """Return a size as it is, and integers of NumPy, which overflow silently, as Python's."""
    return number if isinstance(number, (int, Dim)) else operator.index(number)


def term_key(term: tuple[Monomial, int]) -> tuple[int, list[tuple[int, int]]]:
    """Order terms by degree, then atoms."""
    return len(term[0]), [a.order for a in term[0]]


def terms_of(size: Size) -> tuple[tuple[Monomial, int], ...]:
    """Return the terms of a size, none for 0."""
    return size.terms if isinstance(size, Dim) else (((), size),) if size else ()


def size_of(terms: Terms) -> Size:
    """Return the canonical size of some terms, which are used up."""
    constant = terms.pop((), 0)
    kept = [(m, c) for m, c in terms.items() if c]
    if not kept:
        return constant
    if len(kept) > 1:
        kept.sort(key=term_key)
    return Dim((((), constant), *kept) if constant else tuple(kept))


def of_atom(atom: Atom, coefficient: int = 1) -> Dim:
    """Return an atom as a size."""
    return Dim((((atom,), coefficient),))


def size_add(a: Size, b: Size) -> Size:
    """Add."""
    return a + b if isinstance(a, int) and isinstance(b, int) else _sum(a, b)


@lru_cache(maxsize=REMEMBERED)
def _sum(a: Size, b: Size) -> Size:
    terms = dict(terms_of(a))
    for m, c in terms_of(b):
        terms[m] = terms.get(m, 0) + c
    return size_of(terms)


@lru_cache(maxsize=REMEMBERED)
def _difference(a: Size, b: Size) -> Size:
    return _sum(a, -b)


def size_multiply(a: Size, b: Size) -> Size:
    """Multiply."""
    if isinstance(b, int):
        a, b = b, a
    if isinstance(a, int):
        if isinstance(b, int):
            return a * b
        if a == 1:
            return b
        if a == 0:
            return 0
        return Dim(tuple([(m, c * a) for m, c in b.terms]))
    return _product(a, b)


@lru_cache(maxsize=REMEMBERED)
def _product(a: Dim, b: Dim) -> Size:
    return named_if_large(expand_product(a, b))


@lru_cache(maxsize=REMEMBERED)
def expand_product(a: Size, b: Size) -> Size:
    """Multiply without ever naming the result: for proofs, where naming would not end."""
    terms: Terms = {}
    for m, c in terms_of(a):
        for n, d in terms_of(b):
            key = tuple(sorted(m + n)) if m and n else m + n
            terms[key] = terms.get(key, 0) + c * d
    return size_of(terms)


def named_if_large(size: Size) -> Size:
    """Return a size, or a name for it where it has grown too large."""
    if isinstance(size, int):
        return size
    if all(a.depth <= MAX_DEPTH for a in size.atoms) and _weight(size) <= MAX_TERMS:
        return size
    return of_atom(intern(Let, size))


def symbol(
    name: str, *, lo: int = 1, hi: int | None = None, kind: SymbolKind = SymbolKind.INPUT
) -> Dim:
    """Return a new unknown size of at least `lo` and, unless None, at most `hi`."""
    return of_atom(Symbol(name, kind, lo, hi))


def size_sum(sizes: Iterable[Size]) -> Size:
    """Add sizes up."""
    total: Size = 0
    for s in sizes:
        total = total + to_size(s)
    return total


def size_prod(sizes: Iterable[Size]) -> Size:
    """Multiply sizes, numbers first."""
    number = 1
    symbolic: Size | None = None
    for s in sizes:
        if isinstance(s, Dim):
            symbolic = s if symbolic is None else symbolic * s
        else:
            number *= operator.index(s)
    return number if symbolic is None else symbolic * number
