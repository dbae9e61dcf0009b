"""Scalar functions applied to every element, selection and conversion."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from kn_graph.cast import RoundMode, bit_cast_array, cast_array
from kn_graph.condition import Condition
from kn_graph.dtype import DType
from kn_graph.errors import DTypeError, ShapeError
from kn_graph.known import BINARY, COMPARE, UNARY, as_dtype
from kn_graph.op import Content, EvalContext, InferContext, Op
from kn_graph.scalar import evaluate_scalar, scalar_function
from kn_graph.types import Shape, TensorType, format_shape

if TYPE_CHECKING:
    from collections.abc import Callable

    from kn_graph.value import Value

__all__ = ["Binary", "BitCast", "Cast", "Compare", "Select", "Unary"]

Array = np.ndarray[Any, Any]
Params = tuple[tuple[str, float], ...]


def same_shape(ctx: InferContext, what: str, *shapes: Shape) -> None:
    """Require equal shapes: broadcasting is an operation of its own."""
    first = shapes[0]
    for other in shapes[1:]:
        if other == first:
            continue
        if len(other) != len(first):
            raise ShapeError(f"{what}: {format_shape(first)} against {format_shape(other)}")
        for axis, (a, b) in enumerate(zip(first, other, strict=True)):
            ctx.require_eq(a, b, f"{what} of equal shapes at axis {axis}")


@dataclass(frozen=True)
class Unary(Op):
    """A scalar function of one argument; see `kn_graph.scalar` for formulas and NaN rules.

    Shapes: any -> the same; predicates such as `isnan` give booleans.

    Attributes:
        fn: a row of the scalar table with one argument.
        params: its parameters by name, such as alpha.
    """

    fn: str
    params: Params = ()

    def infer(self, ctx: InferContext, x: TensorType) -> TensorType:
        """Keep the shape."""
        return TensorType(scalar_function(self.fn).result_type(x.dtype), x.shape)

    def eval(self, ctx: EvalContext, x: Array) -> Array:
        """Apply the row's formula."""
        return evaluate_scalar(self.fn, (x,), dict(self.params))

    def content(self, *operands: Content) -> Content | None:
        """Compute with what is known."""
        f = UNARY.get(self.fn)
        return None if f is None else _elementwise(f, operands)

    @property
    def title(self) -> str:
        """Return the function's name."""
        return self.fn

    def describe(self) -> str:
        """Return the function with its parameters."""
        return _call_text(self.fn, self.params)


@dataclass(frozen=True)
class Binary(Op):
    """A scalar function of two arguments of one element type.

    Integers wrap; integer division truncates toward zero.

    Shapes: two equal shapes -> the same.

    Attributes:
        fn: a row of the scalar table with two arguments that is no predicate.
        params: its parameters by name.
    """

    fn: str
    params: Params = ()

    def infer(self, ctx: InferContext, x: TensorType, y: TensorType) -> TensorType:
        """Require equal types."""
        dtype = scalar_function(self.fn).result_type(x.dtype, y.dtype)
        same_shape(ctx, self.fn, x.shape, y.shape)
        return TensorType(dtype, x.shape)

    def eval(self, ctx: EvalContext, x: Array, y: Array) -> Array:
        """Apply the row's formula."""
        return evaluate_scalar(self.fn, (x, y), dict(self.params))

    def content(self, *operands: Content) -> Content | None:
        """Compute with what is known."""
        f = BINARY.get(self.fn)
        return None if f is None else _elementwise(f, operands)

    @property
    def title(self) -> str:
        """Return the function's name."""
        return self.fn

    def describe(self) -> str:
        """Return the function with its parameters."""
        return _call_text(self.fn, self.params)


@dataclass(frozen=True)
class Compare(Op):
    """A comparison: eq, ne, lt, le, gt or ge. A NaN compares unequal and unordered.

    Shapes: two equal shapes -> bool of the same.
    """

    fn: str

    def infer(self, ctx: InferContext, x: TensorType, y: TensorType) -> TensorType:
        """Require equal types; strings compare for equality."""
        if x.dtype is not DType.STRING or y.dtype is not DType.STRING:
            scalar_function(self.fn).result_type(x.dtype, y.dtype)
        same_shape(ctx, self.fn, x.shape, y.shape)
        return TensorType(DType.BOOL, x.shape)

    def eval(self, ctx: EvalContext, x: Array, y: Array) -> Array:
        """Compare."""
        if x.dtype == object:
            return np.asarray((x == y) if self.fn == "eq" else (x != y), bool)
        return evaluate_scalar(self.fn, (x, y), {})

    def content(self, *operands: Content) -> Content | None:
        """Compare sizes, as far as it is known."""
        return _elementwise(COMPARE[self.fn], operands)

    @property
    def title(self) -> str:
        """Return the comparison's name."""
        return self.fn


