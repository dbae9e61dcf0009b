"""Convolutions of integers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from kn_cpu.axes import KernelCall
from kn_cpu.conv import ConvProblem, Order, weight_layout
from kn_cpu.depthwise import is_depthwise
from kn_cpu.integer import Finish
from kn_cpu.integer_conv import (
    integer_conv_call,
    integer_conv_weights,
    integer_depthwise_call,
    integer_depthwise_weights,
    is_channels_first,
)
from kn_cpu.lowering import Calls, Lowering
from kn_cpu.product import BlockProgram
from kn_cpu.steps.integer import PackedWeights, computed_weights, finished, packed_weights
from kn_cpu.steps.spacing import channels_last
from kn_graph.dtype import DType
from kn_graph.ops.conv import Conv
from kn_plan.calls import UnsupportedError
from kn_plan.layout import StridedLayout
from kn_plan.plan import Operand, Step

__all__ = ["integer_conv"]

Array = np.ndarray[Any, Any]

FEW = 4
"""Channels up to which lines of single ones are copied into windows."""


def integer_conv(low: Lowering, step: Step, op: Conv) -> Calls:
    """Convolve integers whose sums have 32 bits."""
    low.only_sums(op.out_dtype)
    x, w = step.reads
    array = low.constant(w)
    kernel: Any = w.layout.sizes[2:]
    problem = ConvProblem(
        x.layout, step.writes[0].layout, kernel, op.strides, op.dilations, op.pads, op.groups
    )
    before: Calls = []
    if is_channels_first(problem) and not _has_few_channels(problem):
        turned = channels_last(low, x)
        before = [low.copy(turned, x)]
        x, problem = turned, replace(problem, x=turned.layout)
    if array is not None and not array.size:
        array = None
    if array is not None and is_depthwise(replace(problem, out=_last(problem.out))):
        return [*before, *_depthwise(low, step, x, problem, array)]
    first = is_channels_first(problem)
    if array is not None:
        matrices = integer_conv_weights(array, op.groups, channels_first=first)
        weights = packed_weights(low, w, matrices, low.dtype(x), order=int(first))
    else:
        weights, packing = _computed(low, w, op, low.dtype(x), channels_first=first)
        before += packing

    def make(
        _: Operand, out: StridedLayout, finish: Finish, program: BlockProgram | None
    ) -> KernelCall:
        return integer_conv_call(
            low.registers,
            replace(problem, out=out),
            weights.factors,
            finish=finish,
            program=program,
        )

    pointers = (x, weights.panels, None, weights.starts, weights.lows)
    return [*before, *finished(low, step, "integer_conv", 1, pointers, make)]


def _computed(
    low: Lowering, w: Operand, op: Conv, left: DType, *, channels_first: bool
) -> tuple[PackedWeights, Calls]:
    """Return weights that are packed in every run."""
    if not w.layout.is_contiguous:
        raise UnsupportedError("its weights are computed, and a view of others")
    order = Order.CHANNELS_FIRST if channels_first else Order.IN_PLACE
    turned = weight_layout(w.layout, op.groups, order)
    copy = low.temporary(low.dtype(w), turned.sizes)
    matrices, outer, inner, cols = turned.sizes
    flat = Operand(copy.buffer, StridedLayout.contiguous((matrices, outer * inner, cols)))
    weights, packed = computed_weights(low, flat, left)
    return weights, [low.copy(copy, Operand(w.buffer, turned)), packed]


def _last(out: StridedLayout) -> StridedLayout:
    """Return any layout with channels last: results go anywhere."""
    return StridedLayout(out.sizes, (0, 1, *(0 for _ in out.sizes[2:])))


def _has_few_channels(problem: ConvProblem) -> bool:
    """Return whether windows are best copied from channels that lie one after another."""
    channels = problem.channels
    few = isinstance(channels, int) and channels <= FEW and problem.groups == 1
    return few and any(k != 1 for k in problem.kernel)


def _depthwise(low: Lowering, step: Step, x: Operand, problem: ConvProblem, array: Array) -> Calls:
    w = step.reads[1]
    (weights,) = low.keep(
        (w.buffer, w.layout, "taps"), 1, lambda: [integer_depthwise_weights(low.registers, array)]
    )

    def make(
        _: Operand, out: StridedLayout, finish: Finish, program: BlockProgram | None
    ) -> KernelCall:
        return integer_depthwise_call(
            low.registers, replace(problem, out=out), low.dtype(x), finish=finish, program=program
        )

    return finished(low, step, "integer_depthwise", 1, (x, weights, None), make)
