"""Converters of sequences and optionals; what is visible is resolved when the model is loaded."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from kn_graph.dim import Size
from kn_graph.dtype import DType
from kn_graph.onnx.registry import converter
from kn_graph.ops.host import HostCall
from kn_graph.ops.layout import Broadcast
from kn_graph.types import OptionalType

if TYPE_CHECKING:
    from kn_graph.onnx.context import NodeContext
    from kn_graph.value import Value

__all__ = ["elements_of"]

MAX_PARTS = 256
"""A tensor is only split into as many parts while loading; more are split at run time."""


def _operands(value: Value, function: str) -> tuple[Value, ...] | None:
    """Return what a value was made of, if it comes from this host function."""
    op = value.node.op
    return value.node.operands if isinstance(op, HostCall) and op.name == function else None


def elements_of(sequence: Value) -> tuple[Value, ...] | None:
    """Return the elements of a sequence that was made here; None of any other value."""
    return _operands(sequence, "sequence_construct")


def _made_of(ctx: NodeContext, elements: Iterable[Value], dtype: Any) -> Value:
    (sequence,) = ctx.graph.host_call("sequence_construct", *elements, dtype=dtype)
    return sequence


def _with_elements(ctx: NodeContext, sequence: Value, elements: Iterable[Value]) -> Value:
    """Make a sequence of other elements of the same type."""
    return _made_of(ctx, elements, dict(getattr(sequence.node.op, "attributes", ()))["dtype"])


def _call(ctx: NodeContext, function: str, *operands: Value | None, **attributes: Any) -> Value:
    given = [v for v in operands if v is not None]
    return ctx.graph.host_call(function, *given, **attributes)[0]


def _position(value: Value | None, default: int) -> int | None:
    """Return a position that is known when the model is loaded."""
    if value is None:
        return default
    content = value.content
    known = None if content is None or content.size != 1 else content.item()
    return known if isinstance(known, int) else None


@converter("SequenceEmpty")
def sequence_empty(ctx: NodeContext) -> Value:
    """No elements."""
    return _made_of(ctx, (), ctx.dtype("dtype", DType.FLOAT32))


@converter("SequenceConstruct")
def sequence_construct(ctx: NodeContext) -> Value:
    """The inputs."""
    elements = ctx.inputs()
    return _made_of(ctx, elements, elements[0].dtype)


@converter("SequenceInsert")
def sequence_insert(ctx: NodeContext) -> Value:
    """One more element, at the end by default."""
    sequence, x, position = ctx.input(0), ctx.input(1), ctx.optional(2)
    elements = elements_of(sequence)
    if elements is not None:
        n = len(elements)
        at = _position(position, n)
        if at is not None and -n <= at <= n:
            return _with_elements(ctx, sequence, (*elements[:at], x, *elements[at:]))
    return _call(ctx, "sequence_insert", sequence, x, position)


@converter("SequenceErase")
def sequence_erase(ctx: NodeContext) -> Value:
    """One element less, the last by default."""
    sequence, position = ctx.input(0), ctx.optional(1)
    elements, at = elements_of(sequence), _position(position, -1)
    if elements is not None and at is not None and -len(elements) <= at < len(elements):
        at %= len(elements)
        return _with_elements(ctx, sequence, (*elements[:at], *elements[at + 1 :]))
    return _call(ctx, "sequence_erase", sequence, position)


@converter("SequenceAt")
def sequence_at(ctx: NodeContext) -> Value:
    """One element."""
    sequence, position = ctx.input(0), ctx.input(1)
    elements, at = elements_of(sequence), _position(position, 0)
    if elements is not None and at is not None and -len(elements) <= at < len(elements):
        return elements[at]
    return _call(ctx, "sequence_at", sequence, position)


@converter("SequenceLength")
def sequence_length(ctx: NodeContext) -> Value:
    """The number of elements."""
    sequence = ctx.input(0)
    elements = elements_of(sequence)
    if elements is not None:
        return ctx.graph.constant(np.array(len(elements), np.int64))
    return _call(ctx, "sequence_length", sequence)


@converter("SplitToSequence")
def split_to_sequence(ctx: NodeContext) -> Value:
    """Parts of an axis: of size 1 (axis dropped unless keepdims), of a size, or of a list."""
    g, x, split = ctx.graph, ctx.input(0), ctx.optional(1)
    keep = ctx.flag("keepdims", True) or split is not None
    (axis,) = ctx.normal_axes((ctx.integer("axis", 0),), x.rank)
    if split is not None and _is_ones(split):
        g.require_eq(split.shape[0], x.shape[axis], "parts of one element, and elements")
        split = None
    lengths = _part_lengths(x.shape[axis], split)
    if lengths is None:
        return _call(ctx, "split_to_sequence", x, split, axis=axis, keep=keep)
    parts = g.split(x, axis, lengths)
    return _made_of(ctx, parts if keep else [g.squeeze(p, [axis]) for p in parts], x.dtype)


def _is_ones(split: Value) -> bool:
    """Return whether lengths are a 1, repeated as often as shows later."""
    op, operands = split.node.op, split.node.operands
    known = operands[0].content if isinstance(op, Broadcast) and split.content is None else None
    return split.rank == 1 and known is not None and known.tolist() in (1, [1])


def _part_lengths(n: Size, split: Value | None) -> tuple[Size, ...] | None:
    """Return the lengths of the parts where their number is known and moderate."""
    content = None if split is None else split.content
    if split is not None and content is None:
        return None
    if content is not None and content.ndim == 1:
        return tuple(content.tolist())
    step = 1 if content is None else content.item()
    if not (isinstance(n, int) and isinstance(step, int)) or step < 1 or n > MAX_PARTS * step:
        return None
    return tuple(min(step, n - start) for start in range(0, n, step))


@converter("ConcatFromSequence")
def concat_from_sequence(ctx: NodeContext) -> Value:
    """Join the elements along an axis, or along a new one."""
    g, sequence = ctx.graph, ctx.input(0)
    axis, stack = ctx.integer("axis"), ctx.flag("new_axis", False)
    elements = elements_of(sequence)
    if elements:
        return g.stack(elements, axis) if stack else g.concat(elements, axis)
    return _call(ctx, "concat_from_sequence", sequence, axis=axis, stack=stack)


# ---- optionals ----------------------------------------------------------------------------------


@converter("Optional")
def optional(ctx: NodeContext) -> Value:
    """The input, or nothing of the type given."""
    x, kind = ctx.optional(0), ctx.type_attribute("type", None)
    if x is None and kind is None:
        ctx.fail("has neither an input nor a type")
    attributes = {} if x is not None else {"type": kind}
    return _call(ctx, "optional", x, **attributes)


@converter("OptionalHasElement")
def optional_has_element(ctx: NodeContext) -> Value:
    """Whether there is a value."""
    g, x = ctx.graph, ctx.optional(0)
    made_of = None if x is None else _operands(x, "optional")
    if x is None or made_of is not None or not isinstance(x.type, OptionalType):
        return g.constant(np.array(x is not None and made_of != ()))
    return _call(ctx, "optional_has_element", x)


@converter("OptionalGetElement")
def optional_get_element(ctx: NodeContext) -> Value:
    """The value; it is an error when there is none."""
    x = ctx.input(0)
    made_of = _operands(x, "optional")
    if made_of or not isinstance(x.type, OptionalType):
        return made_of[0] if made_of else x
    return _call(ctx, "optional_get_element", x)
