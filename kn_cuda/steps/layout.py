"""What moves elements and computes nothing: see `kernels/layout.cu`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kn_cuda.axes import blocks_for, in_order
from kn_cuda.builder import KernelBuilder
from kn_cuda.calls import Launch
from kn_cuda.elements import Front
from kn_cuda.lowering import Calls, Lowering
from kn_cuda.places import add_places
from kn_cuda.target import MOST_JOINED
from kn_cuda.types import compute_type, raw_type, storage_type
from kn_graph.dim import Size, size_prod
from kn_graph.ops.layout import Concat, Pad
from kn_graph.types import Shape
from kn_plan.calls import UnsupportedError
from kn_plan.plan import Operand, Step
from kn_plan.program import ScalarProgram

__all__ = ["concat", "pad"]

MODES = {"constant": 0, "edge": 1, "reflect": 2, "wrap": 3}


@dataclass(frozen=True)
class _Part:
    """One of the tensors that are joined.

    Attributes:
        length: along the axis.
        sources: what it is made of: itself, or what a program reads.
        program: makes it; None where it lies in memory.
    """

    length: Size
    sources: tuple[Operand, ...]
    program: ScalarProgram | None = None


def concat(low: Lowering, step: Step, op: Concat, front: Front | None = None) -> Calls:
    """Copy every part to its place, several in one launch; or make them by a program in front."""
    (out,) = step.writes[:1]
    parts = [_part(o, op.axis, front) for o in step.reads]
    if step.program is not None or front is not None:
        stored = front is not None and len(front.writes) + sum(map(bool, front.writes)) != 1
        if len(parts) > MOST_JOINED or stored:
            raise UnsupportedError("programs run where one launch joins all, and stores no more")
        return [_concat(low, step, step.shape, parts, op.axis)]
    calls: Calls = []
    start: Size = 0
    for first in range(0, len(parts), MOST_JOINED):
        some = parts[first : first + MOST_JOINED]
        length = sum((p.length for p in some), start=0)
        place = Operand(out.buffer, out.layout.slice(op.axis, start, length))
        start = start + length
        if len(some) > 1:
            piece = replace(step, writes=(place,))
            calls.append(_concat(low, piece, place.layout.sizes, some, op.axis))
        else:
            calls.append(low.copy(place, *some[0].sources))
    return calls


def _part(operand: Operand, axis: int, front: Front | None) -> _Part:
    length = operand.layout.sizes[axis]
    if front is None or operand != front.made:
        return _Part(length, (operand,))
    return _Part(length, front.reads, front.program)


def _concat(low: Lowering, step: Step, sizes: Shape, parts: Sequence[_Part], axis: int) -> Launch:
    """Return a launch that joins parts; elements stay bits where no program runs."""
    assert step.node is not None
    dtype, out = step.node.results[0].dtype, step.writes[0]
    plain = step.program is None and all(p.program is None for p in parts)
    sources = [o for p in parts for o in p.sources]
    order = in_order(out.layout.strides)
    b = KernelBuilder("layout", "layout_concat", low.threads)
    b.constant("SOURCES", len(sources))
    for i, source in enumerate(sources):
        b.reads(f"x{i}", source, (raw_type if plain else storage_type)(low.dtype(source)))
    b.number("count", size_prod(sizes))
    b.numbers("x_step", tuple(o.layout.strides[axis] for o in sources))
    b.numbers("lengths", tuple(p.length for p in parts))
    rows = [o.layout.strides for o in sources]
    if plain:
        type_ = raw_type(dtype)
        b.writes("y", out, type_)
        b.number("y_step", out.layout.strides[axis])
        rows.append(out.layout.strides)
    else:
        type_ = compute_type(dtype)
        low.end(b, step, order)
    b.constant("PLAIN", plain)
    add_places(b, sizes, order, {axis: 0}, *rows)
    b.code(_part_function(b, type_, parts, len(rows)))
    return b.launch(blocks_for(size_prod(sizes), low.threads), extent=size_prod(sizes))


def _part_function(b: KernelBuilder, type_: str, parts: Sequence[_Part], operands: int) -> str:
    """Return the function that reads or makes the element of the part that a place lies in."""
    lines, first = [], 0
    for i, part in enumerate(parts):
        if i:
            lines.append(f"o -= n.lengths[{i - 1}];")
        names = range(first, first := first + len(part.sources))
        given = [f"widened(p.x{k}[at[{k}] + o * n.x_step[{k}]])" for k in names]
        made = [f"return {given[0]};"]
        if part.program is not None:
            b.program(part.program, f"front{i}")
            made = [
                f"{type_} made;",
                f"front{i}({', '.join(['p', *given, 'made'])});",
                "return made;",
            ]
        last = i + 1 == len(parts)
        lines += made if last else [f"if (o < n.lengths[{i}]) {{ {' '.join(made)} }}"]
    body = "".join(f"    {line}\n" for line in lines)
    return (
        f"KN_DEVICE static {type_} part(\n    const Pointers& p, const Numbers& n, "
        f"const Index (&at)[{operands}], Index o) {{\n{body}}}\n"
    )


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
