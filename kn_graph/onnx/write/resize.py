"""Writers of resizing."""

from __future__ import annotations

from fractions import Fraction
from math import ceil
from typing import TYPE_CHECKING, Any

import numpy as np

from kn_graph.dim import Size
from kn_graph.graph import Graph
from kn_graph.onnx.write.registry import refuse, writer
from kn_graph.ops.resize import Resize

if TYPE_CHECKING:
    from kn_graph.onnx.write.node import NodeWriter

__all__: list[str] = []


@writer(Resize)
def resize(ctx: NodeWriter, op: Resize) -> str:
    """Resize; the rule of old opsets depends on whether an axis grows, so each is one by itself."""
    if op.nearest != "simple":
        return _resize(ctx, op, ctx.x, range(len(op.axes)), op.nearest)
    if not isinstance(op.scales, tuple):
        return _by_direction(ctx, op)
    x = ctx.x
    for rule, shrinks in (("floor", False), ("ceil", True)):
        some = [i for i, s in enumerate(op.scales) if (s < 1) is shrinks]
        x = _resize(ctx, op, x, some, rule) if some else x
    return x


def _by_direction(ctx: NodeWriter, op: Resize) -> str:
    """Round down or up by scales that are data: an axis whose scale turns out to be larger is 1."""
    if op.scales != "operand":
        refuse("a resize of old opsets by sizes")
    scales = ctx.inputs[1]
    one = ctx.scalar(1, scales)
    growing = ctx.emit("Resize", ctx.x, "", ctx.emit("Max", scales, one), **_plain(op, "floor"))
    return ctx.emit("Resize", growing, "", ctx.emit("Min", scales, one), **_plain(op, "ceil"))


def _plain(op: Resize, nearest: str) -> dict[str, Any]:
    return {
        "mode": op.mode,
        "coordinate_transformation_mode": op.coordinates,
        "axes": list(op.axes),
        "nearest_mode": nearest if op.mode == "nearest" else None,
    }


def _resize(ctx: NodeWriter, op: Resize, x: str, which: Any, nearest: str) -> str:
    axes = [op.axes[i] for i in which]
    sizes = [op.sizes[i] for i in which]
    roi = ctx.inputs[-1] if op.crops else ""
    attributes: dict[str, Any] = {
        "mode": op.mode,
        "coordinate_transformation_mode": op.coordinates,
        "axes": axes,
    }
    if op.mode == "nearest":
        attributes["nearest_mode"] = nearest
    if op.mode == "cubic":
        attributes["cubic_coeff_a"] = op.cubic_a
    attributes["exclude_outside"] = 1 if op.exclude_outside else None
    attributes["antialias"] = 1 if op.antialias else None
    attributes["extrapolation_value"] = op.extrapolation if op.crops else None
    if op.scales == "operand":
        if not ctx.scope.sizes.are_read(*sizes) or any(s.as_symbol is None for s in sizes):
            refuse("a resize by scales that are data, to sizes that they are not rounded to")
        return ctx.emit("Resize", x, roi, ctx.inputs[1], **attributes)
    if op.scales == "sizes":
        return ctx.emit("Resize", x, roi, "", ctx.sizes(sizes), **attributes)
    assert isinstance(op.scales, tuple)
    scales = [op.scales[i] for i in which]
    before = [ctx.values[0].shape[a] for a in axes]
    read = all(ctx.scope.sizes.are_read(s) for s in sizes)
    # sizes that no formula gives are computed by the graph in question: elsewhere they differ
    if read or tuple(sizes) == Graph().scaled_sizes(before, scales):
        numbers = ctx.const(np.array([float(s) for s in scales], np.float32))
        return ctx.emit("Resize", x, roi, numbers, **attributes)
    attributes["keep_aspect_ratio_policy"] = "not_larger"
    return ctx.emit("Resize", x, roi, "", ctx.sizes(_limits(before, sizes, scales)), **attributes)


def _limits(before: list[Size], sizes: list[Size], scales: list[Fraction]) -> list[int]:
    """Return sizes not to be exceeded that give one scale to all axes.

    The scale is the least quotient of limit and size, so one axis has it exactly.
    """
    half, limits = Fraction(1, 2), []
    for n, m, scale in zip(before, sizes, scales, strict=True):
        if scale != scales[0] or not isinstance(n, int) or int(scale * n + half) != m:
            refuse("a resize whose sizes do not follow from its scales")
        limits.append(ceil(scale * n))
    if not any(n * scales[0] == limit for n, limit in zip(before, limits, strict=True)):
        refuse("a resize by a scale that no axis has exactly")
    return limits
