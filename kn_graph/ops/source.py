"""Where values come from: inputs, constants, and numbers made of sizes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kn_graph.dim import Dim, Size
from kn_graph.dtype import DType, Kind
from kn_graph.errors import DTypeError, ShapeError
from kn_graph.op import Content, EvalContext, InferContext, Op
from kn_graph.types import TensorType, ValueType

__all__ = ["Constant", "Input", "ReadSizes", "Sizes", "constant_array", "scalar_array"]

MERGE_BYTES = 64 * 1024
"""Constants up to this size are equal when their bytes are; larger ones by where they are."""


@dataclass(frozen=True)
class Input(Op):
    """A value that the caller gives.

    Shapes: no operands -> the declared type.
    """

    name: str
    type: ValueType

    pure = False
    internal = True

    def infer(self, ctx: InferContext) -> ValueType:
        """Return the declared type."""
        return self.type

    def describe(self) -> str:
        """Return the name alone: the type stands beside it anyway."""
        return f"Input({self.name})"


@dataclass(frozen=True, eq=False)
class Constant(Op):
    """An array known when the graph is built.

    Equal constants are one node: by bytes up to 64 KiB (0.0 and -0.0 differ, a NaN equals itself),
    above by place in the model file, so that loading reads no memory-mapped weight.

    Shapes: no operands -> the array's.

    Attributes:
        array: the values, read-only.
        origin: (path, offset, length) where the array is a view of a mapped file.
    """

    array: np.ndarray[Any, Any]
    origin: tuple[str, int, int] | None = None
    _key: tuple[Any, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_key", self._identity())

    def _identity(self) -> tuple[Any, ...]:
        a = self.array
        shape = (a.dtype, a.shape)
        if self.origin is not None:
            return (*shape, self.origin)
        if a.dtype == object:
            return (*shape, tuple(a.ravel().tolist()))
        if a.nbytes <= MERGE_BYTES:
            return (*shape, a.tobytes())
        return (*shape, id(a))

    def __eq__(self, other: object) -> bool:
        """Compare dtype, shape and identity of the contents."""
        return isinstance(other, Constant) and self._key == other._key

    def __hash__(self) -> int:
        """Hash what `==` compares."""
        return hash(self._key)

    def infer(self, ctx: InferContext) -> TensorType:
        """Return the array's type."""
        return TensorType(DType.from_numpy(self.array.dtype), self.array.shape)

    def eval(self, ctx: EvalContext) -> np.ndarray[Any, Any]:
        """Return the array itself."""
        return self.array

    def describe(self) -> str:
        """Return the value of a scalar, or the size of more."""
        a = self.array
        return f"Constant({a.item()!r})" if a.ndim == 0 else f"Constant({a.nbytes} bytes)"


def constant_array(x: Any) -> np.ndarray[Any, Any]:
    """Return what a constant can hold: strings as objects, the byte order of this machine.

    Raises:
        DTypeError: there are objects that are no strings.
    """
    array = np.asarray(x)
    if array.dtype.kind in "US":
        return array.astype(object)
    if array.dtype == object:
        for element in array.flat:
            if not isinstance(element, str):
                raise DTypeError(f"a constant holds numbers or strings, got {element!r}")
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def scalar_array(number: Any, dtype: DType) -> np.ndarray[Any, Any]:
    """Return a number, or an array of them, in an element type; floats are rounded.

    Raises:
        DTypeError: the type has no such number.
    """
    given = constant_array(number)
    kind = DType.from_numpy(given.dtype).kind
    if kind is dtype.kind is Kind.STRING:
        return given
    real = kind not in (Kind.STRING, Kind.COMPLEX) and dtype.kind is not Kind.STRING
    if real or kind is dtype.kind:
        with np.errstate(all="ignore"):
            array = given.astype(dtype.numpy)
        inexact = dtype.is_float or dtype.kind is Kind.COMPLEX
        if inexact or array.tolist() == given.tolist():
            return array
    raise DTypeError(f"{number!r} is no {dtype}")


@dataclass(frozen=True)
class Sizes(Op):
    """An integer tensor whose elements are sizes: the value of ONNX Shape and its arithmetic.

    Shapes: no operands -> `shape`.

    Attributes:
        values: the elements in row-major order.
        shape: the tensor's own shape.
        dtype: an integer type.
    """

    values: tuple[Size, ...]
    shape: tuple[int, ...]
    dtype: DType = DType.INT64

    def infer(self, ctx: InferContext) -> TensorType:
        """Return dtype and shape as given."""
        return TensorType(self.dtype, self.shape)

    def eval(self, ctx: EvalContext) -> np.ndarray[Any, Any]:
        """Return the numbers of the sizes; they wrap as the arithmetic of the tensor would."""
        half = 1 << 63
        numbers = [(n + half) % (2 * half) - half for n in ctx.sizes(self.values)]
        return np.array(numbers, np.int64).astype(self.dtype.numpy).reshape(self.shape)

    def content(self, *operands: Content) -> Content:
        """Return the sizes."""
        out = np.empty(len(self.values), object)
        out[:] = self.values
        return out.reshape(self.shape)


@dataclass(frozen=True)
class ReadSizes(Op):
    """Bind data symbols to the elements of an integer tensor: sizes computed at run time.

    Views, slices and the like stay static in terms of symbols; this is where the numbers come from.

    Shapes: integer [n] with n = len(symbols) -> the same tensor.
    Raises at run time where an element is negative.

    Attributes:
        symbols: bare data symbols, in order.
    """

    symbols: tuple[Dim, ...]

    pure = False
    internal = True

    def infer(self, ctx: InferContext, x: TensorType) -> TensorType:
        """Return the operand's type."""
        if not x.dtype.is_int:
            raise DTypeError(f"sizes are read from integers, got {x.dtype}")
        if x.shape != (len(self.symbols),):
            raise ShapeError(f"expected {len(self.symbols)} sizes, got a tensor {x}")
        return x

    def eval(self, ctx: EvalContext, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Bind the symbols and return the operand."""
        for dim, number in zip(self.symbols, x.tolist(), strict=True):
            symbol = dim.as_symbol
            assert symbol is not None
            ctx.bind(symbol, number)
        return x
