"""Numbers and other sizes in place of symbols."""

from __future__ import annotations

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
    of_atom,
    size_add,
    size_multiply,
    terms_of,
)

__all__ = ["UnboundSymbolError", "evaluate", "substitute", "symbols_of"]


class UnboundSymbolError(KeyError):
    """A symbol has no number."""

    def __str__(self) -> str:
        """Return the message as it is, where KeyError would quote it."""
        return str(self.args[0])


def symbols_of(size: Size) -> frozenset[Symbol]:
    """Return all symbols in a size."""
    return frozenset() if isinstance(size, int) else size.symbols


_REBUILD: dict[type[Atom], Callable[..., Size]] = {
    FloorDiv: floordiv,
    Max: size_max,
    Let: lambda size: size,  # named again where it is used, if it is still large
}


def _ordered_atoms(size: Dim) -> list[Atom]:
    """Return all atoms at any depth, operands before what uses them."""
    found = set(size.atoms)
    stack = list(found)
    while stack:
        for arg in stack.pop().args:
            if isinstance(arg, Dim):
                new = arg.atoms - found
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
    known: dict[Atom, int] = {}
    for atom in _ordered_atoms(size):
        if isinstance(atom, Symbol):
            if atom not in env:
                raise UnboundSymbolError(f"the symbolic size {atom.name!r} has no number")
            known[atom] = env[atom]
        else:
            known[atom] = atom.compute([_value(d, known) for d in atom.args])
    return _value(size, known)


def _value(size: Size, known: Mapping[Atom, int]) -> int:
    total = 0
    for monomial, coefficient in terms_of(size):
        for atom in monomial:
            coefficient *= known[atom]
        total += coefficient
    return total


def substitute(size: Size, table: Mapping[Symbol, Size]) -> Size:
    """Return a size with symbols replaced by sizes, canonical again."""
    if isinstance(size, int) or size.symbols.isdisjoint(table):
        return size
    known: dict[Atom, Size] = {}
    for atom in _ordered_atoms(size):
        if isinstance(atom, Symbol):
            known[atom] = table.get(atom, of_atom(atom))
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
