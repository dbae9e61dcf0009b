"""Scalar functions applied to every element, selection and conversion."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from kn_graph.cast import RoundMode, bit_cast_array, cast_array
from kn_graph.condition import Condition, size_eq, size_ge, truth_not
from kn_graph.dim import Dim, size_max, size_min
from kn_graph.dim_facts import provably_ge
from kn_graph.dtype import DType
from kn_graph.errors import DTypeError, ShapeError
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
        """Negate numbers and truths."""
        f = _UNARY_CONTENT.get(self.fn)
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
        """Do integer arithmetic on sizes."""
        f = _BINARY_CONTENT.get(self.fn)
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
        return _elementwise(_COMPARE_CONTENT[self.fn], operands)

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
        """Keep sizes among integers; a size as a truth is `!= 0`."""
        to_bool = self.dtype is DType.BOOL

        def convert(x: Any) -> Any:
            if isinstance(x, Condition):
                return x if to_bool else None
            if not to_bool:
                return int(x) if isinstance(x, bool) else x
            return truth_not(size_eq(x, 0)) if isinstance(x, Dim) else bool(x)

        return _elementwise(convert, operands)

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


# ---- what is known of sizes -----------------------------------------------------------------


def _elementwise(f: Callable[..., Any], operands: tuple[Content, ...]) -> Content | None:
    """Apply f to each element; None as soon as one result is unknown."""
    shape = operands[0].shape
    elements = [f(*args) for args in zip(*(c.ravel().tolist() for c in operands), strict=True)]
    if any(e is None for e in elements):
        return None
    out = np.empty(len(elements), object)
    out[:] = elements
    return out.reshape(shape)


def _sizes(f: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Guard integer arithmetic against truths."""

    def guarded(x: Any, y: Any) -> Any:
        if isinstance(x, (bool, Condition)) or isinstance(y, (bool, Condition)):
            return None
        return f(x, y)

    return guarded


def _div(x: Any, y: Any) -> Any:
    if isinstance(x, int) and isinstance(y, int):
        if y == 0:
            return None
        q = abs(x) // abs(y)
        return q if (x >= 0) == (y > 0) else -q
    # floor and truncation agree only where the signs are proven
    return x // y if provably_ge(x, 0) and provably_ge(y, 1) else None


def _mod(x: Any, y: Any) -> Any:
    if isinstance(y, int):
        return x % y if y else None
    return x % y if provably_ge(y, 1) else None


def _logical(when_known: bool) -> Callable[[Any, Any], Any]:
    """`and` (decided by False) or `or` (decided by True) of truths."""

    def combine(x: Any, y: Any) -> Any:
        for a, b in ((x, y), (y, x)):
            if isinstance(a, bool):
                return a if a is when_known else b
        return x if x == y else None

    return combine


_UNARY_CONTENT: dict[str, Callable[[Any], Any]] = {
    "neg": lambda x: -x,
    "logical_not": truth_not,
    "abs": lambda x: abs(x) if isinstance(x, int) else (x if provably_ge(x, 0) else None),
}
_BINARY_CONTENT: dict[str, Callable[[Any, Any], Any]] = {
    "add": _sizes(lambda x, y: x + y),
    "sub": _sizes(lambda x, y: x - y),
    "mul": _sizes(lambda x, y: x * y),
    "div": _sizes(_div),
    "mod": _sizes(_mod),
    "min": _sizes(size_min),
    "max": _sizes(size_max),
    "logical_and": _logical(False),
    "logical_or": _logical(True),
}


def _equal(x: Any, y: Any) -> Any:
    if isinstance(x, (bool, Condition)) or isinstance(y, (bool, Condition)):
        return x is y if isinstance(x, bool) and isinstance(y, bool) else None
    return size_eq(x, y)


def _not_known(t: Any) -> Any:
    return None if t is None else truth_not(t)


_COMPARE_CONTENT: dict[str, Callable[[Any, Any], Any]] = {
    "eq": _equal,
    "ne": lambda x, y: _not_known(_equal(x, y)),
    "ge": _sizes(size_ge),
    "gt": _sizes(lambda x, y: size_ge(x, y + 1)),
    "le": _sizes(lambda x, y: size_ge(y, x)),
    "lt": _sizes(lambda x, y: size_ge(y, x + 1)),
}
