"""Padding that joins other padding.

A pad of a pad with the same value is one pad. Zeros around the spatial axes of a convolution, a sum
or a mean become its own padding; minus infinity, or zeros around what is never negative, that of a
maximum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from kn_graph.dim import Size
from kn_graph.dim_facts import provably_ge
from kn_graph.op import Op
from kn_graph.ops.conv import Conv
from kn_graph.ops.layout import Pad
from kn_graph.ops.pool import Pool
from kn_graph.optimizer.editor import Editor
from kn_graph.optimizer.pattern import uniform_scalar
from kn_graph.optimizer.ranges import value_range
from kn_graph.optimizer.rule import Refused, Rule
from kn_graph.optimizer.settings import OptimizerSettings
from kn_graph.value import Node, Value
from kn_graph.window import Pads, window_count

__all__ = ["RULES", "PadIntoConv", "PadIntoPool", "PadOfPad"]


def _added(a: Sequence[tuple[Size, Size]], b: Sequence[tuple[Size, Size]]) -> Pads:
    return tuple((x[0] + y[0], x[1] + y[1]) for x, y in zip(a, b, strict=True))


@dataclass(frozen=True)
class Padded:
    """An operation with padding of its own, and its operands."""

    op: Op
    operands: tuple[Value, ...]


class PaddedRule(Rule[Padded]):
    """A rule that finds an operation that pads more itself."""

    def rewrite(self, edit: Editor, found: Padded) -> Value | tuple[Value, ...]:
        """Apply it."""
        return edit.graph.push_all(found.op, *found.operands)


class PadOfPad(PaddedRule):
    """pad(pad(x, a, value), b, value) = pad(x, a + b, value)."""

    name = "pad_of_pad"
    roots: ClassVar[tuple[type[Op], ...]] = (Pad,)

    def match(self, edit: Editor, node: Node, settings: OptimizerSettings) -> Padded | None:
        """Compare the values."""
        outer, operands = node.op, edit.operands(node)
        inner = operands[0].node.op
        assert isinstance(outer, Pad)
        if not isinstance(inner, Pad) or not outer.mode == inner.mode == "constant":
            return None
        x, value = edit.operands(operands[0].node)
        if value is not operands[1]:
            return None
        return Padded(replace(outer, pads=_added(outer.pads, inner.pads)), (x, value))


def _zeros_around(
    edit: Editor, v: Value, spatial: int
) -> tuple[Value, Pads, np.generic] | Refused | None:
    """Return what is padded, the pads of the last axes, and with what."""
    op = v.node.op
    if not isinstance(op, Pad) or op.mode != "constant":
        return None
    x, fill = edit.operands(v.node)
    value = uniform_scalar(edit, fill)
    if value is None:
        return Refused("the value around is not constant")
    lead = len(op.pads) - spatial
    if any(p != (0, 0) for p in op.pads[:lead]):
        return Refused("other axes than the spatial ones are padded")
    return x, op.pads[lead:], value


class PadIntoConv(PaddedRule):
    """conv(pad(x, 0)) = conv(x) with more padding."""

    name = "pad_into_conv"
    roots: ClassVar[tuple[type[Op], ...]] = (Conv,)

    def match(
        self, edit: Editor, node: Node, settings: OptimizerSettings
    ) -> Padded | Refused | None:
        """Find zeros around the input."""
        op = node.op
        assert isinstance(op, Conv)
        x, w = edit.operands(node)
        around = _zeros_around(edit, x, len(op.pads))
        if around is None or isinstance(around, Refused):
            return around
        inner, pads, value = around
        if value != 0:
            return Refused("the value around is not 0")
        return Padded(replace(op, pads=_added(op.pads, pads)), (inner, w))


class PadIntoPool(PaddedRule):
    """pool(pad(x)) = pool(x) with more padding, where it means the same."""

    name = "pad_into_pool"
    roots: ClassVar[tuple[type[Op], ...]] = (Pool,)

    def match(
        self, edit: Editor, node: Node, settings: OptimizerSettings
    ) -> Padded | Refused | None:
        """Find constants around the input that are neutral, or counted as zeros."""
        op = node.op
        assert isinstance(op, Pool)
        (x,) = edit.operands(node)
        around = _zeros_around(edit, x, len(op.kernel))
        if around is None or isinstance(around, Refused):
            return around
        inner, pads, value = around
        more = replace(op, pads=_added(op.pads, pads))
        if op.indices != "none":
            return Refused("the positions in the padded tensor are asked for")
        if op.fn == "mean":
            own = any(p != (0, 0) for p in op.pads)
            if own and not op.count_include_pad:
                return Refused("a mean that counts one padding and not the other")
            more = replace(more, count_include_pad=True)
        wrong = _not_neutral(edit, more, inner, value)
        if wrong is not None:
            return wrong
        if _counts(more, inner) != node.results[0].shape[-len(op.kernel) :]:
            return Refused("the last window of ceil mode would differ")
        return Padded(more, (inner,))


def _not_neutral(edit: Editor, op: Pool, x: Value, value: np.generic) -> Refused | None:
    """Say why a value around x may not become padding of the pool."""
    if op.fn != "max":
        return None if value == 0 else Refused("the value around is not 0")
    if x.dtype.is_float and value == -np.inf:
        return None
    range_ = value_range(edit, x)
    if not (value == 0 and range_.low >= 0) or not x.dtype.is_float:
        return Refused("the value around may be the maximum")
    # zeros are never above what is in a window, but a window of zeros alone would be lost
    lead = x.rank - len(op.kernel)
    axes = zip(op.kernel, op.dilations, op.pads, x.shape[lead:], strict=True)
    for k, d, (before, after), n in axes:
        inside = d == 1 and provably_ge(n, 1)
        if not (inside and provably_ge(k - 1, before) and provably_ge(k - 1, after)):
            return Refused("a window may lie in the padding alone")
    return None


def _counts(op: Pool, x: Value) -> tuple[Size, ...]:
    axes = zip(
        x.shape[x.rank - len(op.kernel) :],
        op.kernel,
        op.strides,
        op.dilations,
        op.pads,
        strict=True,
    )
    return tuple(window_count(n, k, s, d, p, ceil=op.ceil) for n, k, s, d, p in axes)


RULES = (PadOfPad(), PadIntoConv(), PadIntoPool())
