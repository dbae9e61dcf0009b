"""Sliding windows over spatial axes: the one place where conv and pool sizes come from.

Window j of an axis starts at element `j*stride - before` and touches `kernel` elements that lie
`dilation` apart; what is outside of the axis is padding.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from kn_graph.dim import Size, ceildiv, floordiv, size_max, size_min
from kn_graph.errors import ShapeError
from kn_graph.op import InferContext

__all__ = [
    "AutoPad",
    "Pads",
    "auto_pads",
    "check_window",
    "count_windows",
    "extent",
    "pad_windows",
    "tap_counts",
    "transposed_pads",
    "transposed_size",
    "window_count",
    "window_counts",
    "window_view",
]

Array = np.ndarray[Any, Any]
Pads = tuple[tuple[Size, Size], ...]
AutoPad = Literal["NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"]


def extent(kernel: Size, dilation: int) -> Size:
    """Return how many elements a window spans."""
    return (kernel - 1) * dilation + 1


def window_count(
    n: Size, kernel: Size, stride: int, dilation: int, pads: tuple[Size, Size], *, ceil: bool
) -> Size:
    """Return how many windows an axis of size n has.

    With `ceil` the last window may reach beyond the padding, but a window that would start in the
    padding behind the axis is left out.
    """
    before, after = pads
    span = n + before + after - extent(kernel, dilation)
    if isinstance(span, int) and span < 0:
        return 0  # only for an empty axis: see `window_counts`
    if not ceil:
        return floordiv(span, stride) + 1
    return size_min(ceildiv(span, stride) + 1, ceildiv(n + before, stride))


def window_counts(
    ctx: InferContext,
    sizes: Sequence[Size],
    kernel: Sequence[Size],
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: Pads,
    *,
    ceil: bool = False,
) -> tuple[Size, ...]:
    """Return the number of windows of each axis.

    Raises:
        ShapeError: a window is larger than the padded axis, which is not empty.
    """
    counts = []
    axes = zip(sizes, kernel, strides, dilations, pads, strict=True)
    for axis, (n, k, stride, dilation, (before, after)) in enumerate(axes):
        if n != 0:
            padded, wide = n + before + after, extent(k, dilation)
            ctx.require_ge(padded, wide, f"a window fits into the padded spatial axis {axis}")
        counts.append(window_count(n, k, stride, dilation, (before, after), ceil=ceil))
    return tuple(counts)


def check_window(
    ctx: InferContext, rank: int, strides: Sequence[int], dilations: Sequence[int], pads: Pads
) -> None:
    """Check the attributes of a window over `rank` axes.

    Raises:
        ShapeError: a length differs from the rank, or a number is out of its range.
    """
    for name, numbers in (("strides", strides), ("dilations", dilations), ("pads", pads)):
        if len(numbers) != rank:
            raise ShapeError(f"{len(numbers)} {name} for {rank} spatial axes")
    for name, steps in (("stride", strides), ("dilation", dilations)):
        if any(s < 1 for s in steps):
            raise ShapeError(f"each {name} must be at least 1, got {tuple(steps)}")
    for pair in pads:
        for pad in pair:
            ctx.require_ge(pad, 0, "a pad is not negative")


def auto_pads(
    mode: AutoPad, n: Size, kernel: Size, stride: int, dilation: int
) -> tuple[Size, Size]:
    """Return the pads of an axis that ONNX derives: SAME gives ceil(n / stride) windows."""
    if mode in ("NOTSET", "VALID"):
        return 0, 0
    wide = extent(kernel, dilation)
    if wide == 1:
        return 0, 0
    total = (ceildiv(n, stride) - 1) * stride + wide - n
    if not (isinstance(wide, int) and wide >= stride):
        total = size_max(0, total)
    if n == 0:
        total = 0
    return _split_padding(total, larger_first=mode == "SAME_LOWER")


def _split_padding(total: Size, *, larger_first: bool) -> tuple[Size, Size]:
    half = floordiv(total, 2)
    return (total - half, half) if larger_first else (half, total - half)


def transposed_size(
    n: Size, kernel: Size, stride: int, dilation: int, pads: tuple[Size, Size], output_padding: Size
) -> Size:
    """Return the size that a transposed convolution makes of an axis of size n."""
    return (n - 1) * stride + extent(kernel, dilation) + output_padding - pads[0] - pads[1]


def transposed_pads(natural: Size, wanted: Size, mode: AutoPad) -> tuple[Size, Size, Size]:
    """Return (before, after, more) that turn a transposed convolution's size into another.

    Args:
        natural: the size without pads, output padding included.
        wanted: the size to get.
        mode: SAME_UPPER cuts the odd element at the end, everything else at the start.

    Returns:
        What to cut at the start and the end, and what to add at the end where `wanted` is larger.
    """
    total = size_max(0, natural - wanted)
    before, after = _split_padding(total, larger_first=mode != "SAME_UPPER")
    return before, after, size_max(0, wanted - natural)


# ---- on arrays ------------------------------------------------------------------------------


def count_windows(
    sizes: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: Sequence[tuple[int, int]],
    *,
    ceil: bool = False,
) -> tuple[int, ...]:
    """Return the number of windows of each axis, for sizes that are numbers."""
    axes = zip(sizes, kernel, strides, dilations, pads, strict=True)
    counts = (window_count(n, k, s, d, p, ceil=ceil) for n, k, s, d, p in axes)
    return tuple(c for c in counts if isinstance(c, int))


def pad_windows(
    x: Array,
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: Sequence[tuple[int, int]],
    counts: Sequence[int],
    fill: Any = 0,
) -> Array:
    """Return x with padding around its last axes, wide enough for `counts` windows."""
    lead = x.ndim - len(kernel)
    widths = [(0, 0)] * lead
    axes = zip(x.shape[lead:], kernel, strides, dilations, pads, counts, strict=True)
    for n, k, stride, dilation, (before, after), count in axes:
        reach = (count - 1) * stride + (k - 1) * dilation + 1
        widths.append((before, max(after, reach - n - before)))
    if all(w == (0, 0) for w in widths):
        return x
    shape = [b + n + a for n, (b, a) in zip(x.shape, widths, strict=True)]
    out = np.full(shape, fill, x.dtype)
    out[tuple(slice(b, b + n) for n, (b, _) in zip(x.shape, widths, strict=True))] = x
    return out


def window_view(
    x: Array,
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    counts: Sequence[int],
) -> Array:
    """Return the windows of a padded array's last axes as a view [..., *counts, *kernel]."""
    rank = len(kernel)
    lead = x.ndim - rank
    if 0 in (*counts, *kernel):
        return np.empty((*x.shape[:lead], *counts, *kernel), x.dtype)
    spans = tuple((k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True))
    view = np.lib.stride_tricks.sliding_window_view(x, spans, tuple(range(lead, x.ndim)))
    starts = [slice(0, (c - 1) * s + 1, s) for c, s in zip(counts, strides, strict=True)]
    taps = [slice(None, None, d) for d in dilations]
    index: Any = (Ellipsis, *starts, *taps)
    return np.asarray(view[index])


def tap_counts(
    low: int, high: int, kernel: int, stride: int, dilation: int, before: int, count: int
) -> Array:
    """Return for each window of an axis how many of its elements lie in [low, high)."""
    starts = np.arange(count)[:, None] * stride - before
    positions = starts + np.arange(kernel)[None, :] * dilation
    return np.asarray(np.sum((positions >= low) & (positions < high), axis=1))
