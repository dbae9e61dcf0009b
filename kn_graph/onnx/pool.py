"""Converters of pooling operators."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from kn_graph.dtype import DType
from kn_graph.onnx.conv import WindowAttributes, window_attributes
from kn_graph.onnx.registry import converter

if TYPE_CHECKING:
    from kn_graph.dim import Size
    from kn_graph.onnx.context import NodeContext
    from kn_graph.ops.reduce import ReduceFn
    from kn_graph.value import Value

__all__: list[str] = []


def _window(ctx: NodeContext, x: Value) -> tuple[WindowAttributes, tuple[int, ...], bool]:
    """Take the window of a pool: attributes, kernel, and whether sizes round up."""
    if x.rank < 2:
        ctx.fail(f"expected [N, C, *spatial], got {x.type}")
    kernel = cast("tuple[int, ...]", ctx.integers("kernel_shape"))
    window = window_attributes(ctx, x.shape[2:], kernel)
    ceil = ctx.flag("ceil_mode", False)
    # with auto_pad the number of windows is a formula of its own that does not depend on ceil_mode
    return window, kernel, ceil and window.auto_pad == "NOTSET"


@converter("MaxPool")
def max_pool(ctx: NodeContext) -> Value | list[Value]:
    """The largest element of each window, and where it is."""
    return max_pool_of(ctx, ctx.input(0))


def max_pool_of(ctx: NodeContext, x: Value) -> Value | list[Value]:
    """Convert a max pool of [N, C, *spatial] with the attributes of a node."""
    window, kernel, ceil = _window(ctx, x)
    column_major = ctx.flag("storage_order", False)
    if not ctx.wants(1):
        return ctx.graph.pool(
            x,
            "max",
            kernel,
            **window.steps,
            ceil=ceil,
        )
    return list(
        ctx.graph.max_pool_with_indices(
            x,
            kernel,
            **window.steps,
            ceil=ceil,
            column_major=column_major,
        )
    )


@converter("AveragePool")
def average_pool(ctx: NodeContext) -> Value:
    """The mean of each window."""
    x = ctx.input(0)
    window, kernel, ceil = _window(ctx, x)
    return ctx.graph.pool(
        x,
        "mean",
        kernel,
        **window.steps,
        ceil=ceil,
        count_include_pad=ctx.flag("count_include_pad", False),
    )


@converter("LpPool")
def lp_pool(ctx: NodeContext) -> Value:
    """The p-norm of each window: powers, summed, and the root of the sum."""
    g, x, p = ctx.graph, ctx.input(0), _order(ctx)
    window, kernel, ceil = _window(ctx, x)
    total = g.pool(
        _power(ctx, _widened(ctx, x), p),
        "sum",
        kernel,
        **window.steps,
        ceil=ceil,
    )
    return g.cast(_root(ctx, total, p), x.dtype)


def _order(ctx: NodeContext) -> float:
    p = ctx.real("p", 2.0) if ctx.opset < 2 else ctx.integer("p", 2)
    if p <= 0:
        ctx.fail(f"p must be positive, got {p}")
    return float(p)


def _widened(ctx: NodeContext, x: Value) -> Value:
    """Compute narrow floats in float32, whose powers do not overflow."""
    return ctx.graph.cast(x, DType.FLOAT32) if x.dtype.bits < 32 else x


def _power(ctx: NodeContext, x: Value, p: float) -> Value:
    """Return |x| ** p."""
    g = ctx.graph
    if p == 2:
        return g.unary("square", x)
    size = g.unary("abs", x)
    return size if p == 1 else size**p


def _root(ctx: NodeContext, x: Value, p: float) -> Value:
    if p == 2:
        return ctx.graph.sqrt(x)
    return x if p == 1 else x ** (1 / p)


def _spatial_axes(ctx: NodeContext, x: Value) -> tuple[int, ...]:
    if x.rank < 2:
        ctx.fail(f"expected [N, C, *spatial], got {x.type}")
    return tuple(range(2, x.rank))


@converter("GlobalAveragePool", "GlobalMaxPool")
def global_pool(ctx: NodeContext) -> Value:
    """Reduce all spatial axes."""
    x = ctx.input(0)
    fn: ReduceFn = "mean" if ctx.op == "GlobalAveragePool" else "max"
    return ctx.graph.reduce(fn, x, _spatial_axes(ctx, x), keep=True)


@converter("GlobalLpPool")
def global_lp_pool(ctx: NodeContext) -> Value:
    """The p-norm over all spatial axes."""
    g, x, p = ctx.graph, ctx.input(0), _order(ctx)
    powers = _power(ctx, _widened(ctx, x), p)
    total = g.reduce("sum", powers, _spatial_axes(ctx, x), keep=True)
    return g.cast(_root(ctx, total, p), x.dtype)


@converter("MaxUnpool", since=9)
def max_unpool(ctx: NodeContext) -> Value:
    """Put elements back where a max pool found them.

    The indices count in the shape that follows from kernel, strides and pads; a larger
    `output_shape` adds zeros behind it.
    """
    g, x, indices = ctx.graph, ctx.input(0), ctx.input(1)
    window, kernel, _ = _window(ctx, x)
    axes = zip(x.shape[2:], kernel, window.strides, window.pads, strict=True)
    spatial = [(n - 1) * s + k - before - after for n, k, s, (before, after) in axes]
    shape: list[Size] = [*x.shape[:2], *spatial]
    out = g.max_unpool(x, indices, shape)
    wanted = ctx.sizes(2)
    if wanted is None:
        return out
    if len(wanted) != x.rank:
        ctx.fail(f"output_shape has {len(wanted)} sizes for a tensor of rank {x.rank}")
    return g.pad(out, [(0, w - n) for n, w in zip(shape, wanted, strict=True)])
