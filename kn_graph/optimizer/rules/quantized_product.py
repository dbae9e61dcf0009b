"""Products and convolutions of two dequantized tensors are computed with integers.

conv(dequantize(x), dequantize(w)) + dequantize(b) = float(conv(x - zx, w - zw) + b) * (sx * sw),
where the int32 bias b has exactly the scale sx * sw; other biases are added behind.

The integer sum is exact, where the float sum of k products has an error of up to about k ulps of
the sum of their absolute values. Refused where the integer sum could leave the range of int32.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar

import numpy as np

from kn_graph.builder.quantize import integer_range
from kn_graph.dim_facts import bounds
from kn_graph.dtype import DType
from kn_graph.graph import Graph
from kn_graph.op import Op
from kn_graph.ops.conv import Conv
from kn_graph.ops.elementwise import Binary
from kn_graph.ops.layout import Broadcast, Slice, View
from kn_graph.ops.matmul import MatMul
from kn_graph.optimizer.compact import compact_constant
from kn_graph.optimizer.constants import known_shape
from kn_graph.optimizer.editor import Editor
from kn_graph.optimizer.polynomial import function
from kn_graph.optimizer.quantization import (
    LARGEST,
    Dequantized,
    codes_behind,
    uniform,
    usable_scale,
)
from kn_graph.optimizer.rule import Refused, Rule
from kn_graph.optimizer.settings import OptimizerSettings
from kn_graph.value import Node, Value

__all__ = ["FIRST", "RULES", "IntegerBias", "IntegerOffsets", "IntegerProduct", "NarrowWeights"]

Array = np.ndarray[Any, Any]

LIMIT = (1 << 31) - 1

EIGHT_BITS = (DType.INT8, DType.UINT8)


# ---- dequantized operands -------------------------------------------------------------------


@dataclass(frozen=True)
class Product:
    """A convolution or matrix product of dequantized tensors, maybe with a bias.

    Attributes:
        node: what computes it in floats.
        x: the first operand.
        w: the second operand.
        scale: compact float32 factor of the result.
        bias: int32 with that scale.
    """

    node: Node
    x: Dequantized
    w: Dequantized
    scale: Array
    bias: Dequantized | None = None


class IntegerProduct(Rule[Product]):
    """See the module."""

    name = "integer_product"
    roots: ClassVar[tuple[type[Op], ...]] = (Conv, MatMul, Binary)
    setting = "fuse_quantized"

    def match(
        self, edit: Editor, node: Node, settings: OptimizerSettings
    ) -> Product | Refused | None:
        """Look at a product, or at a sum of one with a bias; leave a product to such a sum."""
        if isinstance(node.op, Binary):
            found = _biased(edit, node)
            return found if isinstance(found, Product) else None
        product = _product(edit, node)
        if isinstance(product, Product):
            (out,) = node.results
            users = [] if edit.is_output(out) else edit.users(out)
            if users and all(isinstance(_biased(edit, u), Product) for u in users):
                return None
        return product

    def rewrite(self, edit: Editor, found: Product) -> Value:
        """Build the integer product and dequantize its sum."""
        g = edit.graph
        total = _integers(edit, found)
        if found.bias is not None:
            total = g.add(total, found.bias.codes(edit))
        return g.mul(g.cast(total, DType.FLOAT32), g.constant(found.scale))


def _biased(edit: Editor, node: Node) -> Product | Refused | None:
    """Return a sum as a product with a bias of its scale."""
    if function(node.op) != "add":
        return None
    a, b = edit.operands(node)
    for v, other in ((a, b), (b, a)):
        if not isinstance(v.node.op, (Conv, MatMul)):
            continue
        bias = codes_behind(edit, other)
        if bias is None or bias.x.dtype is not DType.INT32 or bias.zero.any():
            continue
        product = _product(edit, v.node)
        if not isinstance(product, Product):
            return product
        if not _equal(bias.scale, product.scale) or bias.x.constant is None:
            return None
        largest = int(np.abs(bias.x.constant.astype(np.int64)).max(initial=0))
        refused = _overflow(product, largest)
        return refused or Product(product.node, product.x, product.w, product.scale, bias)
    return None


def _equal(a: Array, b: Array) -> bool:
    fits = all(n == m or 1 in (n, m) for n, m in zip(a.shape, b.shape, strict=True))
    return fits and bool((a == b).all())


def _product(edit: Editor, node: Node) -> Product | Refused | None:
    """Return a node as a product of dequantized tensors, if it may be computed with integers."""
    if node.op.out_dtype is not None:  # type: ignore[attr-defined]
        return None
    a, b = edit.operands(node)
    if a.dtype is not DType.FLOAT32:
        return None
    x = codes_behind(edit, a)
    w = None if x is None else codes_behind(edit, b)
    if x is None or w is None:
        return None
    if max(x.x.dtype.bits, w.x.dtype.bits) > 8:
        return Refused("an operand has more than 8 bits")
    scale = _conv_scale(x, w) if isinstance(node.op, Conv) else _matmul_scale(x, w)
    if scale is None:
        return Refused("a scale or zero point differs along what is summed")
    if not (usable_scale(x.scale) and usable_scale(w.scale) and usable_scale(scale)):
        return Refused("a scale is not a positive, normal number")
    product = Product(node, x, w, scale)
    return _overflow(product, 0) or product


def _conv_scale(x: Dequantized, w: Dequantized) -> Array | None:
    """Return the factor [1, M, 1, ..] of a convolution."""
    if not x.single or any(a.size > a.shape[0] for a in (w.scale, w.zero)):
        return None
    channels = (1, w.scale.size, *(1,) * (w.scale.ndim - 2))
    return uniform(x.scale.reshape(-1) * w.scale.reshape(channels))


def _matmul_scale(x: Dequantized, w: Dequantized) -> Array | None:
    """Return the factor [.., m or 1, n or 1] of a matrix product."""
    if any(a.shape[-1] != 1 for a in (x.scale, x.zero)):
        return None
    if any(a.shape[-2] != 1 for a in (w.scale, w.zero)):
        return None
    return uniform(x.scale * w.scale)


def _overflow(product: Product, bias: int) -> Refused | None:
    """Say whether a sum could leave the range of int32."""
    node = product.node
    _, w = node.operands
    sizes = w.shape[1:] if isinstance(node.op, Conv) else w.shape[-2:-1]
    terms = prod((bounds(s)[1] for s in sizes), start=1)
    if terms * _furthest(product.x) * _furthest(product.w) + bias > LIMIT:
        return Refused("the sum may overflow int32")
    return None


def _furthest(x: Dequantized) -> int:
    """Return the largest distance of an integer from its zero point."""
    least, most = integer_range(x.x.dtype)
    return int(max(x.zero.max() - least, most - x.zero.min()))


# ---- integer operands -----------------------------------------------------------------------


def _integers(edit: Editor, found: Product) -> Value:
    """Build the sum of products of integers less their zero points."""
    g, op = edit.graph, found.node.op
    x, x_zero = _operand(edit, found.x)
    w, w_zero = _operand(edit, found.w, centered=True)
    if isinstance(op, MatMul):
        return g.matmul_integer(x, w, _zero_point(g, x_zero, x), _zero_point(g, w_zero, w))
    assert isinstance(op, Conv)
    return g.conv_integer(
        x,
        w,
        _zero_point(g, x_zero.reshape(()), x),
        _zero_point(g, w_zero.reshape(-1) if w_zero.size > 1 else w_zero.reshape(()), w),
        strides=op.strides,
        dilations=op.dilations,
        pads=op.pads,
        groups=op.groups,
    )


def _operand(edit: Editor, found: Dequantized, *, centered: bool = False) -> tuple[Value, Array]:
    """Build the integers of an operand in 8 bits, and return what is left of its zero point.

    Args:
        edit: the graph.
        found: the operand.
        centered: whether constant weights are stored less their zero point where that fits.
    """
    g, x = edit.graph, found.codes(edit)
    if x.dtype.bits < 8:
        x = g.cast(x, DType.INT8 if integer_range(x.dtype)[0] else DType.UINT8)
    weights = compact_constant(edit, x) if centered and found.zero.any() else None
    if weights is not None:
        narrow = narrowed(weights.astype(np.int16) - found.zero.astype(np.int16))
        if narrow is not None:
            return g.broadcast(g.constant(narrow), x.shape), np.zeros_like(found.zero)
    return x, found.zero


def _zero_point(g: Graph, zero: Array, like: Value) -> Value | None:
    return g.constant(zero.astype(like.dtype.numpy)) if zero.any() else None


def narrowed(a: Array) -> Array | None:
    """Return integers in 8 bits where they fit."""
    low, high = (int(a.min()), int(a.max())) if a.size else (0, 0)
    for dtype in EIGHT_BITS:
        least, most = integer_range(dtype)
        if least <= low and high <= most:
            return a.astype(dtype.numpy)
    return None


# ---- what is constant in integer products ---------------------------------------------------


@dataclass(frozen=True)
class Narrow:
    """An integer product and its weights in 8 bits."""

    node: Node
    x: Value
    weights: Array


class NarrowWeights(Rule[Narrow]):
    """Weights less their zero point, which was computed in 16 bits, in 8 bits where they fit."""

    name = "narrow_weights"
    roots: ClassVar[tuple[type[Op], ...]] = (Conv, MatMul)
    setting = "fuse_quantized"

    def match(self, edit: Editor, node: Node, settings: OptimizerSettings) -> Narrow | None:
        """Read constants of 16 bits."""
        x, w = edit.operands(node)
        a = w.constant
        if a is None or w.dtype is not DType.INT16 or x.dtype not in EIGHT_BITS:
            return None
        key = (w, "narrowed", 0)  # looked at once, however often the product is
        if key not in edit.steps:
            edit.steps[key] = narrowed(a)
        narrow = edit.steps[key]
        return None if narrow is None else Narrow(node, x, narrow)

    def rewrite(self, edit: Editor, found: Narrow) -> Value:
        """Compute the same with them."""
        return edit.graph.push(found.node.op, found.x, edit.graph.constant(found.weights))


@dataclass(frozen=True)
class Biased:
    """An integer product and all that is added to it."""

    x: Value
    bias: Array


class IntegerBias(Rule[Biased]):
    """(conv(x, w) - a) + b = conv(x, w) + (b - a): integers wrap."""

    name = "integer_bias"
    roots: ClassVar[tuple[type[Op], ...]] = (Binary,)
    functions = frozenset({"add", "sub"})
    setting = "fuse_quantized"

    def match(self, edit: Editor, node: Node, settings: OptimizerSettings) -> Biased | None:
        """Follow sums and differences with constants down to a product."""
        v, bias = node.results[0], np.zeros((), np.int64)
        if v.dtype is not DType.INT32:
            return None
        steps: list[str] = []
        while (fn := function(v.node.op)) in ("add", "sub"):
            if steps and edit.uses(v) != 1:
                return None
            x, other = edit.operands(v.node)
            constant = compact_constant(edit, other)
            if constant is None:
                return None
            bias = bias + constant if fn == "add" else bias - constant.astype(np.int64)
            steps.append(fn)
            v = x
        return Biased(v, bias) if _is_product(edit, v) and steps not in ([], ["add"]) else None

    def rewrite(self, edit: Editor, found: Biased) -> Value:
        """Add once."""
        g, x = edit.graph, found.x
        return g.add(x, g.broadcast(g.constant(found.bias.astype(np.int32)), x.shape))


def _is_product(edit: Editor, v: Value) -> bool:
    """Return whether a value is an integer product, or a part of one."""
    while isinstance(v.node.op, (View, Slice)):
        (v,) = edit.operands(v.node)
    return isinstance(v.node.op, (Conv, MatMul))


@dataclass(frozen=True)
class Offsets:
    """An integer product, and two small tensors that are repeated and added to it.

    Attributes:
        x: the product.
        first: what is added first.
        second: what is added then.
        signs: 1 or -1 for each.
    """

    x: Value
    first: Value
    second: Value
    signs: tuple[int, int]


class IntegerOffsets(Rule[Offsets]):
    """(conv(x, w) - a) + b = conv(x, w) + (b - a) where a and b are the same for many elements."""

    name = "integer_offsets"
    roots: ClassVar[tuple[type[Op], ...]] = (Binary,)
    functions = frozenset({"add", "sub"})
    setting = "fuse_quantized"

    def match(self, edit: Editor, node: Node, settings: OptimizerSettings) -> Offsets | None:
        """Look at a sum of a sum that nobody else reads."""
        outer = None if node.results[0].dtype is not DType.INT32 else _offset(edit, node)
        inner = None if outer is None else _offset(edit, outer[0].node)
        if outer is None or inner is None or edit.uses(outer[0]) != 1:
            return None
        (x, first, sign), (_, second, outer_sign) = inner, outer
        if first.shape != second.shape or not _is_product(edit, x):
            return None
        return Offsets(x, first, second, (sign, outer_sign))

    def rewrite(self, edit: Editor, found: Offsets) -> Value:
        """Add up what is repeated, then repeat and add it."""
        g, x = edit.graph, found.x
        first, second = found.signs
        if first == second:
            total = g.add(found.first, found.second)
        else:
            total = g.sub(
                *((found.first, found.second) if first > 0 else (found.second, found.first))
            )
        repeated = g.broadcast(total, x.shape)
        return g.sub(x, repeated) if first == second == -1 else g.add(x, repeated)


def _offset(edit: Editor, node: Node) -> tuple[Value, Value, int] | None:
    """Return what a small tensor is added to or subtracted from, the small tensor, and its sign."""
    fn = function(node.op)
    if fn not in ("add", "sub"):
        return None
    x, other = edit.operands(node)
    if fn == "add" and isinstance(x.node.op, Broadcast):
        x, other = other, x
    if not isinstance(other.node.op, Broadcast):
        return None
    (small,) = edit.operands(other.node)
    known = known_shape(small.shape)
    few = known is not None and prod(known) <= LARGEST
    return (x, small, 1 if fn == "add" else -1) if few else None


FIRST = (IntegerProduct(),)
RULES = (*FIRST, NarrowWeights(), IntegerBias(), IntegerOffsets())
