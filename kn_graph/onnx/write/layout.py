"""Writers of operations that move or repeat elements."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kn_graph.dim import Dim, Size, exact_div, size_max, size_min, size_prod, size_sum
from kn_graph.dim_facts import ConstraintKind, provably_ge
from kn_graph.onnx.write.registry import writer
from kn_graph.ops.layout import Broadcast, Concat, Flip, Pad, Permute, Slice, View
from kn_graph.types import Shape

if TYPE_CHECKING:
    from kn_graph.onnx.write.node import NodeWriter

__all__: list[str] = []

TO_THE_END = 2**63 - 1
BEFORE_THE_START = -(2**63)


@writer(View)
def view(ctx: NodeWriter, op: View) -> str:
    """Unsqueeze, Squeeze, or Reshape with as few computed sizes as possible."""
    before, after = ctx.values[0].shape, op.shape
    if any(isinstance(s, Dim) for s in after):
        inserted, dropped = _missing_ones(after, before), _missing_ones(before, after)
        if inserted is not None:
            return ctx.emit("Unsqueeze", ctx.x, ctx.ints(*inserted))
        if dropped is not None:
            return ctx.emit("Squeeze", ctx.x, ctx.ints(*dropped))
    numbers = _numbers(before, after)
    if numbers is not None:
        return ctx.emit("Reshape", ctx.x, ctx.ints(*numbers))
    return ctx.reshape(ctx.x, after)


def _missing_ones(long: Shape, short: Shape) -> list[int] | None:
    """Return axes of size 1 without which `long` is `short`."""
    axes: list[int] = []
    at = 0
    for axis, size in enumerate(long):
        if at < len(short) and short[at] == size:
            at += 1
        elif size == 1:
            axes.append(axis)
        else:
            return None
    return axes if axes and at == len(short) else None


def _numbers(before: Shape, after: Shape) -> list[int] | None:
    """Return a shape of numbers for Reshape: 0 keeps a size, one -1 follows from the others."""
    if all(isinstance(s, int) for s in after):
        return None
    if any(provably_ge(s, 1) is not True for s in after):
        return None
    numbers: list[int] = []
    for axis, size in enumerate(after):
        if isinstance(size, int):
            numbers.append(size)
        elif axis < len(before) and before[axis] == size:
            numbers.append(0)
        else:
            numbers.append(-1)
    if numbers.count(-1) > 1:
        return None
    if -1 in numbers:
        at = numbers.index(-1)
        others = size_prod(after[:at] + after[at + 1 :])
        if exact_div(size_prod(before), others) != after[at]:
            return None
    return numbers


@writer(Broadcast)
def broadcast(ctx: NodeWriter, op: Broadcast) -> str:
    """Expand; sizes that stay are 1 there."""
    before = ctx.values[0].shape
    wanted: list[Size] = [
        1 if b == s and isinstance(s, Dim) else s for b, s in zip(before, op.shape, strict=True)
    ]
    return ctx.emit("Expand", ctx.x, ctx.sizes(wanted))


@writer(Permute)
def permute(ctx: NodeWriter, op: Permute) -> str:
    """Transpose."""
    return ctx.emit("Transpose", ctx.x, perm=op.axes)


@writer(Slice)
def slice_(ctx: NodeWriter, op: Slice) -> str:
    """Slice, or Split where it does not show that the bounds lie inside."""
    n = ctx.values[0].shape[op.axis]
    end = op.start + (op.length - 1) * op.step + 1 if op.length != 0 else op.start
    if ctx.scope.sizes.are_read(op.start, op.length) or not _shows(op, n, end):
        return _split(ctx, op, n, end)
    axis, step = ctx.ints(op.axis), ctx.ints(op.step)
    stop = TO_THE_END if end == n and isinstance(n, Dim) else end
    return ctx.emit("Slice", ctx.x, ctx.sizes([op.start]), ctx.sizes([stop]), axis, step)


def _shows(op: Slice, n: Size, end: Size) -> bool:
    """Return whether a slice of ONNX, which cuts its bounds to the axis, has the same length."""
    if not provably_ge(op.start, 0) or (isinstance(end, Dim) and not provably_ge(end, 0)):
        return False
    first, last = size_min(size_max(op.start, 0), n), size_min(size_max(end, 0), n)
    length = (last - first + (op.step - 1)) // op.step
    return bool(first == op.start and size_max(0, length) == op.length)


def _split(ctx: NodeWriter, op: Slice, n: Size, end: Size) -> str:
    """Cut into what is before, what is wanted, and what is behind; or into parts that are given."""
    given = _given_parts(ctx, op, n) if op.step == 1 else None
    if given is not None:
        vector, count, index = given
        return ctx.scope.split(ctx.x, vector, count, op.axis)[index]
    parts = [op.start, end - op.start, n - end]
    kept = [p for p in parts if p != 0 or p is parts[1]]
    at = 0 if op.start == 0 else 1
    if len(kept) == 1:
        part = ctx.x
    else:
        lengths = ctx.sizes(kept)
        part = ctx.scope.split(ctx.x, lengths, len(kept), op.axis)[at]
    if op.step == 1:
        return part
    first, last, axis, step = (ctx.ints(i) for i in (0, TO_THE_END, op.axis, op.step))
    return ctx.emit("Slice", part, first, last, axis, step)


def _given_parts(ctx: NodeWriter, op: Slice, n: Size) -> tuple[str, int, int] | None:
    """Return a vector of lengths that add up to n, how many, and which of them is the slice."""
    equal = [c.dim for c in ctx.node.graph.constraints if c.kind is ConstraintKind.EQ]
    for lengths, vector in ctx.scope.sizes.vectors():
        if op.length not in lengths:
            continue
        rest = size_sum(lengths) - n
        if rest != 0 and not any(rest in (d, -d) for d in equal):
            continue
        start: Size = 0
        for index, length in enumerate(lengths):
            if start == op.start and length == op.length:
                return vector, len(lengths), index
            start = start + length
    return None


@writer(Flip)
def flip(ctx: NodeWriter, op: Flip) -> str:
    """A slice from the last element to the first."""
    bounds = (-1, BEFORE_THE_START, op.axis, -1)
    return ctx.emit("Slice", ctx.x, *map(ctx.ints, bounds))


@writer(Concat)
def concat(ctx: NodeWriter, op: Concat) -> str:
    """Concat."""
    return ctx.emit("Concat", *ctx.inputs, axis=op.axis)


@writer(Pad)
def pad(ctx: NodeWriter, op: Pad) -> str:
    """Pad."""
    pads = ctx.sizes([b for b, _ in op.pads] + [a for _, a in op.pads])
    mode = None if op.mode == "constant" else op.mode
    return ctx.emit("Pad", ctx.x, pads, *ctx.inputs[1:], mode=mode)
