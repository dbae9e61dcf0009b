"""How large the elements of a tensor can be: a finite bound also says that none is a NaN."""

from __future__ import annotations

from collections.abc import Callable
from math import exp, inf, prod, sqrt
from typing import Any

import numpy as np

from kn_graph.dtype import DType
from kn_graph.ops.conv import Conv
from kn_graph.ops.elementwise import Binary, Cast, Select, Unary
from kn_graph.ops.gather import Gather
from kn_graph.ops.layout import Broadcast, Concat, Flip, Permute, Slice, View
from kn_graph.ops.matmul import MatMul
from kn_graph.ops.norm import Norm, Softmax
from kn_graph.ops.reduce import Reduce
from kn_graph.optimizer.constants import known_shape
from kn_graph.optimizer.editor import Editor
from kn_graph.optimizer.pattern import uniform_number
from kn_graph.types import TensorType
from kn_graph.value import Value

__all__ = ["magnitude"]

DEPTH = 20
MAX_BYTES = 65536

LARGEST = {DType.FLOAT16: 6e4, DType.BFLOAT16: 3e38, DType.FLOAT32: 3e38, DType.FLOAT64: 1e300}
"""Below the largest number of a type, with room for rounding."""

SAME = frozenset({"abs", "neg", "relu"})
WHOLE = frozenset({"round_even", "floor", "ceil", "trunc", "round"})
UNIT = frozenset({"sigmoid", "tanh", "erf", "hard_sigmoid"})
BELOW = frozenset({"gelu", "gelu_tanh", "quick_gelu", "silu", "hard_swish", "leaky_relu"})
"""Functions whose results are no larger than their operand, but for rounding."""


def magnitude(edit: Editor, v: Value) -> float:
    """Return a bound of the absolute values of a float tensor; inf where none is known.

    Where it is finite, no element is a NaN or an infinity.
    """
    return _Search(edit).bound(v, DEPTH)


class _Search:
    """Looks at each value once, however many paths lead to it."""

    def __init__(self, edit: Editor) -> None:
        self.edit = edit
        self._known: dict[Value, float] = {}

    def operands(self, v: Value) -> tuple[Value, ...]:
        return self.edit.operands(v.node)

    def bound(self, v: Value, depth: int) -> float:
        v = self.edit.resolve(v)
        if v not in self._known:
            self._known[v] = self._bound(v, depth)
        return self._known[v]

    def _bound(self, v: Value, depth: int) -> float:
        if not isinstance(v.type, TensorType) or v.dtype not in LARGEST or v.result or not depth:
            return inf
        rule = _RULES.get(type(v.node.op))
        found = _of_constant(v) if rule is None else rule(self, v, depth - 1)
        return found if found < LARGEST[v.dtype] else inf


def _of_constant(v: Value) -> float:
    a = v.constant
    if a is None or a.nbytes > MAX_BYTES:
        return inf
    largest = float(np.abs(a.astype(np.float64)).max(initial=0.0))
    return inf if np.isnan(largest) else largest


def _of_operands(s: _Search, v: Value, depth: int) -> list[float]:
    return [s.bound(x, depth) for x in s.operands(v)]


def _through(s: _Search, v: Value, depth: int) -> float:
    return s.bound(s.operands(v)[0], depth)


def _cast(s: _Search, v: Value, depth: int) -> float:
    (x,) = s.operands(v)
    if x.dtype.is_int or x.dtype is DType.BOOL:
        return 2.0 ** max(x.dtype.bits, 1)
    return s.bound(x, depth)


def _unary(s: _Search, v: Value, depth: int) -> float:
    op: Any = v.node.op
    m = _through(s, v, depth)
    if op.fn in SAME or m == inf:
        return m
    if op.fn in WHOLE:
        return m + 1
    if op.fn in UNIT:
        return 1.001
    if op.fn in BELOW and (op.fn != "leaky_relu" or abs(dict(op.params).get("alpha", 9)) <= 1):
        return m * 1.001
    return exp(m) if op.fn == "exp" and m < 80 else inf


def _binary(s: _Search, v: Value, depth: int) -> float:
    op: Any = v.node.op
    if op.fn == "div":
        divisor = uniform_number(s.edit, s.operands(v)[1])
        return _through(s, v, depth) / abs(divisor) if divisor else inf
    combine = _COMBINED.get(op.fn)
    return inf if combine is None else combine(*_of_operands(s, v, depth))


_COMBINED: dict[str, Callable[[float, float], float]] = {
    "add": lambda a, b: (a + b) * 1.001,
    "sub": lambda a, b: (a + b) * 1.001,
    "mul": lambda a, b: inf if inf in (a, b) else a * b * 1.001,
    "min": max,
    "max": max,
}


def _select(s: _Search, v: Value, depth: int) -> float:
    return max(s.bound(x, depth) for x in s.operands(v)[1:])


def _concat(s: _Search, v: Value, depth: int) -> float:
    operands = s.operands(v)
    return inf if len(operands) > 8 else max(s.bound(x, depth) for x in operands)


def _softmax(s: _Search, v: Value, depth: int) -> float:
    op: Any = v.node.op
    return inf if op.log or _through(s, v, depth) == inf else 1.001


def _norm(s: _Search, v: Value, depth: int) -> float:
    op: Any = v.node.op
    sizes = known_shape([v.shape[a] for a in op.axes])
    m = _through(s, v, depth)
    if sizes is None or m == inf or m * m * prod(sizes) > LARGEST[DType.FLOAT32]:
        return inf
    # the centred elements have a mean square of 1, but for an epsilon that keeps 0 from 0/0
    return 2 * sqrt(prod(sizes)) + 1 if op.epsilon > 0 else inf


def _reduce(s: _Search, v: Value, depth: int) -> float:
    op: Any = v.node.op
    (x,) = s.operands(v)
    sizes = known_shape([x.shape[a] for a in op.axes])
    if op.fn not in ("sum", "mean", "max", "min") or sizes is None or not prod(sizes):
        return inf
    m, n = s.bound(x, depth), prod(sizes)
    total = m * n * 1.001
    return m if op.fn in ("max", "min") or (op.fn == "mean" and total < 3e38) else total


def _product(s: _Search, v: Value, depth: int) -> float:
    x, y = s.operands(v)
    terms = y.shape[1:] if isinstance(v.node.op, Conv) else x.shape[-1:]
    sizes = known_shape(terms)
    if sizes is None:
        return inf
    a, b = s.bound(x, depth), s.bound(y, depth)
    return inf if inf in (a, b) else a * b * prod(sizes) * 1.01


_RULES: dict[type, Callable[[_Search, Value, int], float]] = {
    Cast: _cast,
    Unary: _unary,
    Binary: _binary,
    Select: _select,
    Concat: _concat,
    Softmax: _softmax,
    Norm: _norm,
    Reduce: _reduce,
    **dict.fromkeys((Conv, MatMul), _product),
    **dict.fromkeys((View, Broadcast, Permute, Slice, Flip, Gather), _through),
}
