"""Numbers and other sizes in place of symbols."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping

from kn_graph.dim.division import floordiv
from kn_graph.dim.extremes import size_max
from kn_graph.dim.polynomial import (
    Atom,
    Dim,
    FloorDiv,
    Let,
    Max,
    Size,
    Symbol,
    named_if_large,
    of_atom,
    size_add,
    size_multiply,
    terms_of,
    to_size,
)

__all__ = [
    "UnboundSymbolError",
    "evaluate",
    "ordered_atoms",
    "substitute",
    "symbols_of",
    "value_of",
]


class UnboundSymbolError(KeyError):
    """A symbol has no number."""

    def __str__(self) -> str:
        """Return the message as it is, where KeyError would quote it."""
        return str(self.args[0])


def symbols_of(size: Size) -> frozenset[Symbol]:
    """Return all symbols in a size."""
    return size.symbols if isinstance(size, Dim) else frozenset()


_REBUILD: dict[type[Atom], Callable[..., Size]] = {
    FloorDiv: floordiv,
    Max: size_max,
    Let: named_if_large,
}


def ordered_atoms(size: Dim, known: Callable[[Atom], bool] = lambda a: False) -> list[Atom]:
    """Return all atoms at any depth, operands before what uses them.

    Args:
        size: where to look.
        known: says which atoms to leave out, with what is inside of them.
    """
    found = {a for a in size.atoms if not known(a)}
    stack = list(found)
    while stack:
        for arg in stack.pop().args:
            if isinstance(arg, Dim):
                new = {a for a in arg.atoms if a not in found and not known(a)}
                found |= new
                stack.extend(new)
    return sorted(found)


def evaluate(size: Size, env: Mapping[Symbol, int]) -> int:
    """Return the number of a size, in exact arithmetic.

    Raises:
        UnboundSymbolError: a symbol has no number in `env`.
    """
    if isinstance(size, int):
        return size
    if not isinstance(size, Dim):
        return operator.index(size)
    known: dict[Atom, int] = {}
    for atom in ordered_atoms(size):
        if isinstance(atom, Symbol):
            if atom not in env:
                raise UnboundSymbolError(f"the symbolic size {atom.name!r} has no number")
            known[atom] = operator.index(env[atom])  # NumPy's integers overflow silently
        else:
            known[atom] = atom.compute([value_of(d, known) for d in atom.args])
    return value_of(size, known)


def value_of(size: Size, known: Mapping[Atom, int]) -> int:
    """Return the number of a size, given those of its atoms."""
    total = 0
    for monomial, coefficient in terms_of(size):
        for atom in monomial:
            coefficient *= known[atom]
        total += coefficient
    return total


def substitute(size: Size, table: Mapping[Symbol, Size]) -> Size:
    """Return a size with symbols replaced by sizes, canonical again."""
    size = to_size(size)
    if isinstance(size, int) or size.symbols.isdisjoint(table):
        return size
    known: dict[Atom, Size] = {}
    for atom in ordered_atoms(size):
        if isinstance(atom, Symbol):
            known[atom] = to_size(table[atom]) if atom in table else of_atom(atom)
        elif atom.symbols.isdisjoint(table):
            known[atom] = of_atom(atom)
        else:
            known[atom] = _REBUILD[type(atom)](*(_replace_atoms(d, known) for d in atom.args))
    return _replace_atoms(size, known)


def _replace_atoms(size: Size, known: Mapping[Atom, Size]) -> Size:
    """Return a size with its atoms (not those inside of them) replaced."""
    total: Size = 0
    for monomial, coefficient in terms_of(size):
        term: Size = coefficient
        for atom in monomial:
            term = size_multiply(term, known[atom] if atom in known else of_atom(atom))
        total = size_add(total, term)
    return total
