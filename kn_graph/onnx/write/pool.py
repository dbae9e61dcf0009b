"""Writers of pooling."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kn_graph.dim import size_prod
from kn_graph.onnx.write.conv import steps, window_pads
from kn_graph.onnx.write.registry import refuse, writer
from kn_graph.ops.elementwise import Binary, Unary
from kn_graph.ops.pool import Pool
from kn_graph.types import Shape
from kn_graph.window import count_windows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kn_graph.onnx.write.node import NodeWriter
    from kn_graph.value import Value

__all__ = ["pool"]

NOT_NEGATIVE = frozenset({"abs", "relu", "square", "exp", "sigmoid", "sqrt"})


@writer(Pool)
def pool(ctx: NodeWriter, op: Pool, *, magnitudes: bool = False) -> str | Sequence[str]:
    """MaxPool, AveragePool or LpPool over [N, C, *spatial]; sums may be of magnitudes."""
    shape = ctx.values[0].shape
    lead = len(shape) - len(op.kernel)
    pads = window_pads(op.pads, shape[lead:], op.kernel, op.strides, op.dilations)
    if pads is None:
        refuse("pads of a pool that depend on sizes")
    attributes: dict[str, Any] = {"kernel_shape": list(op.kernel), **pads}
    attributes |= steps(op.strides, op.dilations)
    if op.ceil and _rounds_up(op, shape[lead:]):
        attributes["ceil_mode"] = 1
    x = ctx.x if lead == 2 else _as_images(ctx, ctx.x, lead)
    if op.indices != "none":
        if lead != 2:
            refuse("a pool with indices that is not over [N, C, *spatial]")
        order = 1 if op.indices == "column_major" else None
        return ctx.emit_all("MaxPool", x, outputs=2, storage_order=order, **attributes)
    out = _pooled(ctx, op, x, attributes, magnitudes)
    return out if lead == 2 else _as_before(ctx, out, lead)


def _rounds_up(op: Pool, spatial: Shape) -> bool:
    """Return whether the last window of some axis may reach beyond the padding."""
    if not all(isinstance(n, int) for n in spatial):
        return True
    axes = (spatial, op.kernel, op.strides, op.dilations, op.pads)
    counts = (
        count_windows(*axes, ceil=ceil)  # type: ignore[arg-type]
        for ceil in (False, True)
    )
    return len(set(counts)) > 1


def _pooled(ctx: NodeWriter, op: Pool, x: str, attributes: dict[str, Any], magnitudes: bool) -> str:
    if op.fn == "max":
        return ctx.emit("MaxPool", x, **attributes)
    if op.fn == "mean":
        count = 1 if op.count_include_pad else None
        return ctx.emit("AveragePool", x, count_include_pad=count, **attributes)
    if magnitudes or _not_negative(ctx.values[0]):
        return ctx.emit("LpPool", x, p=1, **attributes)
    # LpPool sums magnitudes: once those of positive elements, once those of negative ones
    parts = [ctx.emit("Relu", v) for v in (x, ctx.emit("Neg", x))]
    return ctx.emit("Sub", *(ctx.emit("LpPool", v, p=1, **attributes) for v in parts))


def _not_negative(x: Value) -> bool:
    op = x.node.op
    if isinstance(op, Binary):
        return op.fn == "mul" and x.node.operands[0] is x.node.operands[1]
    return isinstance(op, Unary) and op.fn in NOT_NEGATIVE


def _as_images(ctx: NodeWriter, x: str, lead: int) -> str:
    shape = ctx.values[0].shape
    if lead < 2:
        return ctx.emit("Unsqueeze", x, ctx.ints(*range(2 - lead)))
    return ctx.reshape(x, (size_prod(shape[:lead]), 1, *shape[lead:]))


def _as_before(ctx: NodeWriter, out: str, lead: int) -> str:
    if lead < 2:
        return ctx.emit("Squeeze", out, ctx.ints(*range(2 - lead)))
    return ctx.reshape(out, ctx.shape)
