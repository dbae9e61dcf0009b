"""Arithmetic read as polynomials: what is left of `0.5 * x * (1 + t)` when its order is forgotten.

Exporters write one formula in many orders. A polynomial in a few given values, with constants as
coefficients, is the same for all of them:

```python
found = polynomial(edit, v, (x, t))     # {(1, 0): 0.5, (1, 1): 0.5}, or None
```
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from kn_graph.dtype import DType
from kn_graph.op import Op
from kn_graph.ops.elementwise import Binary, Unary
from kn_graph.optimizer.editor import Editor
from kn_graph.optimizer.pattern import uniform_number
from kn_graph.value import Node, Value

__all__ = ["FLOATS", "Polynomial", "close", "function", "polynomial", "scaled_values"]

Powers = tuple[int, ...]
Terms = dict[Powers, float]

MAX_DEGREE = 4
MAX_DEPTH = 8

TOLERANCES = {
    DType.FLOAT64: 1e-15,
    DType.FLOAT32: 5e-7,
    DType.FLOAT16: 2e-3,
    DType.BFLOAT16: 1.6e-2,
}
"""How far a product of a few constants may be off that were each rounded to the type."""

FLOATS = frozenset(TOLERANCES)
"""Element types whose formulas are recognised."""


@dataclass(frozen=True)
class Polynomial:
    """A polynomial in some values.

    Attributes:
        terms: {power of each value: coefficient}; the constant term is left out where it is 0.
        nodes: the arithmetic, without the values themselves and without constants.
    """

    terms: Mapping[Powers, float]
    nodes: tuple[Node, ...]

    def equals(self, wanted: Mapping[Powers, float], dtype: DType) -> bool:
        """Return whether it is a polynomial whose constants were rounded to a type."""
        return self.terms.keys() == wanted.keys() and all(
            close(c, wanted[p], dtype) for p, c in self.terms.items()
        )


def close(number: float, wanted: float, dtype: DType) -> bool:
    """Return whether a number is another one that was rounded to a type."""
    return abs(number - wanted) <= TOLERANCES.get(dtype, 0.0) * abs(wanted)


def function(op: Op) -> str:
    """Return the scalar function of an operation, '' where it is none."""
    return op.fn if isinstance(op, (Unary, Binary)) else ""


def polynomial(edit: Editor, v: Value, values: Sequence[Value]) -> Polynomial | None:
    """Return a value as a polynomial in others, where it is one.

    Coefficients are uniform constants. A coefficient that cancels to 0 makes it none: what it
    belonged to may be NaN.
    """
    nodes: dict[Node, None] = {}
    terms = _expand(edit, v, tuple(values), nodes, MAX_DEPTH)
    if terms is None:
        return None
    constant = (0,) * len(values)
    if terms.get(constant) == 0:
        del terms[constant]
    if not terms or 0 in terms.values():
        return None
    return Polynomial(terms, tuple(nodes))


def _expand(
    edit: Editor, v: Value, values: tuple[Value, ...], nodes: dict[Node, None], depth: int
) -> Terms | None:
    if v in values:
        return {tuple(int(v is w) for w in values): 1.0}
    number = uniform_number(edit, v)
    if number is not None:
        return {(0,) * len(values): number}
    op = v.node.op
    if depth == 0 or not isinstance(op, (Unary, Binary)) or op.fn not in _ARITHMETIC:
        return None
    nodes[v.node] = None
    parts: list[Terms] = []
    for w in edit.operands(v.node):
        part = _expand(edit, w, values, nodes, depth - 1)
        if part is None:
            return None
        parts.append(part)
    return _combined(op, parts)


_LINEAR = frozenset({"add", "sub", "mul", "div", "neg", "affine"})
_ARITHMETIC = _LINEAR | {"pow", "square"}


def _combined(op: Unary | Binary, parts: Sequence[Terms]) -> Terms | None:
    x, fn = parts[0], op.fn
    if fn == "neg":
        return _times(x, -1.0)
    if fn == "square":
        return _product(x, x)
    if fn == "affine":
        params, constant = dict(op.params), (0,) * len(next(iter(x)))
        return _sum(_times(x, params.get("alpha", 1.0)), {constant: params.get("beta", 0.0)})
    y = parts[1]
    if fn in ("add", "sub"):
        return _sum(x, y if fn == "add" else _times(y, -1.0))
    if fn == "mul":
        return _product(x, y)
    number = _constant(y)
    if number is None:
        return None
    if fn == "div":
        return _times(x, 1 / number) if number else None
    return _power(x, number)


def _constant(terms: Terms) -> float | None:
    (powers,) = terms if len(terms) == 1 else (None,)
    return terms[powers] if powers is not None and not any(powers) else None


def _times(x: Terms, factor: float) -> Terms:
    return {p: c * factor for p, c in x.items()}


def _sum(x: Terms, y: Terms) -> Terms:
    out = dict(x)
    for powers, c in y.items():
        out[powers] = out.get(powers, 0.0) + c
    return out


def _product(x: Terms, y: Terms) -> Terms | None:
    out: Terms = {}
    for p, c in x.items():
        for q, d in y.items():
            powers = tuple(a + b for a, b in zip(p, q, strict=True))
            if sum(powers) > MAX_DEGREE:
                return None
            out[powers] = out.get(powers, 0.0) + c * d
    return out


def _power(x: Terms, exponent: float) -> Terms | None:
    if exponent not in (1, 2, 3):
        return None
    out: Terms | None = x
    for _ in range(int(exponent) - 1):
        out = None if out is None else _product(out, x)
    return out


def scaled_values(edit: Editor, v: Value) -> Iterator[Value]:
    """Yield a value, then what it is a linear function of with uniform constants."""
    while True:
        yield v
        op = v.node.op
        if not isinstance(op, (Unary, Binary)) or op.fn not in _LINEAR:
            return
        rest = [w for w in edit.operands(v.node) if uniform_number(edit, w) is None]
        if len(rest) != 1 or (op.fn == "div" and rest[0] is not edit.operands(v.node)[0]):
            return
        (v,) = rest
