"""Convolutions."""

from __future__ import annotations

from typing import Any

from kn_cpu.calls import NativeCall
from kn_cpu.conv import ConvProblem, conv_call, packed_weights, weight_layout, window_order
from kn_cpu.copy import copy_call
from kn_cpu.depthwise import depthwise_call, depthwise_weights, is_depthwise
from kn_cpu.epilogue import split
from kn_cpu.gemm import pack_call
from kn_cpu.lowering import Calls, Lowering, layout_of
from kn_cpu.steps.integer import is_integer
from kn_cpu.steps.integer_conv import integer_conv
from kn_graph.dim import evaluate
from kn_graph.ops.conv import Conv
from kn_plan.layout import StridedLayout
from kn_plan.plan import Operand, Step

__all__ = ["conv"]


def conv(low: Lowering, step: Step, op: Conv) -> Calls:
    """Convolve."""
    if is_integer(low, step):
        return integer_conv(low, step, op)
    low.only_float32(step)
    x, w = step.reads
    end = split(step.program, step.extras, 1)
    out = step.writes[0]
    kernel: Any = w.layout.sizes[2:]
    problem = ConvProblem(
        x.layout, out.layout, kernel, op.strides, op.dilations, op.pads, op.groups,
        layout_of(end.residual),
    )  # fmt: skip
    if is_depthwise(problem):
        turned = depthwise_weights(w.layout)
        count = evaluate(turned.numel, {})
        call = copy_call(StridedLayout.contiguous(turned.sizes), turned, 4)
        weights = low.pack_copy(Operand(w.buffer, turned), count, call)
        made = depthwise_call(low.registers, problem, low=end.low, high=end.high)
        first = NativeCall("depthwise", made, (x, weights, out, end.bias, end.residual))
        return [first, *low.behind(step, end)]
    order = window_order(x.layout, kernel, op.groups)
    dense = low.dense(w)
    made = conv_call(low.registers, problem, order, low=end.low, high=end.high)
    layout = weight_layout(dense.layout, op.groups, order)
    floats = evaluate(packed_weights(low.registers, problem), {})
    weights = low.pack(
        Operand(dense.buffer, layout), floats, "gemm", pack_call(layout, low.registers)
    )
    pointers = (x, weights, out, end.bias, end.residual)
    return [NativeCall("conv", made, pointers), *low.behind(step, end)]
