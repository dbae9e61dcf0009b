"""Writers of softmax and normalisation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kn_graph.dtype import DType
from kn_graph.onnx.write.registry import writer
from kn_graph.ops.norm import Norm, Softmax

if TYPE_CHECKING:
    from kn_graph.onnx.write.node import NodeWriter

__all__ = ["layer_normalization"]

MVN_EPSILON = 1e-18
"""What MeanVarianceNormalization adds to the variance."""


@writer(Softmax)
def softmax(ctx: NodeWriter, op: Softmax) -> str:
    """Softmax or LogSoftmax."""
    return ctx.emit("LogSoftmax" if op.log else "Softmax", ctx.x, axis=op.axis)


def layer_normalization(ctx: NodeWriter, x: str, scale: str, *, axis: int, epsilon: float) -> str:
    """Write a norm over the axes from `axis` on, times a scale."""
    stash = DType.FLOAT64 if ctx.scope.dtype(x) is DType.FLOAT64 else None
    return ctx.emit("LayerNormalization", x, scale, axis=axis, epsilon=epsilon, stash_type=stash)


@writer(Norm)
def norm(ctx: NodeWriter, op: Norm) -> str:
    """LayerNormalization with a scale of 1 where that can be said, else its formula."""
    shape, dtype = ctx.values[0].shape, ctx.dtype
    if op.center and op.epsilon == MVN_EPSILON:
        return ctx.emit("MeanVarianceNormalization", ctx.x, axes=op.axes)
    first = len(shape) - len(op.axes)
    sizes = [s for s in shape[first:] if isinstance(s, int)]
    last = op.axes == tuple(range(first, len(shape))) and len(sizes) == len(op.axes)
    if op.center and last and sizes:
        ones = ctx.const(np.ones(sizes, dtype.numpy))
        return layer_normalization(ctx, ctx.x, ones, axis=first, epsilon=op.epsilon)
    wide = DType.FLOAT64 if dtype is DType.FLOAT64 else DType.FLOAT32
    x, axes = ctx.cast(ctx.x, wide), ctx.ints(*op.axes)
    if op.center:
        x = ctx.emit("Sub", x, ctx.emit("ReduceMean", x, axes))
    variance = ctx.emit("ReduceMean", ctx.emit("Mul", x, x), axes)
    deviation = ctx.emit("Sqrt", ctx.emit("Add", variance, ctx.scalar(op.epsilon, wide)))
    return ctx.cast(ctx.emit("Div", x, deviation), dtype)
