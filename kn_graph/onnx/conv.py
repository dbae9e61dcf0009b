"""Converters of convolutions, and the attributes that all windows share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from kn_graph.onnx.registry import converter
from kn_graph.window import AutoPad, Pads, auto_pads, transposed_pads, transposed_size

if TYPE_CHECKING:
    from kn_graph.dim import Size
    from kn_graph.onnx.context import NodeContext
    from kn_graph.value import Value

__all__ = ["WindowAttributes", "kernel_of_weights", "window_attributes"]

AUTO_PADS = ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")


@dataclass(frozen=True)
class WindowAttributes:
    """Attributes of a convolution or pool over `len(kernel)` spatial axes.

    Attributes:
        kernel: size of a window.
        strides: step between windows.
        dilations: step between elements of a window.
        pads: (before, after) each axis, `auto_pad` worked out.
        auto_pad: how the pads were given.
    """

    kernel: tuple[Size, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: Pads
    auto_pad: AutoPad

    @property
    def steps(self) -> dict[str, Any]:
        """Strides, dilations and pads, as building methods take them."""
        return {"strides": self.strides, "dilations": self.dilations, "pads": self.pads}


def window_attributes(
    ctx: NodeContext, spatial: Sequence[Size], kernel: Sequence[Size]
) -> WindowAttributes:
    """Take strides, dilations, pads and auto_pad.

    Args:
        ctx: the node.
        spatial: sizes of the spatial axes.
        kernel: sizes of a window.
    """
    rank = len(spatial)
    if len(kernel) != rank:
        ctx.fail(f"has a kernel over {len(kernel)} axes for {rank} spatial axes")
    strides = _steps(ctx, "strides", rank)
    dilations = _steps(ctx, "dilations", rank)
    mode = cast("AutoPad", ctx.choice("auto_pad", "NOTSET", AUTO_PADS))
    given = ctx.integers("pads", (0,) * (2 * rank))
    if len(given) != 2 * rank:
        ctx.fail(f"has {len(given)} pads for {rank} spatial axes")
    if mode == "NOTSET":
        pads: Pads = tuple(zip(given[:rank], given[rank:], strict=True))
    else:  # the pads given beside it do not count
        axes = zip(spatial, kernel, strides, dilations, strict=True)
        pads = tuple(auto_pads(mode, n, k, s, d) for n, k, s, d in axes)
    return WindowAttributes(tuple(kernel), strides, dilations, pads, mode)


def _steps(ctx: NodeContext, name: str, rank: int) -> tuple[int, ...]:
    steps: tuple[int, ...] = ctx.integers(name, (1,) * rank)
    if len(steps) != rank:
        ctx.fail(f"has {len(steps)} {name} for {rank} spatial axes")
    return steps


def kernel_of_weights(ctx: NodeContext, x: Value, w: Value) -> tuple[Size, ...]:
    """Return the kernel sizes that weights have; `kernel_shape` may repeat them."""
    if x.rank < 2 or w.rank != x.rank:
        ctx.fail(f"expected X [N, C, *spatial] and W of equal rank, got {x.type} and {w.type}")
    kernel = w.shape[2:]
    given = ctx.integers("kernel_shape", kernel)
    if len(given) != len(kernel):
        ctx.fail(f"kernel_shape {given} does not fit the weights {w.type}")
    for a, b in zip(given, kernel, strict=True):
        ctx.graph.require_eq(a, b, "kernel_shape repeats the sizes of the weights")
    return kernel


@converter("Conv")
def conv(ctx: NodeContext) -> Value:
    """A convolution, and the bias added."""
    x, w = ctx.input(0), ctx.input(1)
    window = window_attributes(ctx, x.shape[2:], kernel_of_weights(ctx, x, w))
    return ctx.graph.conv(
        x,
        w,
        ctx.optional(2),
        **window.steps,
        groups=ctx.integer("group", 1),
    )


@converter("ConvTranspose")
def conv_transpose(ctx: NodeContext) -> Value:
    """A transposed convolution whose size is given, or follows from auto_pad or pads."""
    x, w = ctx.input(0), ctx.input(1)
    spatial = x.shape[2:]
    kernel = kernel_of_weights(ctx, x, w)
    window = window_attributes(ctx, spatial, kernel)
    rank = len(spatial)
    padding: list[Size] = list(ctx.integers("output_padding", (0,) * rank))
    if len(padding) != rank:
        ctx.fail(f"has {len(padding)} output paddings for {rank} spatial axes")
    pads = list(window.pads)
    wanted = _wanted_sizes(ctx, spatial, window)
    if wanted is not None:
        for i, (n, k, size) in enumerate(zip(spatial, kernel, wanted, strict=True)):
            stride, dilation = window.strides[i], window.dilations[i]
            natural = transposed_size(n, k, stride, dilation, (0, 0), padding[i])
            before, after, more = transposed_pads(natural, size, window.auto_pad)
            pads[i], padding[i] = (before, after), padding[i] + more
    return ctx.graph.conv_transpose(
        x,
        w,
        ctx.optional(2),
        **{**window.steps, "pads": pads},
        output_padding=padding,
        groups=ctx.integer("group", 1),
    )


def _wanted_sizes(
    ctx: NodeContext, spatial: Sequence[Size], window: WindowAttributes
) -> tuple[Size, ...] | None:
    """Return the sizes that the result must have, where pads follow from them."""
    given: tuple[int, ...] | None = ctx.integers("output_shape", None)
    rank = len(spatial)
    if given is not None:
        if len(given) == rank + 2:  # old exporters wrote batch and channels too
            given = given[2:]
        if len(given) != rank:
            ctx.fail(f"output_shape {given} does not fit {rank} spatial axes")
        return given
    if window.auto_pad.startswith("SAME"):
        return tuple(n * s for n, s in zip(spatial, window.strides, strict=True))
    return None


@converter("DeformConv", since=19)
def deform_conv(ctx: NodeContext) -> Value:
    """A convolution with offsets for each sample, and the bias added."""
    x, w, offset = ctx.input(0), ctx.input(1), ctx.input(2)
    window = window_attributes(ctx, x.shape[2:], kernel_of_weights(ctx, x, w))
    return ctx.graph.deform_conv(
        x,
        w,
        offset,
        mask=ctx.optional(4),
        bias=ctx.optional(3),
        **window.steps,
        groups=ctx.integer("group", 1),
        offset_groups=ctx.integer("offset_group", 1),
    )
