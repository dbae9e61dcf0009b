"""Quantized tensors: integers stay integers, and what is rounded again is rounded once.

- quantized_concat: parts of one scale are joined as integers;
- quantize_pair: quantize(dequantize(q)) with one scale and zero point = q, also where elements are
  moved, repeated, padded with 0 or max-pooled in between: then the integers are;
- clamped_quantize: quantize(min(max(x, a), b)) cuts the integers to quantize(a)..quantize(b);
- nan_guard: r > low ? r : low = max(r, low) where r is no NaN;
- round_trip: float(integer(r)) = r for a rounded r in the range of the integers, of which there is
  no other reader;
- shifted_clamp: min(max(r + z, low), high) - z = min(max(r, low - z), high - z) for a rounded r.

All are exact, but for the sign of zeros.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from kn_graph.builder.quantize import integer_range
from kn_graph.dtype import DType
from kn_graph.op import Op
from kn_graph.ops.elementwise import Binary, Cast, Select
from kn_graph.ops.layout import Concat
from kn_graph.optimizer.clamps import Clamp, clamp_at
from kn_graph.optimizer.editor import Editor
from kn_graph.optimizer.magnitude import magnitude
from kn_graph.optimizer.pattern import uniform_number
from kn_graph.optimizer.polynomial import function
from kn_graph.optimizer.quantization import (
    SCALE_LIMIT,
    Dequantized,
    Guard,
    Quantized,
    codes_behind,
    cut,
    guard_at,
    quantized,
    usable_scale,
)
from kn_graph.optimizer.rule import SHARED, Refused, Rule
from kn_graph.optimizer.rules.fold import Computed, FoldConstants
from kn_graph.optimizer.settings import OptimizerSettings
from kn_graph.types import TensorType
from kn_graph.value import Node, Value

__all__ = [
    "FIRST",
    "RULES",
    "ClampedQuantize",
    "FoldScalars",
    "NanGuard",
    "QuantizePair",
    "QuantizedConcat",
    "RoundTrip",
    "ShiftedClamp",
]

BAD_SCALE = Refused("a scale is not a positive, normal number")


class FoldScalars(FoldConstants):
    """Numbers that are stored as integers, too, are computed first: others are tensors."""

    name = "fold_scalars"

    def match(
        self, edit: Editor, node: Node, settings: OptimizerSettings
    ) -> Computed | Refused | None:
        """Compute results of rank 0."""
        for v in node.results:
            if not isinstance(v.type, TensorType) or v.type.shape:
                return None
        return super().match(edit, node, settings)


# ---- integers that stay what they are -------------------------------------------------------


@dataclass(frozen=True)
class Parts:
    """Dequantized tensors of one scale and zero point, and along which axis they are joined."""

    parts: tuple[Dequantized, ...]
    axis: int


class QuantizedConcat(Rule[Parts]):
    """concat(dequantize(p), dequantize(q)) = dequantize(concat(p, q))."""

    name = "quantized_concat"
    roots: ClassVar[tuple[type[Op], ...]] = (Concat,)
    setting = "fuse_quantized"

    def match(
        self, edit: Editor, node: Node, settings: OptimizerSettings
    ) -> Parts | Refused | None:
        """Compare the parts with the first one."""
        parts = []
        for v in edit.operands(node):
            part = codes_behind(edit, v)
            if part is None or part.x.dtype.bits > 16:
                return None
            parts.append(part)
        first = parts[0]
        for part in parts:
            if not part.single or part.x.dtype is not first.x.dtype:
                return None
            if part.scale.item() != first.scale.item() or part.zero.item() != first.zero.item():
                return Refused("the parts have different scales or zero points")
        assert isinstance(node.op, Concat)
        return Parts(tuple(parts), node.op.axis)

    def rewrite(self, edit: Editor, found: Parts) -> Value:
        """Join, then dequantize."""
        g, first = edit.graph, found.parts[0]
        joined = g.concat([part.codes(edit) for part in found.parts], found.axis)
        zero = g.scalar(first.zero.item(), joined.dtype)
        return g.dequantize(joined, g.scalar(first.scale.item(), DType.FLOAT32), zero)


@dataclass(frozen=True)
class Pair:
    """A tensor that is dequantized and quantized as it was."""

    inner: Dequantized
    outer: Quantized


class QuantizePair(Rule[Pair]):
    """quantize(dequantize(q)) = q, for integers of at most 16 bits."""

    name = "quantize_pair"
    roots: ClassVar[tuple[type[Op], ...]] = (Cast,)
    setting = "fuse_quantized"

    def match(self, edit: Editor, node: Node, settings: OptimizerSettings) -> Pair | Refused | None:
        """Compare scales and zero points."""
        outer = quantized(edit, node.results[0])
        inner = None if outer is None else codes_behind(edit, outer.x)
        if outer is None or inner is None or inner.x.dtype is not outer.dtype:
            return None
        if not np.array_equal(inner.scale, outer.scale):
            return None
        if not np.array_equal(inner.zero, outer.zero):
            return None
        if not usable_scale(inner.scale) or inner.scale.max() > SCALE_LIMIT:
            return BAD_SCALE
        return Pair(inner, outer)

    def rewrite(self, edit: Editor, found: Pair) -> Value:
        """Move the integers, and cut them where the outer one does."""
        g, x, outer = edit.graph, found.inner.codes(edit), found.outer
        least, most = integer_range(outer.dtype)
        if outer.low > least:
            x = g.maximum(x, g.scalar(int(outer.low), x.dtype))
        return g.minimum(x, g.scalar(int(outer.high), x.dtype)) if outer.high < most else x


# ---- bounds ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Narrowed:
    """A quantization without the clip in front of it, and its bounds then."""

    quantized: Quantized
    x: Value
    low: float
    high: float


class ClampedQuantize(Rule[Narrowed]):
    """quantize(relu(x)) = max(quantize(x), zero point): rounding keeps the order."""

    name = "clamped_quantize"
    roots: ClassVar[tuple[type[Op], ...]] = (Cast,)
    setting = "fuse_quantized"

    def match(
        self, edit: Editor, node: Node, settings: OptimizerSettings
    ) -> Narrowed | Refused | None:
        """Quantize the bounds of the clip."""
        outer = quantized(edit, node.results[0])
        clamp = None if outer is None else clamp_at(edit, outer.x)
        if outer is None or clamp is None or outer.scale.size > 1 or outer.zero.size > 1:
            return None
        if not usable_scale(outer.scale):
            return BAD_SCALE
        low, high = _quantized_bounds(clamp, outer)
        if low > high:
            return Refused("the clip leaves one number")
        # a NaN becomes the lower bound, which must not move then
        if low > outer.low and magnitude(edit, clamp.x) == np.inf:
            return Refused("what is clipped may be a NaN")
        return Narrowed(outer, clamp.x, low, high)

    def rewrite(self, edit: Editor, found: Narrowed) -> Value:
        """Divide, round and shift what is not clipped."""
        outer = found.quantized
        return outer.finished(edit, outer.rounded(edit, found.x), found.low, found.high)


def _quantized_bounds(clamp: Clamp, outer: Quantized) -> tuple[float, float]:
    """Return the bounds of integers, computed as the elements are."""
    scale, zero = np.float32(outer.scale.item()), outer.zero.item()
    with np.errstate(all="ignore"):
        low, high = (float(np.rint(np.float32(b) / scale)) + zero for b in (clamp.low, clamp.high))
    return max(outer.low, low), min(outer.high, high)


class NanGuard(Rule[Guard]):
    """r > low ? r : low = max(r, low), where r cannot be a NaN."""

    name = "nan_guard"
    roots: ClassVar[tuple[type[Op], ...]] = (Select,)
    setting = "fuse_quantized"

    def match(
        self, edit: Editor, node: Node, settings: OptimizerSettings
    ) -> Guard | Refused | None:
        """Bound the magnitude."""
        guard = guard_at(edit, node.results[0])
        if guard is None or not guard.x.dtype.is_float:
            return None
        return None if magnitude(edit, guard.x) == np.inf else guard

    def rewrite(self, edit: Editor, found: Guard) -> Value:
        """Take the larger one."""
        g = edit.graph
        return g.maximum(found.x, g.scalar(found.low, found.x.dtype))


# ---- integers that nobody needs -------------------------------------------------------------


@dataclass(frozen=True)
class Whole:
    """Floats that are whole numbers in the range of an integer type."""

    x: Value


class RoundTrip(Rule[Whole]):
    """float(integer(r)) = r."""

    name = "round_trip"
    roots: ClassVar[tuple[type[Op], ...]] = (Cast,)
    setting = "fuse_quantized"

    def match(
        self, edit: Editor, node: Node, settings: OptimizerSettings
    ) -> Whole | Refused | None:
        """Find a quantization that only this conversion reads."""
        (codes,) = edit.operands(node)
        if node.results[0].dtype is not DType.FLOAT32 or not isinstance(codes.node.op, Cast):
            return None
        found = quantized(edit, codes)
        if found is None:
            return None
        if edit.uses(codes) != 1:
            return SHARED
        (x,) = edit.operands(codes.node)
        if not found.guarded and magnitude(edit, x) == np.inf:
            return Refused("what is rounded may be a NaN")
        return Whole(x)

    def rewrite(self, edit: Editor, found: Whole) -> Value:
        """Leave out both conversions."""
        return found.x


@dataclass(frozen=True)
class Shifted:
    """A rounded value between bounds, all less a whole number."""

    rounded: Value
    low: float
    high: float
    guarded: bool


class ShiftedClamp(Rule[Shifted]):
    """See the module. Whole numbers below 2**24 add up exactly, and what is larger is cut."""

    name = "shifted_clamp"
    roots: ClassVar[tuple[type[Op], ...]] = (Binary,)
    functions = frozenset({"sub"})
    setting = "fuse_quantized"

    def match(
        self, edit: Editor, node: Node, settings: OptimizerSettings
    ) -> Shifted | Refused | None:
        """Find the same number added and subtracted, and whole bounds between."""
        if function(node.op) != "sub" or node.results[0].dtype is not DType.FLOAT32:
            return None
        v, zero = edit.operands(node)
        clamp = clamp_at(edit, v)
        if clamp is None:
            return None
        guard = guard_at(edit, clamp.x)
        shifted = clamp.x if guard is None else guard.x
        low = clamp.low if guard is None else max(clamp.low, guard.low)
        number = uniform_number(edit, zero)
        if number is None or function(shifted.node.op) != "add":
            return None
        rounded, added = edit.operands(shifted.node)
        if function(rounded.node.op) != "round_even" or uniform_number(edit, added) != number:
            return None
        limits = (number, low, clamp.high)
        if not all(abs(n) <= 1 << 16 and n == int(n) for n in limits):
            return None
        inside = {node, *clamp.nodes, shifted.node}
        between = [v, *(n.results[0] for n in clamp.nodes), shifted]
        if guard is not None:
            condition, *_ = edit.operands(clamp.x.node)
            inside |= {clamp.x.node, condition.node}
            between += [clamp.x, condition]
        if not edit.only_inside(between, inside):
            return SHARED
        return Shifted(rounded, low - number, clamp.high - number, guard is not None)

    def rewrite(self, edit: Editor, found: Shifted) -> Value:
        """Cut what is not shifted."""
        return cut(edit, found.rounded, found.low, found.high, guarded=found.guarded)


EARLY = (QuantizedConcat(), QuantizePair(), ClampedQuantize(), NanGuard())
FIRST = (FoldScalars(), *EARLY)
RULES = (*EARLY, RoundTrip(), ShiftedClamp())
