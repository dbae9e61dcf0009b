"""The base of all operations: attributes, a type rule and the NumPy reference in one class."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeAlias, TypeVar

import numpy as np

from kn_graph.dim import Dim, Size, Symbol, symbols_of
from kn_graph.types import ValueType

if TYPE_CHECKING:
    from kn_graph.graph import Graph
    from kn_graph.value import Value

__all__ = [
    "Content",
    "EvalContext",
    "InferContext",
    "Op",
    "Result",
    "field_names",
    "map_op_sizes",
    "op_symbols",
]

Result = Any
"""What `eval` takes and returns: an array, list (sequence), dict (map) or None (empty optional)."""


Content: TypeAlias = "np.ndarray[Any, Any]"
"""What is known of a tensor before running: an object array; see `kn_graph.known`."""


class InferContext(Protocol):
    """What a type rule may ask of the graph it is used in."""

    def require_eq(self, a: Size, b: Size, why: str) -> None:
        """Record that two sizes must be equal, or raise ShapeError where they cannot be."""

    def require_ge(self, a: Size, b: Size, why: str) -> None:
        """Record that a >= b, or raise ShapeError where that is impossible."""

    def data_symbol(self, name: str, *, lo: int = 0, hi: int | None = None) -> Dim:
        """Return a new size that is bound when the node has run."""


class EvalContext(Protocol):
    """What the reference evaluation of an operation may ask of the executor."""

    def size(self, size: Size) -> int:
        """Return the number that a size stands for in this run."""

    def sizes(self, shape: Sequence[Size]) -> tuple[int, ...]:
        """Return the numbers of several sizes."""

    def bind(self, symbol: Symbol, number: int) -> None:
        """Give a data symbol its number."""

    def run(self, body: Graph, inputs: Sequence[Result]) -> list[Result]:
        """Run a control-flow body and return its outputs in order."""

    def random_bits(self, stream: int, count: int, key: int | None) -> Any:
        """Return the next `count` uint32 of a random stream (see ops/random).

        Its seed is `key`, or that of the run.
        """


@dataclass(frozen=True)
class Op:
    """One kind of operation together with its attributes.

    Subclasses are frozen dataclasses. Attributes hold no arrays (only `Constant` does), but may
    hold sizes. Operands and results are positional.

    A subclass defines

    - `infer(ctx, *types)`: the type rule. Returns one type, or a tuple of several.
      Raises ShapeError or DTypeError; names axes and sizes, since the caller adds the node.
    - `eval(ctx, *operands)`: the NumPy reference. Returns one array, or a tuple of several. It
      never changes its operands; a result may be a view of an operand.
    - `forward(operands)`: the operand that the operation returns unchanged, if it does.
    """

    pure: ClassVar[bool] = True
    """Equal pure nodes are merged; random and stateful ones never."""
    internal: ClassVar[bool] = False
    """Whether no ONNX operator converts to it; a test asks for a converter otherwise."""

    def infer(self, ctx: InferContext, *types: Any) -> ValueType | tuple[ValueType, ...]:
        """Return the type of each result."""
        raise NotImplementedError(type(self).__name__)

    def eval(self, ctx: EvalContext, *operands: Any) -> Result | tuple[Result, ...]:
        """Return the results, computed with NumPy."""
        raise NotImplementedError(type(self).__name__)

    def forward(self, operands: tuple[Value, ...]) -> Value | None:
        """Return the operand that is the result, where the operation changes nothing."""
        return None

    def content(self, *operands: Content) -> Content | None:
        """Return what is known of the one result, given what is known of the operands.

        Called only for small results of which all operands are known. Elements are `int` or `Dim`,
        for booleans also `Condition`, for floats `Exact`. None says that nothing is known.
        """
        return None

    @property
    def title(self) -> str:
        """What texts and pictures call the operation."""
        return type(self).__name__

    def describe(self) -> str:
        """Return the title with the attributes, such as `Permute(axes=(1, 0))`."""
        shown = ", ".join(
            f"{f.name}={_text(getattr(self, f.name))}"
            for f in fields(self)
            if getattr(self, f.name) is not None
        )
        return f"{self.title}({shown})"


_O = TypeVar("_O", bound=Op)


def _text(x: Any) -> str:
    if isinstance(x, tuple):
        return "(" + ", ".join(map(_text, x)) + ")"
    return str(x)


def field_names(cls: type[Op]) -> tuple[str, ...]:
    """Return the names of the attributes of a kind of operation."""
    names = _FIELD_NAMES.get(cls)
    if names is None:
        names = _FIELD_NAMES[cls] = tuple(f.name for f in fields(cls))
    return names


_FIELD_NAMES: dict[type[Op], tuple[str, ...]] = {}


def _holds_dim(x: Any) -> bool:
    if isinstance(x, tuple):
        return any(map(_holds_dim, x))
    return isinstance(x, Dim)


def _map(x: Any, f: Callable[[Size], Size]) -> Any:
    if isinstance(x, tuple):
        return tuple(_map(y, f) for y in x)
    return f(x) if isinstance(x, Dim) else x


def map_op_sizes(op: _O, f: Callable[[Size], Size]) -> _O:
    """Return the operation with `f` applied to every symbolic size among its attributes."""
    changed = {}
    for name in field_names(type(op)):
        x = getattr(op, name)
        if _holds_dim(x):
            changed[name] = _map(x, f)
    return replace(op, **changed) if changed else op


def op_symbols(op: Op) -> frozenset[Symbol]:
    """Return the symbols that the attributes of an operation mention."""
    found: set[Symbol] = set()
    stack: list[Any] = [getattr(op, name) for name in field_names(type(op))]
    while stack:
        x = stack.pop()
        if isinstance(x, tuple):
            stack.extend(x)
        elif isinstance(x, Dim):
            found |= symbols_of(x)
    return frozenset(found)
