"""Converters of operators that search, count and compute positions."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from kn_graph.dim import Size, ceildiv, size_max, size_prod
from kn_graph.dtype import DType
from kn_graph.onnx.registry import converter

if TYPE_CHECKING:
    from kn_graph.onnx.context import NodeContext
    from kn_graph.value import Value

__all__ = ["steps", "trilu"]

ANY_INTEGER = -(2**63)
"""Lower bound of a size read at run time that may be negative, such as the end of a range."""


def _scalar(ctx: NodeContext, x: Value) -> Value:
    return x if x.rank == 0 else ctx.graph.view(x, ())


@converter("NonZero")
def nonzero(ctx: NodeContext) -> Value:
    """Coordinates of what is not zero."""
    return ctx.graph.nonzero(ctx.input(0))


@converter("Compress")
def compress(ctx: NodeContext) -> Value:
    """The slices of an axis, or the elements, where a condition holds."""
    g, x, condition, axis = ctx.graph, ctx.input(0), ctx.input(1), ctx.integer("axis", None)
    if axis is None:
        x, axis = g.view(x, (size_prod(x.shape),)), 0
    return g.compress(x, condition, axis)


@converter("Unique")
def unique(ctx: NodeContext) -> list[Value]:
    """Different elements or slices, where they are and how many."""
    ordered = ctx.flag("sorted", True)
    return ctx.graph.unique(ctx.input(0), ctx.integer("axis", None), ordered=ordered)


@converter("NonMaxSuppression")
def non_max_suppression(ctx: NodeContext) -> Value:
    """Boxes that do not overlap. Without a number of boxes none is chosen."""
    g, boxes, scores = ctx.graph, ctx.input(0), ctx.input(1)
    max_boxes, iou, score = (ctx.optional(i) for i in (2, 3, 4))
    return g.non_max_suppression(
        boxes,
        scores,
        g.scalar(0, DType.INT64) if max_boxes is None else _scalar(ctx, max_boxes),
        g.scalar(0, boxes.dtype) if iou is None else _scalar(ctx, iou),
        None if score is None else _scalar(ctx, score),
        centered=ctx.flag("center_point_box", False),
    )


@converter("OneHot")
def one_hot(ctx: NodeContext) -> Value:
    """Compare indices with positions along a new axis; indices out of range match none."""
    g, indices, values = ctx.graph, ctx.input(0), ctx.input(2)
    (axis,) = ctx.normal_axes((ctx.integer("axis", -1),), indices.rank + 1)
    depth = _depth(ctx, ctx.input(1))
    positions = g.view(g.iota(depth), [depth if a == axis else 1 for a in range(indices.rank + 1)])
    where = g.cast(indices, DType.INT64)
    from_end = g.add(where, g.size_tensor(np.array(depth, object)))
    where = g.select(g.compare("lt", where, g.scalar(0, DType.INT64)), from_end, where)
    hot = g.compare("eq", g.unsqueeze(where, [axis]), positions)
    return g.select(hot, values[1], values[0])


def _depth(ctx: NodeContext, depth: Value) -> Size:
    if depth.constant is not None:
        return int(depth.constant.reshape(-1)[0])
    return ctx.graph.read_sizes(ctx.graph.cast(depth, DType.INT64), name="depth")[0]


@converter("Range")
def range_(ctx: NodeContext) -> Value:
    """Numbers from start on in steps of delta, up to limit."""
    return steps(ctx, ctx.input(2))


def steps(ctx: NodeContext, delta: Value) -> Value:
    """Return start + i*delta, up to limit: inputs 0 and 1."""
    g = ctx.graph
    start, limit, delta = (_scalar(ctx, v) for v in (ctx.input(0), ctx.input(1), delta))
    dtype = start.dtype
    # from opset 27 on narrow floats are computed in float32, unless the node says otherwise
    stash = ctx.flag("stash_type", True) if ctx.opset >= 27 else False
    wide = DType.FLOAT32 if stash and dtype.is_float and dtype.bits < 32 else dtype
    if _known(delta) == 0:
        ctx.fail("delta is 0")
    count = _integer_steps if dtype.is_int else _float_steps
    length = count(ctx, wide, start, limit, delta)
    numbers = g.iota(length, dtype) if dtype.is_int else g.cast(g.iota(length), wide)
    if _known(delta) != 1:
        numbers = g.mul(numbers, g.cast(delta, wide))
    if _known(start) != 0:
        numbers = g.add(numbers, g.cast(start, wide))
    return g.cast(numbers, dtype)


def _known(v: Value) -> Any:
    """The number or size that a scalar is, where it is known."""
    if v.content is not None and v.dtype.is_int:
        return v.content.item()
    return None if v.constant is None else v.constant.item()


def _integer_steps(
    ctx: NodeContext, dtype: DType, start: Value, limit: Value, delta: Value
) -> Size:
    """max(0, ceil((limit - start) / delta)), as a size where it is known."""
    g = ctx.graph
    first, end, step = (_known(v) for v in (start, limit, delta))
    if isinstance(step, int) and first is not None and end is not None:
        span: Size = end - first if step > 0 else first - end
        return size_max(0, ceildiv(span, abs(step)))
    a, b, d = (g.cast(v, DType.INT64) for v in (start, limit, delta))
    if (first, step) == (0, 1):
        return size_max(0, g.read_sizes(b, name="range", lo=ANY_INTEGER)[0])
    steps = g.div(g.sub(g.add(g.sub(b, a), d), g.unary("sign", d)), d)
    return g.read_sizes(g.maximum(steps, g.scalar(0, DType.INT64)), name="range")[0]


def _float_steps(ctx: NodeContext, dtype: DType, start: Value, limit: Value, delta: Value) -> Size:
    """The same of floats: the difference in their own type, the quotient in float64."""
    g, bounds = ctx.graph, (start, limit, delta)
    known = [v.constant.astype(dtype.numpy) for v in bounds if v.constant is not None]
    if len(known) == 3:
        steps = float(known[1] - known[0]) / float(known[2])
        if not math.isfinite(steps):
            ctx.fail(f"has {steps} elements: start, limit and delta are {known}")
        return max(0, math.ceil(steps))
    a, b, d = (g.cast(v, dtype) for v in bounds)
    quotient = g.div(g.cast(g.sub(b, a), DType.FLOAT64), g.cast(d, DType.FLOAT64))
    whole = g.cast(g.unary("ceil", quotient), DType.INT64)
    return g.read_sizes(g.maximum(whole, g.scalar(0, DType.INT64)), name="range")[0]


def _diagonals(ctx: NodeContext, rows: Size, columns: Size) -> Value:
    """[rows, columns]: which diagonal each element is on; 0 is the main one, above it > 0."""
    g = ctx.graph
    return g.sub(g.view(g.iota(columns), (1, columns)), g.view(g.iota(rows), (rows, 1)))


@converter("Trilu")
def trilu(ctx: NodeContext) -> Value:
    """The elements on and above (or below) a diagonal of each matrix; others become 0."""
    g, x, k = ctx.graph, ctx.input(0), ctx.optional(1)
    if x.rank < 2:
        ctx.fail(f"needs matrices, got {x.type}")
    which = "ge" if ctx.flag("upper", True) else "le"
    bound = g.scalar(0, DType.INT64) if k is None else _scalar(ctx, k)
    kept = g.compare(which, _diagonals(ctx, x.shape[-2], x.shape[-1]), bound)
    return g.select(kept, x, g.scalar("" if x.dtype is DType.STRING else 0, x.dtype))


@converter("EyeLike")
def eye_like(ctx: NodeContext) -> Value:
    """1 on a diagonal, 0 elsewhere, in the shape of the input."""
    g, x = ctx.graph, ctx.input(0)
    if x.rank != 2:
        ctx.fail(f"needs a matrix, got {x.type}")
    k = g.scalar(ctx.integer("k", 0), DType.INT64)
    return g.cast(g.compare("eq", _diagonals(ctx, *x.shape), k), ctx.dtype("dtype", x.dtype))


@converter("ReverseSequence")
def reverse_sequence(ctx: NodeContext) -> Value:
    """Reverse the first elements of each sequence: as many as its length says."""
    g, x, lengths = ctx.graph, ctx.input(0), ctx.input(1)
    time, batch = ctx.integer("time_axis", 0), ctx.integer("batch_axis", 1)
    if {time, batch} != {0, 1} or x.rank < 2:
        ctx.fail(f"time axis {time} and batch axis {batch} of {x.type} must be 0 and 1")

    def along(axis: int, v: Value) -> Value:
        return g.view(v, [s if a == axis else 1 for a, s in enumerate(x.shape)])

    step, length = along(time, g.iota(x.shape[time])), along(batch, lengths)
    mirrored = g.sub(g.sub(length, g.scalar(1, DType.INT64)), step)
    places = g.select(g.compare("lt", step, length), mirrored, step)
    return g.gather_elements(x, g.broadcast(places, x.shape), time)
