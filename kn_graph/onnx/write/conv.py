"""Writers of convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kn_graph.dim import Size
from kn_graph.dtype import DType, Kind
from kn_graph.onnx.write.registry import refuse, writer
from kn_graph.ops.conv import Conv, ConvTranspose
from kn_graph.window import AutoPad, Pads, auto_pads

if TYPE_CHECKING:
    from kn_graph.onnx.write.node import NodeWriter
    from kn_graph.value import Value

__all__ = ["window_pads", "write_conv"]

LOOKED_AT_BYTES = 1 << 24
"""Larger weights are not read for their range."""
MODES: tuple[AutoPad, ...] = ("SAME_UPPER", "SAME_LOWER")


def window_pads(
    pads: Pads,
    spatial: Sequence[Size],
    kernel: Sequence[Size],
    strides: Sequence[int],
    dilations: Sequence[int],
) -> dict[str, Any] | None:
    """Return the attributes that say pads, or None where no attribute can."""
    if all(isinstance(p, int) for pair in pads for p in pair):
        if not any(p for pair in pads for p in pair):
            return {}
        return {"pads": [b for b, _ in pads] + [a for _, a in pads]}
    for mode in MODES:
        axes = zip(spatial, kernel, strides, dilations, strict=True)
        if tuple(pads) == tuple(auto_pads(mode, *axis) for axis in axes):
            return {"auto_pad": mode}
    return None


def steps(strides: Sequence[int], dilations: Sequence[int]) -> dict[str, Any]:
    """Return strides and dilations, where they are not 1."""
    given = {"strides": strides, "dilations": dilations}
    return {n: list(v) for n, v in given.items() if any(i != 1 for i in v)}


@writer(Conv)
def write_conv(ctx: NodeWriter, op: Conv) -> str:
    """Conv, or ConvInteger of 8-bit integers; integers of other widths compute in float64."""
    x, w, *more = ctx.inputs
    rank = len(op.strides)
    attributes = steps(op.strides, op.dilations)
    spatial, kernel = ctx.values[0].shape[2:], ctx.values[1].shape[2:]
    pads = window_pads(op.pads, spatial, kernel, op.strides, op.dilations)
    if pads is None:
        pairs = ((0, 0), (0, 0), *op.pads)
        amounts = ctx.sizes([b for b, _ in pairs] + [a for _, a in pairs])
        x, pads = ctx.emit("Pad", x, amounts), {}
    attributes |= pads
    if op.groups != 1:
        attributes["group"] = op.groups
    if rank == 0:
        refuse("a convolution without spatial axes")
    result = op.out_dtype or ctx.values[0].dtype
    types = [ctx.scope.dtype(name) for name in (x, w)]
    if result is DType.INT32 and all(t is not None and t.is_int and t.bits == 8 for t in types):
        zero = ["", *more] if more else []
        return ctx.emit("ConvInteger", x, w, *zero, **attributes)
    if result.is_float:
        return ctx.emit("Conv", *(ctx.cast(v, result) for v in (x, w, *more)), **attributes)
    if result.bits > 32:
        refuse(f"a convolution of {result}")
    wide = DType.FLOAT32 if _fits_float32(ctx.values) else DType.FLOAT64
    out = ctx.emit("Conv", *(ctx.cast(v, wide) for v in (x, w)), **attributes)
    return ctx.cast(ctx.cast(out, DType.INT64), result)


def _fits_float32(operands: Sequence[Value]) -> bool:
    """Return whether every sum of products of integers is exact in float32."""
    x, w = operands[0].dtype, operands[1].constant
    if w is None or w.nbytes > LOOKED_AT_BYTES:
        return False
    sums = np.abs(w.astype(np.int64)).reshape(len(w), -1).sum(1)
    return int(sums.max(initial=0)) << (x.bits - (x.kind is Kind.INT)) <= 1 << 24


@writer(ConvTranspose)
def conv_transpose(ctx: NodeWriter, op: ConvTranspose) -> str:
    """ConvTranspose."""
    sizes = [p for pair in op.pads for p in pair] + list(op.output_padding)
    if any(not isinstance(p, int) for p in sizes):
        refuse("pads of a transposed convolution that depend on sizes")
    attributes = steps(op.strides, op.dilations)
    if any(p for pair in op.pads for p in pair):
        attributes["pads"] = [b for b, _ in op.pads] + [a for _, a in op.pads]
    if any(op.output_padding):
        attributes["output_padding"] = list(op.output_padding)
    if op.groups != 1:
        attributes["group"] = op.groups
    result = op.out_dtype or ctx.values[0].dtype
    wide = result if result.is_float else DType.FLOAT64
    if result.is_int and result.bits > 32:
        refuse(f"a transposed convolution of {result}")
    out = ctx.emit("ConvTranspose", *(ctx.cast(v, wide) for v in ctx.inputs), **attributes)
    return ctx.cast(out if wide is result else ctx.cast(out, DType.INT64), result)
