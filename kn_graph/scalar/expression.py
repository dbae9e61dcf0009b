"""Immutable expressions over primitives, written like mathematics.

```python
x = Arg(0)
silu = x / (1 + E.exp(-x))
evaluate(silu, [array])
```

An expression is a graph, not only a tree: an operand used twice is one object, computed once by
everything that walks it. All walks are iterative, so neither deep nor doubling expressions hurt.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kn_graph.dtype import DType, Kind
from kn_graph.errors import GraphError
from kn_graph.scalar.primitives import PRIMITIVES, Array, Primitive, widen

__all__ = [
    "Arg",
    "Call",
    "E",
    "Expression",
    "Literal",
    "Param",
    "common_type",
    "constant",
    "depth",
    "evaluate",
    "operation_counts",
    "postorder",
    "substitute",
]


class Expression:
    """A scalar value as a function of operands and parameters; see the module."""

    __slots__ = ()

    @property
    def operands(self) -> tuple[Expression, ...]:
        """The expressions that this one is computed from."""
        return ()

    def __add__(self, other: Operand) -> Expression:
        """Return `self + other`."""
        return E.add(self, other)

    def __radd__(self, other: Operand) -> Expression:
        """Return `other + self`."""
        return E.add(other, self)

    def __sub__(self, other: Operand) -> Expression:
        """Return `self - other`."""
        return E.sub(self, other)

    def __rsub__(self, other: Operand) -> Expression:
        """Return `other - self`."""
        return E.sub(other, self)

    def __mul__(self, other: Operand) -> Expression:
        """Return `self * other`."""
        return E.mul(self, other)

    def __rmul__(self, other: Operand) -> Expression:
        """Return `other * self`."""
        return E.mul(other, self)

    def __truediv__(self, other: Operand) -> Expression:
        """Return `self / other`."""
        return E.div(self, other)

    def __rtruediv__(self, other: Operand) -> Expression:
        """Return `other / self`."""
        return E.div(other, self)

    def __neg__(self) -> Expression:
        """Return `-self`."""
        return E.neg(self)

    def __abs__(self) -> Expression:
        """Return the absolute value."""
        return E.abs(self)

    def __lt__(self, other: Operand) -> Expression:
        """Return the comparison `self < other`, a bool expression."""
        return E.lt(self, other)

    def __le__(self, other: Operand) -> Expression:
        """Return the comparison `self <= other`, a bool expression."""
        return E.le(self, other)

    def __gt__(self, other: Operand) -> Expression:
        """Return the comparison `self > other`, as `other < self`."""
        return E.lt(other, self)

    def __ge__(self, other: Operand) -> Expression:
        """Return the comparison `self >= other`, as `other <= self`."""
        return E.le(other, self)

    def __and__(self, other: Operand) -> Expression:
        """Return the conjunction of two bool expressions."""
        return E.logical_and(self, other)

    def __or__(self, other: Operand) -> Expression:
        """Return the disjunction of two bool expressions."""
        return E.logical_or(self, other)

    def __invert__(self) -> Expression:
        """Return the negation of a bool expression."""
        return E.logical_not(self)

    def __bool__(self) -> bool:
        """Refuse: the value is not known, so `if`, `and` and chained comparisons cannot work."""
        raise GraphError("a scalar expression has no truth value; use E.select, & and |")


Operand = Expression | float


@dataclass(frozen=True, eq=False, slots=True)
class Arg(Expression):
    """The operand number `index`."""

    index: int


@dataclass(frozen=True, eq=False, slots=True)
class Param(Expression):
    """The parameter `name`: constant over an array, such as the alpha of an Elu."""

    name: str


@dataclass(frozen=True, eq=False, slots=True)
class Literal(Expression):
    """A number of the common type of the expression; a `bool` stays bool."""

    value: float | bool


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Call(Expression):
    """A primitive applied to expressions."""

    primitive: Primitive
    arguments: tuple[Expression, ...]

    def __post_init__(self) -> None:
        """Refuse a wrong number of operands."""
        if len(self.arguments) != self.primitive.arity:
            raise GraphError(
                f"{self.primitive.signature.owner} takes {self.primitive.arity} operand(s),"
                f" got {len(self.arguments)}"
            )

    @property
    def operands(self) -> tuple[Expression, ...]:
        """The expressions that this one is computed from."""
        return self.arguments

    def __repr__(self) -> str:
        """Return the root and the size; the whole would grow without bounds."""
        count = sum(operation_counts(self).values())
        return f"<expression {self.primitive.name}(...), {count} operation(s)>"


class _Builder:
    """Gives a function for every primitive: `E.exp(x)` is `Call(exp, (x,))`."""

    def __getattr__(self, name: str) -> Callable[..., Expression]:
        primitive = PRIMITIVES.get(name)
        if primitive is None:
            raise AttributeError(f"there is no primitive {name!r}")
        build = _build(primitive)
        setattr(self, name, build)
        return build


def _build(primitive: Primitive) -> Callable[..., Expression]:
    def build(*operands: Operand) -> Expression:
        return Call(primitive, tuple(as_expression(o) for o in operands))

    return build


E = _Builder()
"""Builds calls of primitives; numbers become literals."""


def as_expression(value: Operand) -> Expression:
    """Return `value`, or the literal of a number."""
    return value if isinstance(value, Expression) else Literal(value)


def postorder(root: Expression) -> Iterator[Expression]:
    """Yield every distinct expression under `root` once, operands before their users."""
    seen: set[int] = set()
    stack: list[tuple[Expression, bool]] = [(root, False)]
    while stack:
        node, expanded = stack.pop()
        if expanded:
            yield node
        elif id(node) not in seen:
            seen.add(id(node))
            stack.append((node, True))
            stack.extend((o, False) for o in reversed(node.operands))


def operation_counts(root: Expression) -> Counter[str]:
    """Count the calls under `root` by primitive name, shared ones once."""
    return Counter(n.primitive.name for n in postorder(root) if isinstance(n, Call))


def depth(root: Expression) -> int:
    """Return the length of the longest chain of calls."""
    depths: dict[int, int] = {}
    for node in postorder(root):
        below = max((depths[id(o)] for o in node.operands), default=0)
        depths[id(node)] = below + isinstance(node, Call)
    return depths[id(root)]


def substitute(
    root: Expression,
    arguments: Sequence[Operand] | None = None,
    params: Mapping[str, Operand] | None = None,
) -> Expression:
    """Replace operands and parameters.

    Args:
        root: the expression to rewrite.
        arguments: what `Arg(i)` becomes; None leaves them.
        params: what `Param(name)` becomes; a name that is missing stays.
    """
    params = params or {}
    done: dict[int, Expression] = {}
    for node in postorder(root):
        new = node
        if isinstance(node, Arg) and arguments is not None:
            new = as_expression(arguments[node.index])
        elif isinstance(node, Param) and node.name in params:
            new = as_expression(params[node.name])
        elif isinstance(node, Call):
            operands = tuple(done[id(o)] for o in node.arguments)
            if any(a is not b for a, b in zip(operands, node.arguments, strict=True)):
                new = Call(node.primitive, operands)
        done[id(node)] = new
    return done[id(root)]


def common_type(dtypes: Sequence[DType]) -> DType:
    """Return the type of the literals of an expression over such operands: the first non-bool."""
    return next((d for d in dtypes if d is not DType.BOOL), DType.BOOL)


def constant(value: float, dtype: DType) -> Array:
    """Convert a literal or parameter to a rank 0 array, as ONNX's CastLike does.

    Integers truncate and wrap, bool stays bool, and narrow floats are kept in float32: parameters
    are float32 in ONNX, and a function rounds once, at its end.
    """
    if isinstance(value, bool | np.bool_):
        return np.array(value, np.bool_)
    if not dtype.is_int:
        return np.array(float(value), widen(np.empty(0, dtype.numpy)).dtype)
    wrapped = int(value) & ((1 << dtype.bits) - 1)
    signed = dtype.kind is Kind.INT and wrapped >> (dtype.bits - 1)
    return widen(np.array(wrapped - (1 << dtype.bits) if signed else wrapped).astype(dtype.numpy))


def evaluate(
    root: Expression, arrays: Sequence[Any], params: Mapping[str, float] | None = None
) -> Array:
    """Compute an expression with NumPy, each shared part once.

    Narrow floats are computed in float32 and rounded once at the end.

    Args:
        root: the expression.
        arrays: the operands, which may broadcast.
        params: values of all parameters.

    Raises:
        DTypeError: a primitive does not take the types that reach it.
    """
    arrays = [np.asarray(a) for a in arrays]
    dtypes = [DType.from_numpy(a.dtype) for a in arrays]
    wide = [widen(a) for a in arrays]
    common = common_type(dtypes)
    values: dict[int, Array] = {}
    with np.errstate(all="ignore"):
        for node in postorder(root):
            if isinstance(node, Call):
                inputs = [values[id(o)] for o in node.arguments]
                values[id(node)] = node.primitive.numpy(*inputs)
            else:
                values[id(node)] = _leaf(node, wide, params or {}, common)
        result = values[id(root)]
        narrows = result.dtype != common.numpy and result.dtype != np.bool_
        return result.astype(common.numpy) if narrows else result


def _leaf(
    node: Expression, arrays: Sequence[Array], params: Mapping[str, float], common: DType
) -> Array:
    if isinstance(node, Arg):
        if node.index >= len(arrays):
            raise GraphError(f"the expression uses operand {node.index}, {len(arrays)} given")
        return arrays[node.index]
    if isinstance(node, Param):
        if node.name not in params:
            raise GraphError(f"parameter {node.name!r} of the expression has no value")
        return constant(params[node.name], common)
    assert isinstance(node, Literal)
    return constant(node.value, common)
