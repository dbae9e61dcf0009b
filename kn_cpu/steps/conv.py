"""Convolutions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kn_cpu.calls import NativeCall, Pointer
from kn_cpu.conv import ConvProblem, conv_call, packed_weights, weight_layout, window_order
from kn_cpu.conv_choice import winograd_wins
from kn_cpu.copy import copy_call
from kn_cpu.depthwise import depthwise_call, depthwise_weights, is_depthwise
from kn_cpu.epilogue import Epilogue, split
from kn_cpu.gemm import pack_call
from kn_cpu.lowering import Calls, Lowering, layout_of
from kn_cpu.steps.integer import is_integer
from kn_cpu.steps.integer_conv import integer_conv
from kn_cpu.winograd import winograd_call, winograd_weights_call, winograd_weights_size
from kn_graph.dim import Size, evaluate
from kn_graph.ops.conv import Conv
from kn_plan.layout import StridedLayout
from kn_plan.plan import Operand, Step

__all__ = ["conv"]


def conv(low: Lowering, step: Step, op: Conv) -> Calls:
    """Convolve, by the kernel that is the fastest at the sizes at hand."""
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
    writer = _Writer(low, problem, x, w, out, end)
    if is_depthwise(problem):
        calls = [writer.depthwise()]
    else:
        wins = winograd_wins(problem, low.registers, strict=low.strict)
        calls = [] if wins == 1 else [writer.direct(1 - wins)]
        calls += [] if wins == 0 else [writer.winograd(wins)]
    return [*calls, *low.behind(step, end)]


@dataclass(frozen=True)
class _Writer:
    """Writes the call of one of the kernels."""

    low: Lowering
    problem: ConvProblem
    x: Operand
    w: Operand
    out: Operand
    end: Epilogue

    def _pointers(self, weights: Pointer) -> tuple[Pointer, ...]:
        return (self.x, weights, self.out, self.end.bias, self.end.residual)

    def depthwise(self) -> NativeCall:
        registers, end = self.low.registers, self.end
        turned = depthwise_weights(self.w.layout)
        count = evaluate(turned.numel, {})
        copy = copy_call(StridedLayout.contiguous(turned.sizes), turned, 4)
        weights = self.low.pack_copy(Operand(self.w.buffer, turned), count, copy)
        call = depthwise_call(registers, self.problem, low=end.low, high=end.high)
        return NativeCall("depthwise", call, self._pointers(weights))

    def direct(self, guard: Size) -> NativeCall:
        registers, p, end = self.low.registers, self.problem, self.end
        order = window_order(p.x, p.kernel, p.groups)
        dense = self.low.dense(self.w)
        layout = weight_layout(dense.layout, p.groups, order)
        floats = evaluate(packed_weights(registers, p), {})
        matrix, pack = Operand(dense.buffer, layout), pack_call(layout, registers)
        weights = self.low.pack_if(guard, matrix, floats, "gemm", pack)
        call = conv_call(registers, p, order, low=end.low, high=end.high)
        return NativeCall("conv", call, self._pointers(weights), guard)

    def winograd(self, guard: Size) -> NativeCall:
        registers, p, end = self.low.registers, self.problem, self.end
        floats = evaluate(winograd_weights_size(p, registers), {})
        pack = winograd_weights_call(p, registers)
        weights = self.low.pack_if(guard, self.low.dense(self.w), floats, "winograd", pack)
        call = winograd_call(registers, p, low=end.low, high=end.high)
        return NativeCall("winograd", call, self._pointers(weights), guard)