@dataclass(frozen=True)
class Select(Op):
    """x where the condition holds, else y. Neither choice computes, so NaNs do not spread.

    Shapes: bool [..], x [..], y [..], all equal -> the same with x's element type.
    """

    def infer(self, ctx: InferContext, c: TensorType, x: TensorType, y: TensorType) -> TensorType:
        """Require a boolean condition and two equal types."""
        if c.dtype is not DType.BOOL:
            raise DTypeError(f"the condition must be bool, got {c.dtype}")
        if x.dtype is not y.dtype:
            raise DTypeError(f"the choices are {x.dtype} and {y.dtype}")
        same_shape(ctx, "select", x.shape, y.shape, c.shape)
        return x

    def eval(self, ctx: EvalContext, c: Array, x: Array, y: Array) -> Array:
        """Choose element by element."""
        return np.where(c, x, y)

    def content(self, *operands: Content) -> Content | None:
        """Choose where the condition is known, or both choices are the same."""

        def choose(c: Any, x: Any, y: Any) -> Any:
            if isinstance(c, Condition):
                return x if x == y else None
            return x if c else y

        return _elementwise(choose, operands)


@dataclass(frozen=True)
class Cast(Op):
    """Convert the element type, as ONNX Cast says.

    Floats to integers truncate toward zero; integers wrap; to bool: not zero; to float8 kinds
    overflow saturates if `saturate`; to float8e8m0 `round_mode` says how; strings parse and print
    as NumPy does.

    Shapes: unchanged.
    """

    dtype: DType
    saturate: bool = True
    round_mode: RoundMode = "up"

    def infer(self, ctx: InferContext, x: TensorType) -> TensorType:
        """Replace the element type."""
        return TensorType(self.dtype, x.shape)

    def eval(self, ctx: EvalContext, x: Array) -> Array:
        """Convert."""
        return cast_array(x, self.dtype, saturate=self.saturate, round_mode=self.round_mode)

    def content(self, *operands: Content) -> Content | None:
        """Keep sizes; as a truth one is `!= 0`."""
        return _elementwise(partial(as_dtype, self.dtype), operands)

    def forward(self, operands: tuple[Value, ...]) -> Value | None:
        """Return the operand when it has the type already."""
        return operands[0] if operands[0].dtype is self.dtype else None


@dataclass(frozen=True)
class BitCast(Op):
    """Reinterpret the bits of each element as another type of the same width.

    Shapes: unchanged.
    """

    dtype: DType

    def infer(self, ctx: InferContext, x: TensorType) -> TensorType:
        """Require equal widths."""
        if x.dtype.bits != self.dtype.bits or not x.dtype.bits:
            raise DTypeError(f"{x.dtype} and {self.dtype} differ in width")
        return TensorType(self.dtype, x.shape)

    def eval(self, ctx: EvalContext, x: Array) -> Array:
        """Reinterpret."""
        return bit_cast_array(x, self.dtype)

    def forward(self, operands: tuple[Value, ...]) -> Value | None:
        """Return the operand when it has the type already."""
        return operands[0] if operands[0].dtype is self.dtype else None


def _call_text(fn: str, params: Params) -> str:
    return fn + (f"({', '.join(f'{k}={v:g}' for k, v in params)})" if params else "")


def _elementwise(f: Callable[..., Any], operands: tuple[Content, ...]) -> Content | None:
    """Apply f to each element; None as soon as one result is unknown."""
    shape = operands[0].shape
    elements = [f(*args) for args in zip(*(c.ravel().tolist() for c in operands), strict=True)]
    if any(e is None for e in elements):
        return None
    out = np.empty(len(elements), object)
    out[:] = elements
    return out.reshape(shape)
