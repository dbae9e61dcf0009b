"""The type of a value that comes from one of two places, or out of a container."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import inf

from kn_graph.dim import Dim, Size, Symbol, SymbolKind, substitute, symbols_of
from kn_graph.dim_facts import bounds
from kn_graph.errors import DTypeError
from kn_graph.op import InferContext
from kn_graph.types import (
    MapType,
    NoType,
    OptionalType,
    SequenceType,
    TensorType,
    UnrankedType,
    ValueType,
    map_type_sizes,
)

__all__ = ["TypeJoin", "element_type", "is_tensor", "renewed"]


def is_tensor(t: ValueType) -> bool:
    """Return whether values of a type are tensors, of known or unknown rank."""
    return isinstance(t, (TensorType, UnrankedType))


def is_free(size: Size) -> bool:
    """Return whether a size is data-dependent: in a container, each element has its own."""
    return any(s.kind is SymbolKind.DATA for s in symbols_of(size))


class TypeJoin:
    """Finds types that hold for values of either of two types.

    Equal pairs of sizes become the same size everywhere.

    Args:
        ctx: makes new sizes.
        name: what those are called.
        hidden: symbols that mean nothing where the result is used.
        table: what other symbols stand for there.
    """

    def __init__(
        self,
        ctx: InferContext,
        name: str,
        hidden: Collection[Symbol] = (),
        table: Mapping[Symbol, Size] | None = None,
    ) -> None:
        self._ctx, self._name, self._hidden = ctx, name, hidden
        self._table = table or {}
        self._pairs: dict[tuple[Size, Size], Size] = {}

    def join(self, a: ValueType, b: ValueType) -> ValueType:
        """Return the narrowest type of a value that has one type or the other.

        Raises:
            DTypeError: no type includes both.
        """
        if isinstance(a, TensorType) and isinstance(b, TensorType) and a.rank == b.rank:
            self._check_dtype(a, b)
            pairs = zip(a.shape, b.shape, strict=True)
            return TensorType(a.dtype, tuple(self._size(x, y) for x, y in pairs))
        if is_tensor(a) and is_tensor(b):
            self._check_dtype(a, b)
            return UnrankedType(a.dtype)  # type: ignore[union-attr]
        return self._element(a, b)

    def visible(self, t: ValueType) -> ValueType:
        """Return a type with new sizes in place of those that mention hidden symbols."""
        return self.join(t, t)

    def _check_dtype(self, a: ValueType, b: ValueType) -> None:
        x, y = getattr(a, "dtype", None), getattr(b, "dtype", None)
        if x is not y:
            raise DTypeError(f"one side gives {a}, the other {b}: element types must be equal")

    def _known(self, size: Size) -> bool:
        return not any(s in self._hidden for s in symbols_of(size))

    def _size(self, a: Size, b: Size) -> Size:
        a, b = substitute(a, self._table), substitute(b, self._table)
        if a == b and self._known(a):
            return a
        if (a, b) not in self._pairs:
            (low, high), (low2, high2) = bounds(a), bounds(b)
            lo, hi = max(min(low, low2), 0), max(high, high2)
            self._pairs[a, b] = self._ctx.data_symbol(
                f"{self._name}_{len(self._pairs)}", lo=int(lo), hi=None if hi == inf else int(hi)
            )
        return self._pairs[a, b]

    # ---- inside of containers ---------------------------------------------------------------

    def _element(self, a: ValueType, b: ValueType) -> ValueType:
        """As `join`, but a size that is free on one side stays that of this side."""
        if isinstance(a, OptionalType) or isinstance(b, OptionalType):
            inner = [t.elem if isinstance(t, OptionalType) else t for t in (a, b)]
            return OptionalType(self._element(*inner))
        if isinstance(a, SequenceType) and isinstance(b, SequenceType):
            return SequenceType(self._element(a.elem, b.elem))
        if isinstance(a, MapType) and isinstance(b, MapType) and a.key is b.key:
            return MapType(a.key, self._element(a.value, b.value))
        if not (is_tensor(a) and is_tensor(b)):
            raise DTypeError(f"one side gives {a}, the other {b}")
        self._check_dtype(a, b)
        if isinstance(a, NoType) and isinstance(b, NoType):
            return a
        if isinstance(a, NoType) or isinstance(b, NoType):
            a = b = b if isinstance(a, NoType) else a
        if isinstance(a, TensorType) and isinstance(b, TensorType) and a.rank == b.rank:
            pairs = zip(a.shape, b.shape, strict=True)
            return TensorType(a.dtype, tuple(self._element_size(x, y) for x, y in pairs))
        return UnrankedType(a.dtype)  # type: ignore[union-attr]

    def _element_size(self, a: Size, b: Size) -> Size:
        a, b = substitute(a, self._table), substitute(b, self._table)
        for size in (a, b):
            symbol = size.as_symbol if isinstance(size, Dim) else None
            if symbol is not None and symbol.kind is SymbolKind.DATA and self._known(size):
                return size
        return a if a == b and self._known(a) and not is_free(a) else self._free()

    def _free(self) -> Size:
        return self._ctx.data_symbol(self._name)


def element_type(ctx: InferContext, name: str, *types: ValueType) -> ValueType:
    """Return a type for the elements of a container that get values of some types."""
    joined = SequenceType(types[0])
    for t in types:
        joined = TypeJoin(ctx, name).join(joined, SequenceType(t))  # type: ignore[assignment]
    return joined.elem


def renewed(ctx: InferContext, name: str, t: ValueType) -> ValueType:
    """Return the type of a value taken out of a container: free sizes become its own."""
    if isinstance(t, NoType):
        return UnrankedType(t.dtype)
    if not isinstance(t, TensorType):
        return t
    return map_type_sizes(t, lambda size: ctx.data_symbol(name) if is_free(size) else size)
