"""What `ConvGraph` asks for, by NumPy: as cuDNN defines it, and not as fast."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kn_cuda.conv_graph import ConvGraph
from kn_graph.cast import cast_array
from kn_graph.context import RunContext
from kn_graph.dtype import DType
from kn_graph.ops.conv import Conv, ConvTranspose
from kn_graph.random_bits import RandomStreams
from kn_graph.scalar import evaluate_scalar

__all__ = ["convolve", "places"]

Array = np.ndarray[Any, Any]


Place = tuple[DType, tuple[int, ...], tuple[int, ...]]
"""Type, sizes and strides of a tensor."""


def places(request: ConvGraph, numbers: list[int]) -> list[Place]:
    """Return the place in memory of x, w, y, the bias and the residual."""
    images, channels, outputs = numbers[:3]
    x, kernel, y, *_ = request.rows(numbers)
    given = channels if request.transposed else outputs
    each = (outputs if request.transposed else channels) // request.groups
    shapes = [(images, channels, *x), (given, each, *kernel), (images, outputs, *y)]
    types = (request.dtype, request.dtype, request.out)
    found = [
        (dtype, shape, _strides(shape, request.channels_last))
        for dtype, shape in zip(types, shapes, strict=True)
    ]
    return [*found, (request.dtype, (outputs,), (1,)), (request.dtype, *found[2][1:])]


def _strides(shape: Sequence[int], last: bool) -> tuple[int, ...]:
    """Return the strides of a tensor without gaps."""
    found = dict.fromkeys(range(len(shape)), 0)
    step = 1
    for axis in reversed((0, *range(2, len(shape)), 1) if last else range(len(shape))):
        found[axis] = step
        step *= shape[axis]
    return tuple(found.values())


def convolve(request: ConvGraph, numbers: list[int], views: Sequence[Array | None]) -> None:
    """Compute y.

    Args:
        request: what is asked.
        numbers: see `ConvGraph`.
        views: x [N, C, *spatial], w, y, bias [M] and residual; None for what is not there.
    """
    x, w, y, bias, residual = (None if v is None else v.astype(np.float32) for v in views)
    assert x is not None and w is not None and y is not None  # noqa: PT018
    *_, sizes, before, after = request.rows(numbers)
    pads = tuple(zip(before, after, strict=True))
    window = (request.strides, request.dilations, pads)
    context = RunContext({}, RandomStreams(0))
    if request.transposed:
        more = _more(request, numbers, sizes)
        total = ConvTranspose(*window, more, request.groups).eval(context, x, w)
    else:
        total = Conv(*window, request.groups).eval(context, x, w)
    with np.errstate(all="ignore"):
        if bias is not None:
            total = total + bias.reshape(-1, *(1,) * request.rank)
        if residual is not None:
            total = total + residual
        if request.activation != "none":
            total = evaluate_scalar(request.activation, [total])
    target = views[2]
    assert target is not None
    target[...] = cast_array(total, request.out)


def _more(request: ConvGraph, numbers: list[int], sizes: Sequence[int]) -> tuple[int, ...]:
    """Return what has to be added behind each axis of a transpose to get its size."""
    x, kernel, _, before, after = request.rows(numbers)
    axes = zip(
        x, kernel, sizes, request.strides, request.dilations, before, after, strict=True
    )  # fmt: skip
    return tuple(y - ((n - 1) * s + (k - 1) * d + 1 - b - a) for n, k, y, s, d, b, a in axes)
