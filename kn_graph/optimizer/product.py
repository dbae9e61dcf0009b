"""Convolutions and matrix products with constant weights, and what can be folded into these.

```
conv(x, w)*s = conv(x, w*s)        along the output channels
conv(x*s, w) = conv(x, w*s)        along the input channels: padding with zeros stays right
conv(x + b, w) = conv(x, w) + sum of w*b    where nothing is padded
```

and so for transposed convolutions (their border sees fewer products, so a bias of the input stays)
and for products of matrices with weights on either side. New weights are computed in float64, by
blocks, and rounded once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kn_graph.dtype import DType
from kn_graph.op import Op
from kn_graph.ops.conv import Conv, ConvTranspose
from kn_graph.ops.matmul import MatMul
from kn_graph.ops.source import Constant
from kn_graph.optimizer.compact import compact_constant
from kn_graph.optimizer.editor import Editor
from kn_graph.optimizer.polynomial import FLOATS
from kn_graph.value import Node, Value

__all__ = ["PRODUCTS", "Product", "product_of"]

Array = np.ndarray[Any, Any]

PRODUCTS: tuple[type[Op], ...] = (Conv, ConvTranspose, MatMul)

SHARED_BYTES = 4 << 20
"""Weights that others read, too, are copied up to this size."""

LARGEST = 256 << 20
"""Larger weights are not copied at all."""


@dataclass(frozen=True)
class Product:
    """A product with constant weights.

    Attributes:
        node: the convolution or matrix product.
        x: the other operand.
        side: which operand are the weights.
        weights: their compact array.
        grouped: the shape in which the weights have one axis of outputs and one of inputs.
        out_axis: the axis of `grouped` along which outputs differ.
        in_axis: the axis of `grouped` that is summed over.
        rows: the axis of the result along which outputs differ.
        columns: the axis of x that is summed over.
        lead: how many leading axes of `grouped` are not summed over beside `out_axis`.
        joined: whether the first axis of `grouped` is part of the channels: convolution groups.
        takes_bias: whether a bias of x is a bias of the result.
        shared: whether others read the weights.
    """

    node: Node
    x: Value
    side: int
    weights: Array
    grouped: tuple[int, ...]
    out_axis: int
    in_axis: int
    rows: int
    columns: int
    lead: int
    joined: bool
    takes_bias: bool
    shared: bool = field(default=False)

    @property
    def dtype(self) -> DType:
        """The element type of weights and result."""
        return self.node.results[0].dtype

    @property
    def too_large(self) -> str:
        """Why the weights may not be copied, '' where they may."""
        if self.weights.nbytes > LARGEST:
            return f"the weights take more than {LARGEST >> 20} MiB"
        if self.shared and self.weights.nbytes > SHARED_BYTES:
            return f"the weights are shared and take more than {SHARED_BYTES >> 20} MiB"
        return ""

    def by_outputs(self, a: Array) -> Array | None:
        """Return a compact array of the result in a shape that broadcasts to `grouped`."""
        return self._placed(a, self.rows, self.out_axis)

    def by_inputs(self, a: Array) -> Array | None:
        """Return a compact array of x in a shape that broadcasts to `grouped`."""
        return self._placed(a, self.columns, self.in_axis)

    def _placed(self, a: Array, axis: int, target: int) -> Array | None:
        """Move what varies along one axis of a tensor to one axis of `grouped`."""
        shape = [1] * len(self.grouped)
        common = 0 if self.joined else self.lead
        for i, size in enumerate(a.shape):
            if size == 1 or i == axis:
                continue
            if i >= common or self.grouped[i] != size:
                return None
            shape[i] = size
        if not self.joined:
            shape[target] = a.shape[axis]
            return a.reshape(shape)
        shape[0], shape[target] = self.grouped[0], self.grouped[target]
        return np.broadcast_to(a.reshape(-1), shape[0] * shape[target]).reshape(shape)

    def scaled(self, factor: Array) -> Array | str:
        """Return new weights, or why there are none.

        Args:
            factor: broadcasts to `grouped`.
        """
        old = self.weights.reshape(self.grouped)
        out = np.empty_like(old)
        with np.errstate(all="ignore"):
            same: Array = factor.astype(out.dtype)
            if out.dtype == np.float32 and (same == factor).all():
                np.multiply(old, same, out=out)  # rounds as float64 would, and is faster
            elif out.dtype in (np.float32, np.float64):
                np.multiply(old, factor, out=out, dtype=np.float64, casting="same_kind")
            else:
                out[...] = old.astype(np.float32) * factor
        if not np.isfinite(out).all():
            return "new weights would overflow"
        if self._underflows(out, old, factor):
            return "new weights would underflow"
        return out.reshape(self.weights.shape)

    def _underflows(self, new: Array, old: Array, factor: Array) -> bool:
        """Return whether all weights of an output became too small for the precision of the type.

        Only for float16: in types with a wider range such an output is 0 for all purposes.
        """
        if self.dtype is not DType.FLOAT16:
            return False
        largest = np.abs(new).max(self._summed, initial=0)
        meant = (np.abs(old).astype(np.float64) * np.abs(factor)).max(self._summed, initial=0)
        return bool(((largest < np.finfo(np.float16).smallest_normal) & (meant > 0)).any())

    @property
    def _summed(self) -> tuple[int, ...]:
        """The axes of `grouped` that the product sums over."""
        return tuple(a for a in range(self.lead, len(self.grouped)) if a != self.out_axis)

    def carried(self, bias: Array) -> Array | None:
        """Return what a bias of x adds to the result, as a compact array of the result.

        Args:
            bias: broadcasts to `grouped`.
        """
        if not self.takes_bias:
            return None
        kernel = tuple(a for a in self._summed if a != self.in_axis)
        old = self.weights.reshape(self.grouped)
        with np.errstate(all="ignore"):
            total = (old.sum(kernel, np.float64, keepdims=True) * bias).sum(self._summed)
            if not np.isfinite(total.astype(self.dtype.numpy)).all():
                return None
        shape = [1] * self.node.results[0].rank
        if self.joined:
            shape[self.rows] = total.size
        else:
            shape[: self.lead] = total.shape[: self.lead]
            shape[self.rows] = total.shape[-1]
        return np.asarray(total.reshape(shape))

    def again(self, edit: Editor, x: Value, weights: Array | None) -> Value:
        """Build the product with another x and other weights; None stands for the same ones."""
        operands = list(edit.operands(self.node))
        operands[1 - self.side] = x
        if weights is not None:
            w = operands[self.side]
            operands[self.side] = edit.graph.broadcast(edit.graph.constant(weights), w.shape)
        return edit.graph.push(self.node.op, *operands)


def product_of(edit: Editor, node: Node) -> Product | None:
    """Return what is known of a convolution or matrix product of floats with constant weights."""
    if type(node.op) not in _FINDERS or node.results[0].dtype not in FLOATS:
        return None
    op = node.op
    wide = getattr(op, "out_dtype", None)
    x, w = edit.operands(node)
    if wide is not None and wide is not x.dtype:
        return None
    return _FINDERS[type(op)](edit, node, x, w)


def _of_conv(edit: Editor, node: Node, x: Value, w: Value) -> Product | None:
    op, a = node.op, compact_constant(edit, w)
    assert isinstance(op, Conv)
    if a is None or a.shape != w.shape or compact_constant(edit, x) is not None:
        return None
    outputs, each, *kernel = a.shape
    grouped = (op.groups, outputs // op.groups, each, *kernel)
    padded = any(p != 0 for pair in op.pads for p in pair)
    return Product(node, x, 1, a, grouped, 1, 2, 1, 1, 1, True, not padded, _shared(edit, w))


def _of_conv_transpose(edit: Editor, node: Node, x: Value, w: Value) -> Product | None:
    op, a = node.op, compact_constant(edit, w)
    assert isinstance(op, ConvTranspose)
    if a is None or a.shape != w.shape or compact_constant(edit, x) is not None:
        return None
    inputs, each, *kernel = a.shape
    grouped = (op.groups, inputs // op.groups, each, *kernel)
    return Product(node, x, 1, a, grouped, 2, 1, 1, 1, 1, True, False, _shared(edit, w))


def _of_matmul(edit: Editor, node: Node, x: Value, y: Value) -> Product | None:
    right, left = compact_constant(edit, y), compact_constant(edit, x)
    last, before = x.rank - 1, x.rank - 2
    if right is not None and left is None and right.shape[before:] == y.shape[before:]:
        axes = (last, before, last, last, before)
        return Product(node, x, 1, right, right.shape, *axes, False, True, _shared(edit, y))
    if left is not None and right is None and left.shape[before:] == x.shape[before:]:
        axes = (before, last, before, before, before)
        return Product(node, y, 0, left, left.shape, *axes, False, True, _shared(edit, x))
    return None


def _shared(edit: Editor, w: Value) -> bool:
    """Return whether somebody else reads the constant behind a value."""
    while edit.uses(w) == 1 and not isinstance(w.node.op, Constant):
        (w,) = edit.operands(w.node)
    return edit.uses(w) > 1


_FINDERS: dict[type[Op], Callable[[Editor, Node, Value, Value], Product | None]] = {
    Conv: _of_conv,
    ConvTranspose: _of_conv_transpose,
    MatMul: _of_matmul,
}
