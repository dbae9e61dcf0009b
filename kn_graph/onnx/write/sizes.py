"""Symbolic sizes as tensors: standard integer operators on the shapes of what is there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from kn_graph.dim import (
    Atom,
    Dim,
    FloorDiv,
    Let,
    Max,
    Size,
    Symbol,
    of_atom,
    size_max,
    symbols_of,
)
from kn_graph.dim.evaluate import ordered_atoms
from kn_graph.dim_facts import provably_ge
from kn_graph.dtype import DType
from kn_graph.onnx.write.registry import refuse
from kn_graph.types import TensorType

if TYPE_CHECKING:
    from kn_graph.onnx.write.scope import Scope
    from kn_graph.value import Value

__all__ = ["SizeWriter"]


@dataclass(frozen=True)
class _Source:
    """Where a symbol's number is: in the shape of a tensor or in its elements.

    Attributes:
        tensor: its name.
        index: of the axis, or of the element.
        in_shape: which of both.
        size: what stands there, where that is not the symbol alone.
    """

    tensor: str
    index: int
    in_shape: bool
    size: Size | None = None


class SizeWriter:
    """Writes sizes into one ONNX graph as int64 tensors of shape [1]; each atom once.

    A size of which everything is known around a body is computed there.
    """

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._outer = None if scope.parent is None else scope.parent.sizes
        self._sources: dict[Symbol, _Source] = {}
        self._vectors: dict[tuple[Size, ...], str] = {}
        self._known: dict[Size, str] = {}
        self._scalars: dict[Size, str] = {}
        self._emitted: dict[tuple[Any, ...], str] = {}
        self._names: set[str] = set()

    # ---- where symbols come from ----------------------------------------------------------------

    def show(self, value: Value, name: str) -> None:
        """Take note of the symbols that the shape of a value shows."""
        if not isinstance(value.type, TensorType):
            return
        for axis, size in enumerate(value.type.shape):
            symbol = size.as_symbol if isinstance(size, Dim) else None
            if symbol is not None and not self._resolves(symbol):
                self._sources[symbol] = _Source(name, axis, True)

    def solve(self, value: Value, name: str) -> None:
        """Take note of a symbol that only shows inside of a size such as past+seq."""
        if not isinstance(value.type, TensorType):
            return
        for axis, size in enumerate(value.type.shape):
            if isinstance(size, int):
                continue
            open_ = [s for s in size.symbols if not self._resolves(s)]
            if len(open_) == 1 and _is_linear(size, open_[0]):
                self._sources[open_[0]] = _Source(name, axis, True, size)

    def read(self, symbols: Sequence[Dim], known: tuple[Size, ...], tensor: str) -> None:
        """Take note of symbols that are the elements of an integer vector.

        Args:
            symbols: one for each element.
            known: the same, with what is known of an element instead.
            tensor: the vector.
        """
        if self._scope.dtype(tensor) is not DType.INT64:
            tensor = self._emit("Cast", tensor, to=DType.INT64)
        for i, dim in enumerate(symbols):
            symbol = dim.as_symbol
            assert symbol is not None
            self._sources[symbol] = _Source(tensor, i, False)
        if len(symbols) == 1:
            self._known[symbols[0]] = tensor
        self._vectors[tuple(symbols)] = tensor
        self._vectors[known] = tensor
        self._names.add(tensor)

    def single(self, symbol: Dim, tensor: str) -> None:
        """Take note of an int64 tensor of rank 0 that holds a symbol."""
        self._scalars[symbol] = tensor

    def _resolves(self, symbol: Symbol) -> bool:
        writer: SizeWriter | None = self
        while writer is not None:
            if symbol in writer._sources:
                return True
            writer = writer._outer
        return False

    def _home(self, size: Dim) -> SizeWriter:
        """Return the writer of the outermost graph that knows all symbols of a size."""
        home = self
        while home._outer is not None and all(map(home._outer._resolves, size.symbols)):
            home = home._outer
        return home

    def _emit(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """Write an operator once for all that ask for it."""
        key = (operator, inputs, tuple(attributes.items()))
        if key not in self._emitted:
            name = self._emitted[key] = self._scope.emit(operator, *inputs, **attributes)
            self._names.add(name)
        return self._emitted[key]

    def share(self, names: Iterable[str]) -> None:
        """Take note of tensors that others may read, too."""
        self._names.update(names)

    def vectors(self) -> list[tuple[tuple[Size, ...], str]]:
        """Return the vectors of which the elements are sizes, with these."""
        return list(self._vectors.items())

    def are_read(self, *sizes: Size) -> bool:
        """Return whether a size depends on elements of a tensor, not on shapes alone."""
        symbols = {s for size in sizes for s in symbols_of(size)}
        writer: SizeWriter | None = self
        while writer is not None:
            sources = (writer._sources.get(s) for s in symbols)
            if any(s is not None and not s.in_shape for s in sources):
                return True
            writer = writer._outer
        return False

    def end(self, length: Size) -> str:
        """Return what counts to a length, as rank 0: n for max(0, n), since none count below 0."""
        for size in (of_atom(s) for s in symbols_of(length)):
            if size_max(0, size) == length:
                return self.scalar(size)
        return self.scalar(length)

    def shares(self, name: str) -> bool:
        """Return whether a tensor is a size that others read, too."""
        return name in self._names

    # ---- writing --------------------------------------------------------------------------------

    def vector(self, sizes: Sequence[Size]) -> str:
        """Return an int64 tensor [len(sizes)]."""
        if all(isinstance(s, int) for s in sizes):
            return self._scope.const(np.array(sizes, np.int64))
        whole = self._vectors.get(tuple(sizes))
        if whole is not None:
            return whole
        parts: list[str] = []
        numbers: list[int] = []
        for size in sizes:
            if isinstance(size, int):
                numbers.append(size)
                continue
            if numbers:
                parts.append(self.vector(numbers))
                numbers = []
            parts.append(self.piece(size))
        if numbers:
            parts.append(self.vector(numbers))
        return parts[0] if len(parts) == 1 else self._emit("Concat", *parts, axis=0)

    def scalar(self, size: Size) -> str:
        """Return an int64 tensor of rank 0."""
        if isinstance(size, int):
            return self._scope.const(np.array(size, np.int64))
        if size in self._scalars:
            return self._scalars[size]
        axes = self._scope.const(np.array([0], np.int64))
        return self._emit("Squeeze", self.piece(size), axes)

    def piece(self, size: Size) -> str:
        """Return an int64 tensor [1]."""
        if isinstance(size, int):
            return self.vector([size])
        home = self._home(size)
        if home is not self:
            return home.piece(size)
        for atom in ordered_atoms(size):
            if size != of_atom(atom):
                self._atom_piece(atom)
        if size not in self._known:
            self._known[size] = self._sum(size)
        return self._known[size]

    def _sum(self, size: Dim) -> str:
        emit = self._emit
        total: str | None = None
        for monomial, coefficient in reversed(size.terms):
            factors = [self._atom_piece(a) for a in monomial]
            minus = coefficient < 0 and total is not None
            number = -coefficient if minus else coefficient
            if number != 1 or not factors:
                factors.append(self.vector([number]))
            term = factors[0]
            for factor in factors[1:]:
                term = emit("Mul", term, factor)
            total = term if total is None else emit("Sub" if minus else "Add", total, term)
        assert total is not None
        return total

    def _atom_piece(self, atom: Atom) -> str:
        one = of_atom(atom)
        assert isinstance(one, Dim)
        home = self._home(one)  # other parts of the same size may be known in the body alone
        if one not in home._known:
            home._known[one] = home._atom(atom)
        return home._known[one]

    def _atom(self, atom: Atom) -> str:
        emit = self._emit
        if isinstance(atom, Symbol):
            return self._symbol(atom)
        args = [self.piece(a) for a in atom.args]
        if isinstance(atom, Let):
            return args[0]
        if isinstance(atom, Max):
            return emit("Max", *args)
        assert isinstance(atom, FloorDiv)
        over, under = atom.args
        if not (provably_ge(over, 0) and provably_ge(under, 1)):
            # Div truncates: what Mod leaves, with the sign of the divisor, goes first
            args[0] = emit("Sub", args[0], emit("Mod", *args))
        return emit("Div", *args)

    def _symbol(self, symbol: Symbol) -> str:
        emit = self._emit
        source = self._sources.get(symbol)
        if source is None:
            refuse(f"no input shows the size {symbol.name!r}")
        i = source.index
        if source.in_shape:
            piece = emit("Shape", source.tensor, start=i, end=i + 1)
            return piece if source.size is None else self._solved(symbol, source.size, piece)
        return emit("Gather", source.tensor, self.vector([i]), axis=0)

    def _solved(self, symbol: Symbol, size: Size, piece: str) -> str:
        assert isinstance(size, Dim)
        sign = dict(size.terms)[(symbol,)]
        rest = size - sign * Dim((((symbol,), 1),))
        first, second = (piece, self.piece(rest)) if sign > 0 else (self.piece(rest), piece)
        return self._emit("Sub", first, second)


def _is_linear(size: Dim, symbol: Symbol) -> bool:
    """Return whether a size is a symbol plus or minus what does not mention it."""
    others = (a for m, _ in size.terms if m != (symbol,) for a in m)
    return abs(dict(size.terms).get((symbol,), 0)) == 1 and not any(
        symbol in a.symbols for a in others
    )
