"""Derivatives of scalar functions, from their expressions over primitives.

Where an expression has a kink, its derivative is the one to the right: consistent throughout, so
that kinks which cancel, such as those of |x| in the sigmoid, cancel here too. A few functions have
a derivative of their own at a kink, by custom: 0 for relu and abs, halves for max and min.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from kn_graph.dtype import DType
from kn_graph.scalar import scalar_function
from kn_graph.scalar.expression import (
    Arg,
    Call,
    E,
    Expression,
    Literal,
    Param,
    postorder,
)

if TYPE_CHECKING:
    from kn_graph.graph import Graph
    from kn_graph.value import Value

__all__ = ["build", "derivative", "partial_derivative"]

_Rule = Callable[..., "Expression | None"]


def _one_sided(
    x: Expression, negative: Expression, positive: Expression, tie: Expression
) -> Expression:
    return E.select(x < 0, negative, E.select(x > 0, positive, tie))


def _larger(a: Expression, b: Expression, da: Expression, db: Expression) -> Expression:
    return _one_sided(a - b, db, da, E.max(da, db))


def _smaller(a: Expression, b: Expression, da: Expression, db: Expression) -> Expression:
    return _one_sided(a - b, da, db, E.min(da, db))


def _power(out: Expression, a: Expression, b: Expression) -> tuple[Expression, Expression]:
    """The exponent 0 leaves nothing of a, and the base 0 nothing of b."""
    by_base = E.select(E.eq(b, 0), 0, b * E.pow(a, b - 1))
    by_exponent = E.select(E.eq(a, 0) & (b >= 0), 0, out * E.log(a))
    return by_base, by_exponent


# by primitive: the factors that the derivatives of the operands are multiplied with
_FACTORS: Mapping[str, Callable[..., tuple[Expression | float | None, ...]]] = {
    "add": lambda out, a, b: (1.0, 1.0),
    "sub": lambda out, a, b: (1.0, -1.0),
    "mul": lambda out, a, b: (b, a),
    "div": lambda out, a, b: (1 / b, -out / b),
    "mod": lambda out, a, b: (1.0, -E.floor(a / b)),
    "fmod": lambda out, a, b: (1.0, -E.trunc(a / b)),
    "pow": _power,
    "fma": lambda out, a, b, c: (b, a, 1.0),
    "neg": lambda out, a: (-1.0,),
    "exp": lambda out, a: (out,),
    "log": lambda out, a: (1 / a,),
    "log1p": lambda out, a: (1 / (1 + a),),
    "expm1": lambda out, a: (out + 1,),
    "sqrt": lambda out, a: (0.5 / out,),
    "erf": lambda out, a: (2 / math.sqrt(math.pi) * E.exp(-(a * a)),),
    "sin": lambda out, a: (E.cos(a),),
    "cos": lambda out, a: (-E.sin(a),),
    "tan": lambda out, a: (1 + out * out,),
    "asin": lambda out, a: (1 / E.sqrt((1 - a) * (1 + a)),),
    "acos": lambda out, a: (-1 / E.sqrt((1 - a) * (1 + a)),),
    "atan": lambda out, a: (1 / (1 + a * a),),
    "sinh": lambda out, a: (E.cosh(a),),
    "cosh": lambda out, a: (E.sinh(a),),
    "tanh": lambda out, a: (1 - out * out,),
    "asinh": lambda out, a: (1 / E.sqrt(a * a + 1),),
    "acosh": lambda out, a: (1 / (E.sqrt(a - 1) * E.sqrt(a + 1)),),
    "atanh": lambda out, a: (1 / ((1 - a) * (1 + a)),),
    **{n: lambda out, a: (None,) for n in ("sign", "floor", "ceil", "trunc", "round_even")},
}

# by primitive: the derivative where it is no sum of factors times derivatives
_KINKS: Mapping[str, _Rule] = {
    "abs": lambda a, da: _one_sided(a, -da, da, E.abs(da)),
    "max": _larger,
    "min": _smaller,
}

# by row: the partial derivatives that custom gives it, where the expression has a kink
_CUSTOM: Mapping[str, tuple[Expression, ...]] = {
    "abs": (E.sign(Arg(0)),),
    "relu": (E.select(Arg(0) > 0, 1, 0),),
    "max": (
        _one_sided(Arg(0) - Arg(1), Literal(0.0), Literal(1.0), Literal(0.5)),
        _one_sided(Arg(0) - Arg(1), Literal(1.0), Literal(0.0), Literal(0.5)),
    ),
    "min": (
        _one_sided(Arg(0) - Arg(1), Literal(1.0), Literal(0.0), Literal(0.5)),
        _one_sided(Arg(0) - Arg(1), Literal(0.0), Literal(1.0), Literal(0.5)),
    ),
}


def partial_derivative(name: str, index: int) -> Expression | None:
    """Return the derivative of a row of the scalar table by one operand; None where it is 0.

    Args:
        name: the row.
        index: the operand.

    Raises:
        KeyError: the function has a primitive without a derivative, such as one of bits.
    """
    if name in _CUSTOM:
        return _CUSTOM[name][index]
    return derivative(scalar_function(name).expression, index)


def derivative(root: Expression, index: int) -> Expression | None:
    """Return the derivative of an expression by `Arg(index)`; None where it does not depend on it.

    Raises:
        KeyError: it does so by a primitive without a derivative.
    """
    found: dict[int, Expression | None] = {}
    for node in postorder(root):
        if isinstance(node, Call):
            found[id(node)] = _of_call(node, [found[id(a)] for a in node.arguments])
        else:
            own = isinstance(node, Arg) and node.index == index
            found[id(node)] = Literal(1.0) if own else None
    return found[id(root)]


def _of_call(node: Call, inner: list[Expression | None]) -> Expression | None:
    name, args = node.primitive.name, node.arguments
    if all(d is None for d in inner) or node.primitive.signature.gives_bool:
        return None
    if name == "select":
        return E.select(args[0], *(0 if d is None else d for d in inner[1:]))
    if name in _KINKS:
        return _KINKS[name](*args, *(Literal(0.0) if d is None else d for d in inner))
    total: Expression | None = None
    for factor, d in zip(_FACTORS[name](node, *args), inner, strict=True):
        if factor is not None and d is not None:
            term = _times(factor, d)
            total = term if total is None else total + term
    return total


def _times(factor: Expression | float, d: Expression) -> Expression:
    if isinstance(d, Literal) and d.value == 1:
        return factor if isinstance(factor, Expression) else Literal(factor)
    return d * factor


def build(
    g: Graph, root: Expression, operands: tuple[Value, ...], params: Mapping[str, float]
) -> Value:
    """Add the nodes that compute an expression.

    Args:
        g: the graph of the operands.
        root: the expression.
        operands: what `Arg(i)` stands for: tensors of one shape and float type.
        params: values of its parameters.
    """
    dtype = operands[0].dtype
    values: dict[int, Value] = {}
    for node in postorder(root):
        if isinstance(node, Call):
            values[id(node)] = _apply(
                g, node.primitive.name, [values[id(a)] for a in node.arguments]
            )
        elif isinstance(node, Arg):
            values[id(node)] = operands[node.index]
        else:
            number = params[node.name] if isinstance(node, Param) else node.value  # type: ignore[attr-defined]
            is_bool = isinstance(number, bool)
            values[id(node)] = g.scalar(number, DType.BOOL if is_bool else dtype)
    return values[id(root)]


def _apply(g: Graph, name: str, xs: list[Value]) -> Value:
    if name == "select":
        return g.select(xs[0], xs[1], xs[2])
    if name == "fma":
        return xs[0] * xs[1] + xs[2]
    if len(xs) == 1:
        return g.unary(name, xs[0])
    compare = name in ("eq", "lt", "le")
    return g.compare(name, xs[0], xs[1]) if compare else g.binary(name, xs[0], xs[1])
