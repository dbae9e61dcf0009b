"""Our kernels of convolutions: see `kernels/conv.cu`. They take any type, stride and program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kn_cuda.axes import blocks_for
from kn_cuda.builder import KernelBuilder
from kn_cuda.calls import Launch
from kn_cuda.lowering import Calls, Lowering
from kn_cuda.products import add_products
from kn_cuda.types import storage_type
from kn_graph.dim import Size, ceildiv, size_prod
from kn_graph.ops.conv import Conv, ConvTranspose
from kn_graph.types import Shape
from kn_plan.calls import Pointer
from kn_plan.plan import Operand, Step

__all__ = ["own_conv"]

FEW_COLUMNS = 32
"""Channels of a group up to which tiles are narrow and high."""

POINTS = 4
"""Results that a thread of the depthwise kernel computes."""

DEPTH = 16
"""Products in a slab."""


@dataclass(frozen=True)
class _Problem:
    """A convolution, its spatial axes at least one.

    Attributes:
        low: what finds its calls.
        step: the step.
        op: the operation.
    """

    low: Lowering
    step: Step
    op: Conv | ConvTranspose

    @property
    def x(self) -> Operand:
        return self.step.reads[0]

    @property
    def w(self) -> Operand:
        return self.step.reads[1]

    @property
    def transposed(self) -> bool:
        return isinstance(self.op, ConvTranspose)

    @property
    def channels(self) -> Size:
        """Channels of x in a group."""
        return self.x.layout.sizes[1] // self.op.groups

    @property
    def outputs(self) -> Size:
        """Channels of the result."""
        return self.step.shape[1]

    @property
    def cols(self) -> Size:
        """Channels of the result in a group."""
        return self.outputs // self.op.groups

    @property
    def kernel(self) -> Shape:
        return self.w.layout.sizes[2:]

    @property
    def is_depthwise(self) -> bool:
        return self.channels == 1 and not self.transposed and self.op.groups > 1


def own_conv(low: Lowering, step: Step, op: Conv | ConvTranspose) -> Calls:
    """Return the launches of a convolution with its program, whatever it is."""
    problem = _Problem(low, step, op)
    calls: Calls = []
    weights = _weights(problem, calls)
    write = _depthwise if problem.is_depthwise else _tiled
    return [*calls, write(problem, weights)]


def _weights(problem: _Problem, calls: Calls) -> Pointer:
    """Return weights in the order that a kernel reads them, turned if that is needed."""
    low, w, groups = problem.low, problem.w, problem.op.groups
    lead = (groups, w.layout.sizes[0] // groups)
    array = low.constant(w)
    spatial = tuple(range(3, 1 + w.layout.rank))
    # [G, M/G, C/G, *kernel], or [G, C/G, M/G, *kernel] of a transpose
    channels = (1, 2) if problem.transposed else (2, 1)
    order = (*spatial, 0, *channels) if problem.is_depthwise else (0, *spatial, *channels)
    if array is not None:
        split = array.reshape(groups, array.shape[0] // groups, *array.shape[1:])
        return low.kept((w, "conv", order, groups), np.ascontiguousarray(split.transpose(order)))
    view = w.layout.view((*lead, *w.layout.sizes[1:])).always
    if view is None:
        dense = low.temporary(low.dtype(w), w.layout.sizes)
        calls.append(low.copy(dense, w))
        w = dense
        view = dense.layout.view((*lead, *w.layout.sizes[1:])).always
    assert view is not None
    turned = view.permute(order)
    if turned.is_contiguous:
        return Operand(w.buffer, turned)
    made = low.temporary(low.dtype(w), turned.sizes)
    calls.append(low.copy(made, Operand(w.buffer, turned)))
    return made


def _builder(problem: _Problem, entry: str, weights: Pointer) -> KernelBuilder:
    """Return what both kernels have."""
    low, step, op = problem.low, problem.step, problem.op
    assert step.node is not None
    x = problem.x.layout
    rank = max(1, x.rank - 2)
    b = KernelBuilder("conv", entry, low.threads)
    add_products(b, step.node.results[0].dtype)
    b.constant("RANK", rank)
    b.constant("THREADS", low.threads)
    b.reads("x", problem.x, storage_type(low.dtype(problem.x)))
    b.reads("w", weights, storage_type(low.dtype(problem.w)))
    b.number("groups", op.groups)
    b.number("cols", problem.cols)
    b.number("taps", size_prod(problem.kernel))
    b.number("x_image", x.strides[0])
    b.number("x_channel", x.strides[1])
    rows: Sequence[tuple[str, Shape, Size]] = (
        ("x_space", x.strides[2:], 0),
        ("sizes", x.sizes[2:], 1),
        ("windows", step.shape[2:], 1),
        ("kernel", problem.kernel, 1),
        ("step", op.strides, 1),
        ("dilation", op.dilations, 1),
        ("before", tuple(before for before, _ in op.pads), 0),
    )
    for name, row, missing in rows:
        b.numbers(name, row or (missing,))
    low.end(b, step, (0, *range(2, x.rank), 1))
    return b


def _tiled(problem: _Problem, weights: Pointer) -> Launch:
    b = _builder(problem, "conv_tiled", weights)
    cols = problem.cols
    narrow = isinstance(cols, int) and cols <= FEW_COLUMNS
    across = FEW_COLUMNS if narrow else 2 * FEW_COLUMNS
    down = 4
    rows = problem.low.threads // (across // 4) * down
    points = problem.step.shape[0] * size_prod(problem.step.shape[2:])
    constants = {
        "ROWS": rows,
        "COLS": across,
        "DEPTH": DEPTH,
        "DOWN": down,
        "CHANNELS_LAST": problem.x.layout.strides[1] == 1,
        "TRANSPOSED": problem.transposed,
    }
    for name, number in constants.items():
        b.constant(name, number)
    b.number("points", points)
    b.number("channels", problem.channels)
    tiles = problem.op.groups * ceildiv(points, rows) * ceildiv(cols, across)
    depth = problem.channels * size_prod(problem.kernel)
    return b.launch(blocks_for(tiles, 1), extent=problem.outputs * depth)


def _depthwise(problem: _Problem, weights: Pointer) -> Launch:
    b = _builder(problem, "conv_depthwise", weights)
    windows = problem.step.shape[2:] or (1,)
    lines = problem.step.shape[0] * size_prod(windows[:-1])
    b.constant("POINTS", POINTS)
    b.number("lines", lines)
    threads = lines * ceildiv(windows[-1], POINTS) * problem.outputs
    return b.launch(blocks_for(threads, problem.low.threads))
