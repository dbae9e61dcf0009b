"""All size-dependent numbers of a plan, computed for concrete sizes in one call.

Layers repeat: thousands of sizes, strides and offsets of a plan are some dozens of expressions.
Each is computed once: by looking at it in the first bindings, later by a straight-line Python
function that is generated for the plan, since to compile that takes as long as many bindings.
Integers are exact, so nothing overflows in silence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from kn_graph.dim import Atom, Dim, FloorDiv, Let, Max, Size, Symbol, UnboundSymbolError, symbols_of
from kn_graph.dim.evaluate import ordered_atoms, value_of
from kn_plan.derived import Derived, Rule

__all__ = ["Binder", "NumberTable"]

Ints = np.ndarray[Any, np.dtype[np.int64]]

FIRST = 2
"""How many bindings are computed without a function: what is bound to one set of sizes lays out its
arena for these and for rounded ones, and never again."""


class NumberTable:
    """The numbers of a plan, in the order in which they were added, equal expressions once."""

    def __init__(self) -> None:
        self._slots: list[int] = []
        self._slot_of: dict[Size, int] = {}

    def add(self, size: Size) -> int:
        """Note one number of one step; return its place among all numbers."""
        self._slots.append(self._slot_of.setdefault(size, len(self._slot_of)))
        return len(self._slots) - 1

    def add_all(self, sizes: Iterable[Size]) -> range:
        """Note several numbers; return their places."""
        slots, slot_of = self._slots, self._slot_of
        start = len(slots)
        slots += [slot_of.setdefault(size, len(slot_of)) for size in sizes]
        return range(start, len(slots))

    def __len__(self) -> int:
        """Return how many numbers there are."""
        return len(self._slots)

    @property
    def symbols(self) -> frozenset[Symbol]:
        """What the numbers depend on."""
        return frozenset(s for size in self._slot_of for s in symbols_of(size))

    @property
    def unique(self) -> tuple[Size, ...]:
        """The different expressions."""
        return tuple(self._slot_of)

    def binder(self) -> Binder:
        """Return what computes the numbers added so far."""
        return Binder(self.unique, self._slots)


class Binder:
    """Computes the numbers of a table.

    Attributes:
        symbols: what has to be known.
    """

    def __init__(self, sizes: Sequence[Size], slots: Sequence[int]) -> None:
        found = {s for size in sizes if isinstance(size, Dim) for s in size.symbols}
        self.symbols: tuple[Symbol, ...] = tuple(sorted(found))
        self._sizes, self._slots = sizes, np.asarray(slots, np.intp)
        self._bindings = 0

    @property
    def source(self) -> str:
        """The text of the function that computes the expressions."""
        return _source(self._sizes, self.symbols)[0]

    @cached_property
    def _evaluate(self) -> Callable[..., list[int]]:
        return _compiled(*_source(self._sizes, self.symbols))

    def expressions(self, env: Mapping[Symbol, int]) -> list[int]:
        """Return the number of each different expression.

        Raises:
            UnboundSymbolError: a symbol has no number.
        """
        try:
            numbers = [env[s] for s in self.symbols]
        except KeyError as error:
            raise UnboundSymbolError(f"size {error.args[0]} has no number") from None
        self._bindings += 1
        if self._bindings <= FIRST:
            return _evaluated(self._sizes, dict(zip(self.symbols, numbers, strict=True)))
        return self._evaluate(*numbers)

    def __call__(self, env: Mapping[Symbol, int]) -> Ints:
        """Return all numbers.

        Raises:
            UnboundSymbolError: a symbol has no number.
            OverflowError: a number leaves the range of 64 bits.
        """
        numbers = np.array(self.expressions(env), np.int64)
        return numbers[self._slots]


def _evaluated(sizes: Sequence[Size], known: dict[Atom, int]) -> list[int]:
    """Return the numbers of sizes.

    Args:
        sizes: expressions.
        known: the number of each symbol; grows by the atoms made of them.
    """
    for size in sizes:
        if isinstance(size, Dim) and not known.keys() >= size.atoms:
            for atom in ordered_atoms(size, known.__contains__):
                known[atom] = atom.compute([value_of(a, known) for a in atom.args])
    return [size if isinstance(size, int) else value_of(size, known) for size in sizes]


def _compiled(source: str, rules: Mapping[str, Rule]) -> Callable[..., list[int]]:
    space: dict[str, Any] = dict(rules)
    exec(compile(source, "<binding>", "exec"), space)  # the text holds numbers and our own names
    function: Callable[..., list[int]] = space["bind"]
    return function


def _source(sizes: Sequence[Size], symbols: Sequence[Symbol]) -> tuple[str, Mapping[str, Rule]]:
    writer = _Writer(symbols)
    rows = [writer.text(size) for size in sizes]
    arguments = ", ".join(f"s{i}" for i in range(len(symbols)))
    body = [*writer.lines, f"return [{', '.join(rows)}]"]
    source = f"def bind({arguments}):\n" + "".join(f"    {line}\n" for line in body)
    return source, {name: rule for rule, name in writer.rules.items()}


class _Writer:
    """Writes expressions, and lines in front of them for what several share."""

    def __init__(self, symbols: Sequence[Symbol]) -> None:
        self.lines: list[str] = []
        self.rules: dict[Rule, str] = {}
        self._calls: dict[str, str] = {}
        self._names: dict[Atom, str] = {s: f"s{i}" for i, s in enumerate(symbols)}
        self._products: dict[tuple[Atom, ...], str] = {}

    def text(self, size: Size) -> str:
        """Return the expression of a size, whose atoms and products have lines of their own."""
        if isinstance(size, int):
            return str(size)
        for atom in ordered_atoms(size, self._names.__contains__):
            self._name(atom)
        return self._sum(size)

    def _name(self, atom: Atom) -> None:
        args = [self._sum(a) for a in atom.args]
        if isinstance(atom, Derived):
            text = f"{self._call(atom.rule, args)}[{atom.place}]"
        else:
            text = _ATOMS[type(atom)](args)
        name = self._names[atom] = f"t{len(self._names)}"
        self.lines.append(f"{name} = {text}")

    def _call(self, rule: Rule, args: list[str]) -> str:
        """Return the name of all results of a function."""
        name = self.rules.setdefault(rule, f"f{len(self.rules)}")
        text = f"{name}({', '.join(args)})"
        known = self._calls.get(text)
        if known is None:
            known = self._calls[text] = f"r{len(self._calls)}"
            self.lines.append(f"{known} = {text}")
        return known

    def _sum(self, size: Size) -> str:
        if isinstance(size, int):
            return str(size)
        return " + ".join(self._term(m, c) for m, c in size.terms)

    def _term(self, monomial: tuple[Atom, ...], coefficient: int) -> str:
        if not monomial:
            return str(coefficient)
        product = self._product(monomial)
        return product if coefficient == 1 else f"{coefficient} * {product}"

    def _product(self, monomial: tuple[Atom, ...]) -> str:
        name = self._names[monomial[0]]
        for end in range(2, len(monomial) + 1):
            factors = monomial[:end]
            known = self._products.get(factors)
            if known is None:
                known = self._products[factors] = f"p{len(self._products)}"
                self.lines.append(f"{known} = {name} * {self._names[factors[-1]]}")
            name = known
        return name


_ATOMS: dict[type[Atom], Callable[[list[str]], str]] = {
    FloorDiv: lambda args: f"({args[0]}) // ({args[1]})",
    Max: lambda args: f"max({', '.join(args)})",
    Let: lambda args: args[0],
}
