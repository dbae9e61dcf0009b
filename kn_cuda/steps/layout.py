"""What moves elements and computes nothing: see `kernels/layout.cu`."""

from __future__ import annotations

from collections.abc import Sequence

from kn_cuda.axes import blocks_for, in_order
from kn_cuda.builder import KernelBuilder
from kn_cuda.calls import Launch
from kn_cuda.lowering import Calls, Lowering
from kn_cuda.places import add_places
from kn_cuda.types import raw_type
from kn_graph.dim import Size
from kn_graph.ops.layout import Concat, Pad
from kn_plan.plan import Operand, Step

__all__ = ["concat", "pad"]

MOST_PARTS = 8
"""Tensors that one launch joins."""

MODES = {"constant": 0, "edge": 1, "reflect": 2, "wrap": 3}


def concat(low: Lowering, step: Step, op: Concat) -> Calls:
    """Copy every part to its place, several in one launch."""
    (out,) = step.writes
    calls: Calls = []
    start: Size = 0
    for first in range(0, len(step.reads), MOST_PARTS):
        parts = step.reads[first : first + MOST_PARTS]
        length = sum((o.layout.sizes[op.axis] for o in parts), start=0)
        place = Operand(out.buffer, out.layout.slice(op.axis, start, length))
        start = start + length
        joined = len(parts) > 1
        calls.append(_concat(low, place, parts, op.axis) if joined else low.copy(place, parts[0]))
    return calls


def _concat(low: Lowering, out: Operand, parts: Sequence[Operand], axis: int) -> Launch:
    type_ = raw_type(low.dtype(out))
    b = KernelBuilder("layout", "layout_concat", low.threads)
    b.constant("PARTS", len(parts))
    b.writes("y", out, type_)
    for i, part in enumerate(parts):
        b.reads(f"x{i}", part, type_)
    b.number("count", out.layout.numel)
    b.number("y_step", out.layout.strides[axis])
    b.numbers("x_step", tuple(o.layout.strides[axis] for o in parts))
    b.numbers("lengths", tuple(o.layout.sizes[axis] for o in parts))
    rows = [o.layout.strides for o in (*parts, out)]
    add_places(b, out.layout.sizes, in_order(out.layout.strides), {axis: 0}, *rows)
    lines = []
    for i in range(len(parts)):
        read = f"return p.x{i}[at[{i}] + o * n.x_step[{i}]];"
        if i + 1 < len(parts):
            lines += [f"if (o < n.lengths[{i}]) {read}", f"o -= n.lengths[{i}];"]
        else:
            lines.append(read)
    body = "".join(f"    {line}\n" for line in lines)
    b.code(
        f"KN_DEVICE static {type_} part(\n    const Pointers& p, const Numbers& n, "
        f"const Index (&at)[{len(rows)}], Index o) {{\n{body}}}"
    )
    return b.launch(blocks_for(out.layout.numel, low.threads))


def pad(low: Lowering, step: Step, op: Pad) -> Calls:
    """Copy the operand with what is around it."""
    x, *values = step.reads
    (out,) = step.writes
    type_ = raw_type(low.dtype(out))
    order = in_order(out.layout.strides)
    padded = [a for a in order if op.pads[a] != (0, 0)]
    b = KernelBuilder("layout", "layout_pad", low.threads)
    b.constant("MODE", MODES[op.mode])
    b.constant("RANK", max(1, len(padded)))
    b.writes("y", out, type_)
    b.reads("x", x, type_)
    if values:
        b.reads("value", values[0], type_)
    b.number("count", out.layout.numel)
    rows: Sequence[tuple[str, Sequence[Size], Size]] = (
        ("sizes", x.layout.sizes, 1),
        ("before", [before for before, _ in op.pads], 0),
        ("y_strides", out.layout.strides, 0),
        ("x_strides", x.layout.strides, 0),
    )
    for name, row, missing in rows:
        b.numbers(name, tuple(row[a] for a in padded) or (missing,))
    special = {a: i for i, a in enumerate(padded)}
    add_places(b, out.layout.sizes, order, special, out.layout.strides, x.layout.strides)
    return [b.launch(blocks_for(out.layout.numel, low.threads))]
