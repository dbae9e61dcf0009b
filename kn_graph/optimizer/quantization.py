"""Recognises what `graph.quantize` and `graph.dequantize` are composed of.

```
dequantize:  (float(q) - zero) * scale
quantize:    integer(min(max(round_even(x / scale) + zero, low), high))
```

The maximum may be a choice (`r > low ? r : low`), which turns a NaN into `low`. Scales and zero
points are constants; between a dequantized tensor and its reader may be operations that only move
elements, which then move the integers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kn_graph.builder.quantize import integer_range
from kn_graph.cast import cast_array
from kn_graph.dtype import DType
from kn_graph.graph import Graph
from kn_graph.op import Op
from kn_graph.ops.elementwise import Binary, Cast, Compare, Select, Unary
from kn_graph.ops.gather import Gather
from kn_graph.ops.layout import Broadcast, Flip, Pad, Permute, Slice, View
from kn_graph.ops.pool import Pool
from kn_graph.optimizer.clamps import clamp_at
from kn_graph.optimizer.compact import through_layout
from kn_graph.optimizer.constants import constant_behind, known_shape
from kn_graph.optimizer.editor import Editor
from kn_graph.optimizer.pattern import uniform_number
from kn_graph.optimizer.polynomial import function
from kn_graph.value import Node, Value

__all__ = [
    "LARGEST",
    "SCALE_LIMIT",
    "Dequantized",
    "Guard",
    "Quantized",
    "codes_behind",
    "cut",
    "dequantized",
    "guard_at",
    "has_codes",
    "parameters",
    "quantized",
    "uniform",
    "usable_scale",
]

Array = np.ndarray[Any, Any]

CHAIN = 16
"""Longer chains of operations that move elements are not looked through."""

LARGEST = 1 << 16
"""Elements of a scale or zero point; larger constants are weights."""

QUANTIZING = 8
"""Operations from a quotient to integers, at most."""

CUTTING = frozenset({"min", "max", "relu", "add"})

SCALE_LIMIT = 1e30
"""With larger scales a dequantized tensor may overflow."""


# ---- constants ------------------------------------------------------------------------------


def parameters(edit: Editor, v: Value) -> Array | None:
    """Return the compact array of a constant scale or zero point behind layouts and conversions."""
    chain: list[Node] = []
    while isinstance(v.node.op, (View, Broadcast, Permute, Flip, Cast)):
        if len(chain) == CHAIN:
            return None
        chain.append(v.node)
        (v,) = edit.operands(v.node)
    a, before = v.constant, v.shape
    if a is None or a.size > LARGEST:
        return None
    for node in reversed(chain):
        if isinstance(node.op, Cast):
            a = cast_array(a, node.op.dtype)
        elif not isinstance(node.op, Broadcast):
            a = through_layout(node, a, before)
        if a is None:
            return None
        before = node.results[0].shape
    return uniform(a)


def uniform(a: Array) -> Array:
    """Return a compact array with its size 1 along all axes where all elements are equal."""
    if a.size > 1 and (a == a.reshape(-1)[0]).all():
        return a[(slice(0, 1),) * a.ndim]
    return a


def usable_scale(scale: Array) -> bool:
    """Return whether scales are positive, finite and not denormal in float32."""
    tiny = np.finfo(np.float32).tiny
    with np.errstate(all="ignore"):
        return bool(((scale >= tiny) & np.isfinite(scale.astype(np.float32))).all())


def _whole(a: Array | None) -> Array | None:
    """Return numbers as int64, if they are whole."""
    if a is None or not np.isfinite(a).all() or (a != np.rint(a)).any():
        return None
    return a.astype(np.int64)


def has_codes(graph: Graph) -> bool:
    """Return whether integers of few bits are converted to floats anywhere."""
    return any(
        isinstance(n.op, Cast)
        and n.op.dtype.is_float
        and n.operands[0].dtype.is_int
        and n.operands[0].dtype.bits <= 16
        for n in graph.nodes
    )


# ---- dequantized tensors --------------------------------------------------------------------


@dataclass(frozen=True)
class Dequantized:
    """(x - zero) * scale in float32, behind operations that move elements.

    Attributes:
        x: integers of at most 32 bits.
        scale: compact float32 array; broadcasts to the value, not to x.
        zero: compact int64 array, likewise.
        moves: the operations between, the innermost first.
        scaled: whether there is a scale in the graph.
    """

    x: Value
    scale: Array
    zero: Array
    moves: tuple[Node, ...] = ()
    scaled: bool = True

    @property
    def single(self) -> bool:
        """Whether there is one scale and one zero point."""
        return self.scale.size == self.zero.size == 1

    def codes(self, edit: Editor) -> Value:
        """Build the integers that belong to the elements of the value."""
        g, x = edit.graph, self.x
        for node in self.moves:
            _, *others = edit.operands(node)
            if isinstance(node.op, Pad) and others:
                others = [g.scalar(int(self.zero.item()), x.dtype)]
            x = g.push(node.op, x, *others)
        return x


def dequantized(edit: Editor, v: Value) -> Dequantized | None:
    """Return a value as a dequantized tensor, if it is one."""
    v = edit.resolve(v)
    if function(v.node.op) != "mul" or v.dtype is not DType.FLOAT32:
        return None
    a, b = edit.operands(v.node)
    for integers, factor in ((a, b), (b, a)):
        centered = _centered(edit, integers)
        if centered is None:
            continue
        scale = parameters(edit, factor)
        if scale is not None:
            return Dequantized(centered[0], scale, centered[1])
    return None


def _centered(edit: Editor, v: Value) -> tuple[Value, Array] | None:
    """Return x and the zero point of float(x) - zero."""
    zero = np.zeros((1,) * v.rank, np.int64)
    if function(v.node.op) == "sub":
        v, other = edit.operands(v.node)
        if not isinstance(v.node.op, Cast):
            return None
        whole = _whole(parameters(edit, other))
        if whole is None:
            return None
        zero = whole
    if not isinstance(v.node.op, Cast):
        return None
    (x,) = edit.operands(v.node)
    if not x.dtype.is_int or x.dtype.bits > 32:
        return None
    least, most = integer_range(x.dtype)
    if zero.min() < least or zero.max() > most:
        return None
    return _without_zeros(edit, x), zero


def _without_zeros(edit: Editor, x: Value) -> Value:
    """Return what zero points were subtracted from that are all 0."""
    if function(x.node.op) != "sub":
        return x
    minuend, other = edit.operands(x.node)
    zero = parameters(edit, other)
    return x if zero is None or zero.any() else minuend


def codes_behind(edit: Editor, v: Value) -> Dequantized | None:
    """Return a value as a dequantized tensor whose elements were moved, if it is one.

    Moves that are no mere views are only looked through where nobody else reads their result: the
    integers are moved in place of the floats, not a second time.
    """
    moves: list[Node] = []
    v = edit.resolve(v)
    while len(moves) < CHAIN:
        found = dequantized(edit, v)
        if found is not None:
            return _moved(edit, found, tuple(reversed(moves)))
        if not isinstance(v.node.op, (*FREE, *COPIES)) or v.result:
            return None
        if isinstance(v.node.op, COPIES) and edit.uses(v) != 1:
            return None
        moves.append(v.node)
        v = edit.operands(v.node)[0]
    return None


def _moved(edit: Editor, found: Dequantized, moves: tuple[Node, ...]) -> Dequantized | None:
    """Carry scale and zero point through moves."""
    scale, zero = found.scale, found.zero
    before = found.x.shape
    for node in moves:
        rank = node.results[0].rank
        if scale.size == zero.size == 1:
            if not _keeps_codes(edit, node):
                return None
            scale, zero = scale.reshape((1,) * rank), zero.reshape((1,) * rank)
        elif isinstance(node.op, Slice):
            if scale.shape[node.op.axis] != 1 or zero.shape[node.op.axis] != 1:
                return None
        elif not isinstance(node.op, Broadcast):
            moved_scale = through_layout(node, scale, before)
            moved_zero = through_layout(node, zero, before)
            if moved_scale is None or moved_zero is None:
                return None
            scale, zero = moved_scale, moved_zero
        before = node.results[0].shape
    return replace(found, scale=scale, zero=zero, moves=moves)


def _keeps_codes(edit: Editor, node: Node) -> bool:
    """Return whether a move of floats is one of integers with the same scale and zero point."""
    if isinstance(node.op, Pool):
        return _pools_codes(node.op)
    if isinstance(node.op, Pad) and node.op.mode == "constant":
        return uniform_number(edit, edit.operands(node)[1]) == 0
    return True


def _pools_codes(op: Pool) -> bool:
    """Return whether a pool is a maximum in which every window has a number."""
    pads = known_shape([n for pad in op.pads for n in pad])
    kernel = [k for k in op.kernel for _ in range(2)]
    within = pads is not None and all(n < k for n, k in zip(pads, kernel, strict=True))
    return within and set(op.dilations) <= {1} and op.fn == "max" and op.indices == "none"


FREE = (View, Broadcast, Permute, Slice, Flip)
COPIES = (Gather, Pad, Pool)


# ---- quantized tensors ----------------------------------------------------------------------


@dataclass(frozen=True)
class Guard:
    """x where it is above a number, else that number: for a NaN, too."""

    x: Value
    low: float


def guard_at(edit: Editor, v: Value) -> Guard | None:
    """Return a choice as a maximum that drops NaN, if it is one."""
    if not isinstance(v.node.op, Select):
        return None
    condition, x, y = edit.operands(v.node)
    if condition.node.op != Compare("gt"):
        return None
    left, right = edit.operands(condition.node)
    low = uniform_number(edit, y)
    if left is not x or low is None or np.isnan(low) or uniform_number(edit, right) != low:
        return None
    return Guard(x, low)


@dataclass(frozen=True)
class Quantized:
    """round_even(x / scale) + zero, cut to low..high, as integers.

    Attributes:
        x: what is divided, of float32.
        step: the division, or the product with the inverse of a power of two.
        operand: the other operand, in the graph.
        scale: the divisor as a compact array.
        shift: what is added, in the graph; None for 0.
        zero: the same as a compact int64 array.
        low: least result.
        high: greatest result.
        guarded: whether a NaN becomes `low`.
        dtype: of the result.
    """

    x: Value
    step: Op
    operand: Value
    scale: Array
    shift: Value | None
    zero: Array
    low: float
    high: float
    guarded: bool
    dtype: DType

    def rounded(self, edit: Editor, x: Value) -> Value:
        """Build the rounded quotient of another dividend."""
        g = edit.graph
        return g.push(Unary("round_even"), g.push(self.step, x, self.operand))

    def finished(self, edit: Editor, rounded: Value, low: float, high: float) -> Value:
        """Build the rest: shift, cut to other bounds, convert."""
        g = edit.graph
        shifted = rounded if self.shift is None else g.push(Binary("add"), rounded, self.shift)
        return g.push(Cast(self.dtype), cut(edit, shifted, low, high, guarded=self.guarded))


def cut(edit: Editor, x: Value, low: float, high: float, *, guarded: bool) -> Value:
    """Build min(max(x, low), high) in floats; guarded, a NaN becomes `low`."""
    g = edit.graph
    least = g.scalar(low, x.dtype)
    x = g.select(g.compare("gt", x, least), x, least) if guarded else g.maximum(x, least)
    return g.minimum(x, g.scalar(high, x.dtype))


def quantized(edit: Editor, v: Value) -> Quantized | None:
    """Return integers as a quantized tensor, if they are one."""
    v = edit.resolve(v)
    op = v.node.op
    if not isinstance(op, Cast) or not op.dtype.is_int or op.dtype.bits > 16:
        return None
    (v,) = edit.operands(v.node)
    if v.dtype is not DType.FLOAT32 or not _is_divided(edit, v):
        return None
    low, high, guarded = -np.inf, np.inf, False
    clamp = clamp_at(edit, v)
    if clamp is not None:
        v, low, high = clamp.x, clamp.low, clamp.high
    guard = guard_at(edit, v)
    if guard is not None:
        v, low, guarded = guard.x, max(low, guard.low), True
    least, most = integer_range(op.dtype)
    if not least <= low <= high <= most:
        return None
    shift, zero = None, np.zeros((1,) * v.rank, np.int64)
    if function(v.node.op) == "add":
        v, shift = edit.operands(v.node)
        whole = _whole(parameters(edit, shift))
        if whole is None:
            return None
        zero = whole
    if function(v.node.op) != "round_even":
        return None
    (quotient,) = edit.operands(v.node)
    x, other = edit.operands(quotient.node) if isinstance(quotient.node.op, Binary) else (v, v)
    scale = _divisor(quotient.node.op, parameters(edit, other))
    if scale is None:
        return None
    step = quotient.node.op
    return Quantized(x, step, other, scale, shift, zero, low, high, guarded, op.dtype)


def _is_divided(edit: Editor, v: Value) -> bool:
    """Return whether it may be a quotient by a constant, rounded, shifted and cut.

    That is seen soonest: scales of dynamic quantization are no constants.
    """
    for _ in range(QUANTIZING):
        operands = edit.operands(v.node)
        if function(v.node.op) == "round_even":
            quotient = operands[0].node
            if not isinstance(quotient.op, Binary):
                return False
            return parameters(edit, edit.operands(quotient)[1]) is not None
        if isinstance(v.node.op, Select):
            v = operands[1]
        elif function(v.node.op) in CUTTING:
            v = operands[-1] if constant_behind(edit, operands[0]) is not None else operands[0]
        else:
            return False
    return False


def _divisor(op: Op, constant: Array | None) -> Array | None:
    """Return what is divided by, also where that is a product with an exact inverse."""
    fn = function(op)
    if constant is None or fn not in ("div", "mul"):
        return None
    if fn == "div":
        return constant
    mantissa, _ = np.frexp(constant)
    return 1 / constant if (mantissa == 0.5).all() else None
