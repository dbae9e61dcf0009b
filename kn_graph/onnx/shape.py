"""Converters of operators that make shapes of shapes: reshape, slice, concat, pad and so on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from kn_graph.dim import Size, size_prod
from kn_graph.dim_facts import provably_ge
from kn_graph.joined import known_sizes
from kn_graph.onnx.registry import converter

if TYPE_CHECKING:
    from kn_graph.onnx.context import NodeContext
    from kn_graph.value import Value

__all__: list[str] = []

ANY_INTEGER = -(2**63)
"""Lower bound of a size read at run time that may be negative, such as the start of a slice."""


@converter("Identity")
def identity(ctx: NodeContext) -> Value:
    """The operand."""
    return ctx.input(0)


@converter("Constant")
def constant(ctx: NodeContext) -> Value:
    """A tensor, sparse tensor, number or text, or a list of them, from one attribute."""
    g = ctx.graph
    for name, make in _CONSTANTS.items():
        if ctx.has(name):
            out: Value = make(ctx, g)
            return out
    return ctx.fail("has no value")


def _tensor_constant(ctx: NodeContext, g: Any) -> Value:
    loaded = ctx.tensor("value")
    out: Value = g.constant(loaded.array, origin=loaded.origin)
    return out


_CONSTANTS: dict[str, Any] = {
    "value": _tensor_constant,
    "sparse_value": lambda ctx, g: g.constant(ctx.sparse_tensor("sparse_value").array),
    "value_int": lambda ctx, g: g.constant(np.array(ctx.integer("value_int"), np.int64)),
    "value_ints": lambda ctx, g: g.constant(np.array(ctx.integers("value_ints"), np.int64)),
    "value_float": lambda ctx, g: g.constant(np.array(ctx.real("value_float"), np.float32)),
    "value_floats": lambda ctx, g: g.constant(np.array(ctx.reals("value_floats"), np.float32)),
    "value_string": lambda ctx, g: g.constant(np.array(ctx.text("value_string"), object)),
    "value_strings": lambda ctx, g: g.constant(np.array(ctx.texts("value_strings"), object)),
}


@converter("Shape")
def shape(ctx: NodeContext) -> Value:
    """The sizes from axis `start` up to `end`, both counted from the end where negative."""
    sizes = ctx.input(0).shape
    start, end = ctx.integer("start", 0), ctx.integer("end", len(sizes))
    return ctx.graph.size_tensor(_objects(sizes[slice(start, end)]))


def _objects(sizes: tuple[Size, ...]) -> np.ndarray[Any, Any]:
    out = np.empty(len(sizes), object)
    out[:] = sizes
    return out


@converter("Size")
def size(ctx: NodeContext) -> Value:
    """The number of elements."""
    out = np.empty((), object)
    out[()] = size_prod(ctx.input(0).shape)
    return ctx.graph.size_tensor(out)


@converter("ConstantOfShape")
def constant_of_shape(ctx: NodeContext) -> Value:
    """One element, repeated to a shape read from the input."""
    fill = ctx.tensor("value", None)
    if fill is not None and fill.array.size != 1:
        ctx.fail(f"attribute 'value' must have one element, got {fill.array.size}")
    array = np.zeros((), np.float32) if fill is None else fill.array.reshape(())
    shape = ctx.sizes(0)
    assert shape is not None
    return ctx.graph.broadcast(ctx.graph.constant(array), shape)


@converter("Reshape", until=4)
def reshape_attribute(ctx: NodeContext) -> Value:
    """The shape is an attribute."""
    ctx.ignore("consumed_inputs")
    return _reshape(ctx, ctx.input(0), ctx.integers("shape"), allow_zero=False)


@converter("Reshape", since=5)
def reshape(ctx: NodeContext) -> Value:
    """0 copies a size unless allowzero, -1 is inferred."""
    allow_zero = ctx.flag("allowzero", False)
    x, wanted = ctx.input(0), ctx.input(1)
    if wanted.content is not None:
        return _reshape(ctx, x, ctx.graph.read_sizes(wanted), allow_zero)
    resolved = _resolve_at_run_time(ctx, x, wanted, allow_zero)
    pairs = zip(known_sizes(wanted), ctx.graph.read_sizes(resolved), strict=True)
    sizes = tuple(s if k is None or not provably_ge(k, 1) else k for k, s in pairs)
    return ctx.graph.view(x, sizes)


def _reshape(ctx: NodeContext, x: Value, sizes: tuple[Size, ...], allow_zero: bool) -> Value:
    if allow_zero and 0 in sizes and -1 in sizes:
        ctx.fail(f"shape {list(sizes)} has both 0 and -1 under allowzero")
    if not allow_zero:
        for axis, s in enumerate(sizes):
            if s == 0 and axis >= x.rank:
                ctx.fail(f"shape {list(sizes)} copies axis {axis}, the input has rank {x.rank}")
        sizes = tuple(x.shape[a] if s == 0 else s for a, s in enumerate(sizes))
    return ctx.graph.reshape(x, sizes)


def _resolve_at_run_time(ctx: NodeContext, x: Value, wanted: Value, allow_zero: bool) -> Value:
    """Replace 0 and -1 in a shape that is only known at run time, with tensor arithmetic."""
    g = ctx.graph
    (rank,) = wanted.shape
    if not isinstance(rank, int):
        ctx.unsupported("the rank of the result is only known at run time")
    zero, minus, one = (g.constant(np.array(n, np.int64)) for n in (0, -1, 1))
    if not allow_zero:
        own = x.shape[:rank] + (1,) * (rank - x.rank)
        wanted = g.select(g.compare("eq", wanted, zero), g.size_tensor(_objects(own)), wanted)
    inferred = g.compare("eq", wanted, minus)
    known = g.reduce("prod", g.select(inferred, one, wanted), (0,), keep=False)
    total = g.size_tensor(np.array(size_prod(x.shape), object))
    rest = g.div(total, g.maximum(known, one))
    return g.select(inferred, rest, wanted)


@converter("Flatten")
def flatten(ctx: NodeContext) -> Value:
    """Two axes: those before `axis` merged, and the rest merged."""
    axis = ctx.integer("axis", 1)
    x = ctx.input(0)
    if not -x.rank <= axis <= x.rank:
        ctx.fail(f"axis {axis} does not exist in a tensor of rank {x.rank}")
    return ctx.graph.flatten(x, axis if axis >= 0 else axis + x.rank)


@converter("Transpose")
def transpose(ctx: NodeContext) -> Value:
    """Reorder axes; without `perm` reverse them."""
    x = ctx.input(0)
    return ctx.graph.permute(x, ctx.integers("perm", tuple(reversed(range(x.rank)))))


@converter("Squeeze")
def squeeze(ctx: NodeContext) -> Value:
    """Drop axes of size 1: those named, or all that are 1."""
    x = ctx.input(0)
    axes = _axes_of(ctx, since_input=13)
    if axes is None:
        ones = [ctx.decide_equal(s, 1) for s in x.shape]
        if None in ones:
            ctx.unsupported(f"which axes of {x.type} have size 1 is only known at run time")
        axes = tuple(a for a, one in enumerate(ones) if one)
    return ctx.graph.squeeze(x, axes)


@converter("Unsqueeze")
def unsqueeze(ctx: NodeContext) -> Value:
    """Insert axes of size 1."""
    axes = _axes_of(ctx, since_input=13)
    if axes is None:
        ctx.fail("axes are required")
    return ctx.graph.unsqueeze(ctx.input(0), axes)


def _axes_of(ctx: NodeContext, since_input: int) -> tuple[int, ...] | None:
    """Take axes from the attribute (old opsets) or from input 1."""
    if ctx.opset < since_input:
        axes: tuple[int, ...] | None = ctx.integers("axes", None)
        return axes
    value = ctx.optional(1)
    return None if value is None else ctx.axes(value)


@converter("Expand")
def expand(ctx: NodeContext) -> Value:
    """Broadcast to the common shape with the one read from input 1."""
    shape = ctx.sizes(1)
    assert shape is not None
    return ctx.graph.expand(ctx.input(0), shape)


@converter("Tile", until=5)
def tile_axis(ctx: NodeContext) -> Value:
    """Repeat one axis."""
    tiles, axis = ctx.sizes(1), ctx.input(2)
    assert tiles is not None
    return ctx.graph.repeat(ctx.input(0), ctx.axes(axis)[0], tiles[0])


@converter("Tile", since=6)
def tile(ctx: NodeContext) -> Value:
    """Repeat every axis."""
    x, counts = ctx.input(0), ctx.sizes(1)
    assert counts is not None
    if len(counts) != x.rank:
        ctx.fail(f"has {len(counts)} repeats for a tensor of rank {x.rank}")
    for axis, count in enumerate(counts):
        x = ctx.graph.repeat(x, axis, count)
    return x


@converter("Concat")
def concat(ctx: NodeContext) -> Value:
    """Join along an axis; the attribute defaults to 1 before opset 4."""
    axis = ctx.integer("axis", 1) if ctx.opset < 4 else ctx.integer("axis")
    return ctx.graph.concat(ctx.inputs(), axis)


@converter("Slice", until=9)
def slice_attributes(ctx: NodeContext) -> Value:
    """Bounds are attributes."""
    starts, ends = ctx.integers("starts"), ctx.integers("ends")
    axes = ctx.integers("axes", tuple(range(len(starts))))
    return _slice(ctx, ctx.input(0), starts, ends, axes, (1,) * len(starts))


@converter("Slice", since=10)
def slice_inputs(ctx: NodeContext) -> Value:
    """Bounds are inputs."""
    x = ctx.input(0)
    starts, ends = ctx.sizes(1, lo=ANY_INTEGER), ctx.sizes(2, lo=ANY_INTEGER)
    assert starts is not None
    assert ends is not None
    axes, steps = ctx.optional(3), ctx.optional(4)
    return _slice(
        ctx,
        x,
        starts,
        ends,
        tuple(range(len(starts))) if axes is None else ctx.axes(axes),
        (1,) * len(starts) if steps is None else ctx.axes(steps, "steps", guess=_ones),
    )


def _ones(count: int) -> list[int]:
    return [1] * count


def _slice(
    ctx: NodeContext,
    x: Value,
    starts: tuple[Size, ...],
    ends: tuple[Size, ...],
    axes: tuple[int, ...],
    steps: tuple[int, ...],
) -> Value:
    lengths = {len(starts), len(ends), len(axes), len(steps)}
    if len(lengths) != 1:
        ctx.fail(f"starts, ends, axes and steps differ in length: {sorted(lengths)}")
    axes = ctx.normal_axes(axes, x.rank)
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        x = ctx.graph.slice_bounds(x, axis, start, end, step)
    return x


@converter("Split")
def split(ctx: NodeContext) -> list[Value]:
    """Cut an axis into parts of given or (nearly) equal sizes."""
    x, axis = ctx.input(0), ctx.integer("axis", 0)
    (axis,) = ctx.normal_axes((axis,), x.rank)
    ctx_sizes = _split_sizes(ctx)
    if ctx_sizes is None:
        parts = (
            ctx.integer("num_outputs", ctx.output_count) if ctx.opset >= 18 else ctx.output_count
        )
        n = x.shape[axis]
        chunk = (n + (parts - 1)) // parts
        ctx_sizes = (*(chunk,) * (parts - 1), n - chunk * (parts - 1))
    return ctx.graph.split(x, axis, ctx_sizes)


def _split_sizes(ctx: NodeContext) -> tuple[Size, ...] | None:
    if ctx.opset >= 13:
        return ctx.sizes(1)
    sizes: tuple[Size, ...] | None = ctx.integers("split", None)
    return ctx.sizes(1) if sizes is None and ctx.opset < 2 else sizes


@converter("Pad", until=10)
def pad_attributes(ctx: NodeContext) -> Value:
    """Pads and value are attributes."""
    g, x = ctx.graph, ctx.input(0)
    mode = ctx.choice("mode", "constant", ("constant", "reflect", "edge"))
    pads = ctx.integers("paddings") if ctx.opset < 2 else ctx.integers("pads")
    value = g.scalar(ctx.real("value", 0.0), x.dtype)
    return _pad(ctx, x, pads, tuple(range(x.rank)), mode, value)


@converter("Pad", since=11)
def pad(ctx: NodeContext) -> Value:
    """Pads, value and axes are inputs; negative pads cut."""
    x = ctx.input(0)
    mode = ctx.choice("mode", "constant", ("constant", "reflect", "edge", "wrap"))
    pads, value, axes = ctx.sizes(1, lo=ANY_INTEGER), ctx.optional(2), ctx.optional(3)
    assert pads is not None
    where = tuple(range(x.rank)) if axes is None else ctx.normal_axes(ctx.axes(axes), x.rank)
    if value is not None and value.rank:
        value = ctx.graph.view(value, ())
    return _pad(ctx, x, pads, where, mode, value)


def _pad(
    ctx: NodeContext,
    x: Value,
    pads: tuple[Size, ...],
    axes: tuple[int, ...],
    mode: Any,
    value: Value | None,
) -> Value:
    if len(pads) != 2 * len(axes):
        ctx.fail(f"has {len(pads)} pads for {len(axes)} axes")
    pairs: list[tuple[Size, Size]] = [(0, 0)] * x.rank
    for i, axis in enumerate(axes):
        pairs[axis] = (pads[i], pads[i + len(axes)])
    return ctx.graph.pad(x, pairs, mode, value)
