"""Types of values: tensors with symbolic shapes, and ONNX's sequences, optionals and maps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from kn_graph.dim import Size, size_prod
from kn_graph.dtype import DType
from kn_graph.errors import ShapeError

__all__ = [
    "MapType",
    "NoType",
    "OptionalType",
    "SequenceType",
    "Shape",
    "TensorType",
    "UnknownRankError",
    "UnrankedType",
    "ValueType",
    "format_shape",
    "map_type_sizes",
    "tensor_types_of",
]

Shape: TypeAlias = "tuple[Size, ...]"


def format_shape(shape: Shape) -> str:
    """Return a shape as text, such as `[batch, 3, 2*h]`."""
    return "[" + ", ".join(map(str, shape)) + "]"


@dataclass(frozen=True, slots=True)
class TensorType:
    """A tensor: element type and one size an axis, a number or a symbolic size."""

    dtype: DType
    shape: Shape

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def numel(self) -> Size:
        """Number of elements, possibly symbolic."""
        return size_prod(self.shape)

    def __str__(self) -> str:
        """Return text such as `float32[batch, 10]`."""
        return f"{self.dtype}{format_shape(self.shape)}"


class UnknownRankError(ShapeError):
    """The shape of a tensor was asked for whose rank only shows at run time."""


@dataclass(frozen=True, slots=True)
class UnrankedType:
    """A tensor whose number of axes only shows at run time, such as an element of a sequence."""

    dtype: DType

    @property
    def shape(self) -> Shape:
        """Refuse: there is no shape.

        Raises:
            UnknownRankError: always.
        """
        raise UnknownRankError(
            "the rank of this tensor is only known at run time; "
            "load the model with input_shapes={...} so that it is known before"
        )

    @property
    def rank(self) -> int:
        """Refuse as `shape` does."""
        return len(self.shape)

    def __str__(self) -> str:
        """Return text such as `float32[...]`."""
        return f"{self.dtype}[...]"


@dataclass(frozen=True, slots=True)
class NoType(UnrankedType):
    """Of the elements of a container that is known to be empty; every tensor type includes it."""

    def __str__(self) -> str:
        """Return text such as `float32[none]`."""
        return f"{self.dtype}[none]"


@dataclass(frozen=True, slots=True)
class SequenceType:
    """A list of values of one type; at run time a Python list.

    Sizes in the type of the elements that mention data symbols differ from element to element.
    """

    elem: ValueType

    def __str__(self) -> str:
        """Return text such as `seq(float32[...])`."""
        return f"seq({self.elem})"


@dataclass(frozen=True, slots=True)
class OptionalType:
    """A value or nothing; at run time the value or None."""

    elem: ValueType

    def __str__(self) -> str:
        """Return text such as `optional(float32[2])`."""
        return f"optional({self.elem})"


@dataclass(frozen=True, slots=True)
class MapType:
    """A dictionary; at run time a Python dict."""

    key: DType
    value: ValueType

    def __str__(self) -> str:
        """Return text such as `map(int64, float32[])`."""
        return f"map({self.key}, {self.value})"


ValueType: TypeAlias = TensorType | UnrankedType | SequenceType | OptionalType | MapType


def map_type_sizes(t: ValueType, f: Callable[[Size], Size]) -> ValueType:
    """Return the type with `f` applied to every size in it."""
    if isinstance(t, TensorType):
        return TensorType(t.dtype, tuple(map(f, t.shape)))
    if isinstance(t, SequenceType):
        return SequenceType(map_type_sizes(t.elem, f))
    if isinstance(t, OptionalType):
        return OptionalType(map_type_sizes(t.elem, f))
    if isinstance(t, MapType):
        return MapType(t.key, map_type_sizes(t.value, f))
    return t


def tensor_types_of(t: ValueType) -> list[TensorType]:
    """Return the ranked tensor types inside a type (itself, or an element's)."""
    while not isinstance(t, (TensorType, UnrankedType)):
        t = t.value if isinstance(t, MapType) else t.elem
    return [t] if isinstance(t, TensorType) else []
