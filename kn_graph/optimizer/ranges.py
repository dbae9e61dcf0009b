"""What is known of the numbers in a tensor without running."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np

from kn_graph.dtype import Kind
from kn_graph.ops.elementwise import Binary, Cast, Select, Unary
from kn_graph.ops.layout import Broadcast, Concat, Flip, Permute, Slice, View
from kn_graph.ops.norm import Softmax
from kn_graph.ops.pool import Pool
from kn_graph.ops.reduce import Reduce
from kn_graph.optimizer.editor import Editor
from kn_graph.types import TensorType
from kn_graph.value import Value

__all__ = ["ANY", "Range", "value_range"]

DEPTH = 6
MAX_BYTES = 65536


@dataclass(frozen=True)
class Range:
    """Bounds of all elements but NaNs, which may be among them.

    Attributes:
        low: no element is smaller.
        high: no element is larger.
    """

    low: float
    high: float


ANY = Range(-inf, inf)
POSITIVE = Range(0.0, inf)
UNIT = Range(0.0, 1.0)

UNARY = {
    "abs": POSITIVE,
    "erf": Range(-1.0, 1.0),
    "exp": POSITIVE,
    "hard_sigmoid": UNIT,
    "relu": POSITIVE,
    "sigmoid": UNIT,
    "softplus": POSITIVE,
    "sqrt": POSITIVE,
    "square": POSITIVE,
    "tanh": Range(-1.0, 1.0),
}
"""Of functions of floats, rounded."""

KEEPS = frozenset({"floor", "ceil", "trunc", "round_even"})
"""Functions that go no further than the next integer, so that whole bounds stay."""


def value_range(edit: Editor, v: Value, depth: int = DEPTH) -> Range:
    """Return bounds of a tensor of floats or integers: sound, not always tight."""
    v = edit.resolve(v)
    rule = _RULES.get(type(v.node.op))
    if rule is not None and depth and not v.result:
        return rule(edit, v, depth - 1)
    return _of_constant(v)


def _of_constant(v: Value) -> Range:
    a = v.constant
    if a is None or a.size == 0 or a.nbytes > MAX_BYTES or a.dtype.kind in "cO":
        return Range(0, inf) if _unsigned(v) else ANY
    if a.dtype.kind in "iub":
        return Range(int(a.min()), int(a.max()))
    if a.size == 1:
        number = float(a.item())
        return ANY if np.isnan(number) else Range(number, number)
    wide = a.astype(np.float64)
    seen = wide[~np.isnan(wide)]
    return Range(float(seen.min()), float(seen.max())) if seen.size else ANY


def _unsigned(v: Value) -> bool:
    return isinstance(v.type, TensorType) and v.type.dtype.kind is Kind.UINT


def _through(edit: Editor, v: Value, depth: int) -> Range:
    return value_range(edit, edit.operands(v.node)[0], depth)


def _unary(edit: Editor, v: Value, depth: int) -> Range:
    op: Any = v.node.op
    if op.fn in KEEPS:
        inner = _through(edit, v, depth)
        return Range(np.floor(inner.low), np.ceil(inner.high))
    if not v.dtype.is_float:
        # the absolute value of the smallest integer is itself
        return POSITIVE if op.fn == "relu" or _unsigned(v) else ANY
    return UNARY.get(op.fn, ANY)


def _extreme(edit: Editor, v: Value, depth: int) -> Range:
    op: Any = v.node.op
    a, b = (value_range(edit, x, depth) for x in edit.operands(v.node))
    choose = min if op.fn == "min" else max
    return Range(choose(a.low, b.low), choose(a.high, b.high))


def _sum(edit: Editor, v: Value, depth: int) -> Range:
    if not v.dtype.is_float:
        return ANY  # integers wrap
    x, y = edit.operands(v.node)
    low = value_range(edit, x, depth).low
    if low < 0:
        return ANY
    other = value_range(edit, y, depth).low
    return Range(max(low, other), inf) if other >= 0 else ANY


def _quotient(edit: Editor, v: Value, depth: int) -> Range:
    if not v.dtype.is_float:
        return ANY
    x, y = edit.operands(v.node)
    if value_range(edit, x, depth).low < 0:
        return ANY
    # a range from 0 on has -0 in it, by which a quotient is negative
    return POSITIVE if value_range(edit, y, depth).low > 0 else ANY


def _product(edit: Editor, v: Value, depth: int) -> Range:
    x, y = edit.operands(v.node)
    if not v.dtype.is_float:
        return ANY
    return POSITIVE if x is y else _positive_of_positives(edit, v, depth)


def _positive_of_positives(edit: Editor, v: Value, depth: int) -> Range:
    if not v.dtype.is_float:
        return ANY  # integers wrap
    positive = all(value_range(edit, x, depth).low >= 0 for x in edit.operands(v.node))
    return POSITIVE if positive else ANY


_BINARY: dict[str, Callable[[Editor, Value, int], Range]] = {
    "min": _extreme,
    "max": _extreme,
    "mul": _product,
    "add": _sum,
    "div": _quotient,
    "pow": _positive_of_positives,
}


def _binary(edit: Editor, v: Value, depth: int) -> Range:
    op: Any = v.node.op
    rule = _BINARY.get(op.fn)
    return ANY if rule is None else rule(edit, v, depth)


def _union(edit: Editor, v: Value, depth: int) -> Range:
    operands = edit.operands(v.node)
    choices = operands[1:] if isinstance(v.node.op, Select) else operands
    if len(choices) > 8:
        return ANY
    ranges = [value_range(edit, x, depth) for x in choices]
    return Range(min(r.low for r in ranges), max(r.high for r in ranges))


def _cast(edit: Editor, v: Value, depth: int) -> Range:
    (x,) = edit.operands(v.node)
    if not (x.dtype.is_float and v.dtype.is_float):
        return ANY
    return POSITIVE if value_range(edit, x, depth).low >= 0 else ANY


def _reduce(edit: Editor, v: Value, depth: int) -> Range:
    op: Any = v.node.op
    if op.fn not in ("sum", "mean", "prod") or not v.dtype.is_float:
        return ANY
    return _positive_of_positives(edit, v, depth)


def _softmax(edit: Editor, v: Value, depth: int) -> Range:
    op: Any = v.node.op
    return Range(-inf, 0.0) if op.log else UNIT


def _pool(edit: Editor, v: Value, depth: int) -> Range:
    op: Any = v.node.op
    return _positive_of_positives(edit, v, depth) if op.fn != "max" else ANY


_RULES: dict[type, Callable[[Editor, Value, int], Range]] = {
    Unary: _unary,
    Binary: _binary,
    Cast: _cast,
    Reduce: _reduce,
    Softmax: _softmax,
    Pool: _pool,
    **dict.fromkeys((View, Broadcast, Permute, Slice, Flip), _through),
    **dict.fromkeys((Select, Concat), _union),
}
