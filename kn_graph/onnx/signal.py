"""Converters of signal operators."""

from __future__ import annotations

from math import log
from typing import TYPE_CHECKING, Any

import numpy as np

from kn_graph.dim import Size, floordiv
from kn_graph.dtype import DType
from kn_graph.onnx.registry import converter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kn_graph.onnx.context import NodeContext
    from kn_graph.value import Value

__all__: list[str] = []

WINDOWS = {
    "HannWindow": (0.5, -0.5),
    "HammingWindow": (25 / 46, -21 / 46),
    "BlackmanWindow": (0.42, -0.5, 0.08),
}
"""Weights of the harmonics of each window."""


@converter("DFT", since=17, until=19)
def dft_attribute(ctx: NodeContext) -> Value:
    """The axis is an attribute."""
    return _dft(ctx, ctx.integer("axis", 1))


@converter("DFT", since=20)
def dft(ctx: NodeContext) -> Value:
    """The axis is an input; by default the last of the signal."""
    axis = ctx.optional(2)
    if axis is None:
        return _dft(ctx, -2)
    if axis.constant is None and axis.content is None:
        return _dft_at_run_time(ctx, axis)
    return _dft(ctx, ctx.axes(axis, "axis")[0])


def _dft(ctx: NodeContext, axis: int, x: Value | None = None) -> Value:
    length = ctx.sizes(1, lo=1)
    return ctx.graph.dft(
        ctx.input(0) if x is None else x,
        axis,
        None if length is None else length[0],
        inverse=ctx.flag("inverse", False),
        onesided=ctx.flag("onesided", False),
    )


def _dft_at_run_time(ctx: NodeContext, axis: Value) -> Value:
    """Transform an axis that is data: view the others as one before and one behind it."""
    g, x = ctx.graph, ctx.input(0)
    shape = x.shape[:-1]
    sizes = g.size_tensor(_row(shape))
    zero, one, rank = (g.constant(np.array(n, np.int64)) for n in (0, 1, x.rank))
    axis = g.cast(g.view(axis, ()), DType.INT64)
    axis = g.select(g.compare("lt", axis, zero), g.add(axis, rank), axis)
    places = g.iota(len(shape))
    here = g.compare("eq", places, axis)
    before = g.select(g.compare("lt", places, axis), sizes, one)
    behind = g.select(g.compare("gt", places, axis), sizes, one)
    split = [
        g.reduce("prod", before, [0], keep=True),
        g.reduce("sum", g.select(here, sizes, zero), [0], keep=True),
        g.reduce("prod", behind, [0], keep=True),
    ]
    y = _dft(ctx, 1, g.view(x, (*g.read_sizes(g.concat(split, 0)), x.shape[-1])))
    result = g.select(here, g.size_tensor(_row(y.shape[1:2])), sizes)
    return g.view(y, (*g.read_sizes(result), y.shape[-1]))


def _row(sizes: Sequence[Size]) -> np.ndarray[Any, Any]:
    out = np.empty(len(sizes), object)
    out[:] = sizes
    return out


@converter("STFT", since=17)
def stft(ctx: NodeContext) -> Value:
    """Transforms of windows of a signal.

    The text gives signals three axes; PyTorch's exporter writes real ones with two, as onnxruntime
    takes them.
    """
    x = ctx.input(0)
    step, length = ctx.sizes(1, lo=1), ctx.sizes(3, lo=1)
    assert step is not None
    return ctx.graph.stft(
        ctx.graph.unsqueeze(x, [2]) if x.rank == 2 else x,
        step[0],
        ctx.optional(2),
        None if length is None else length[0],
        onesided=ctx.flag("onesided", True),
    )


@converter(*WINDOWS, since=17)
def window(ctx: NodeContext) -> Value:
    """Sum of cosines."""
    length = ctx.sizes(0)
    assert length is not None
    dtype = ctx.dtype("output_datatype", DType.FLOAT32)
    periodic = ctx.flag("periodic", True)
    return ctx.graph.cosine_window(length[0], WINDOWS[ctx.op], dtype, periodic=periodic)


@converter("MelWeightMatrix", since=17)
def mel_weight_matrix(ctx: NodeContext) -> Value:
    """Triangles over the bins of a spectrum, whose corners are equally spaced on the mel scale."""
    g = ctx.graph
    bands, length = ctx.sizes(0), ctx.sizes(1)
    assert bands is not None
    assert length is not None
    corners = _mel_corners(ctx, bands[0], length[0])
    left, centre, right = (g.slice(corners, 0, start, bands[0]) for start in range(3))
    bins = g.unsqueeze(g.iota(floordiv(length[0], 2) + 1), [1])
    rising = _ratio(ctx, bins - left, centre - left)
    falling = _ratio(ctx, right - bins, right - centre)
    zero, one = g.scalar(0, DType.FLOAT64), g.scalar(1, DType.FLOAT64)
    out = g.select(g.compare("lt", bins, centre), rising, falling)
    out = g.maximum(g.select(g.compare("eq", bins, centre), one, out), zero)
    return g.cast(out, ctx.dtype("output_datatype", DType.FLOAT32))


def _ratio(ctx: NodeContext, above: Value, below: Value) -> Value:
    """Divide in float64; a triangle without width has no slope."""
    g = ctx.graph
    below = g.maximum(below, g.scalar(1, DType.INT64))
    return g.div(g.cast(above, DType.FLOAT64), g.cast(below, DType.FLOAT64))


def _mel_corners(ctx: NodeContext, bands: Size, length: Size) -> Value:
    """Return the bins of the spectrum at which triangles begin, peak and end: [bands + 2]."""
    g = ctx.graph
    rate, low, high = (g.cast(g.view(ctx.input(i), ()), DType.FLOAT64) for i in (2, 3, 4))
    low, high = (g.log(hertz / 700.0 + 1.0) * (2595 / log(10)) for hertz in (low, high))
    count = g.cast(g.size_tensor(np.array(bands + 2, object)), DType.FLOAT64)
    steps = g.cast(g.iota(bands + 2), DType.FLOAT64)
    mels = steps * ((high - low) / count) + low
    hertz = (g.exp(mels * (log(10) / 2595)) - 1.0) * 700.0
    scale = g.cast(g.size_tensor(np.array(length + 1, object)), DType.FLOAT64)
    return g.cast(g.unary("floor", hertz * scale / rate), DType.INT64)
