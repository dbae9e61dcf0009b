"""Transposed convolutions."""

from __future__ import annotations

from typing import Any

from kn_cpu.calls import NativeCall
from kn_cpu.conv import ConvProblem
from kn_cpu.conv_transpose import conv_transpose_call, has_conv_transpose, transposed_weights
from kn_cpu.epilogue import split
from kn_cpu.gemm import pack_call
from kn_cpu.lowering import Calls, Lowering, layout_of
from kn_cpu.product import packed_size
from kn_cpu.steps.spacing import channels_last
from kn_graph.dim import evaluate
from kn_graph.ops.conv import ConvTranspose
from kn_plan.plan import Operand, Step

__all__ = ["conv_transpose"]


def conv_transpose(low: Lowering, step: Step, op: ConvTranspose) -> Calls:
    """Convolve, transposed."""
    low.only_float32(step)
    x, w = step.reads
    end = split(step.program, step.extras, 1)
    out = step.writes[0]
    dense = low.dense(w)
    kernel: Any = w.layout.sizes[2:]
    before: Calls = []
    if x.layout.strides[1] != 1 and x.layout.sizes[1] != 1:
        source, x = x, channels_last(low, x)
        before = [low.copy(x, source)]
    problem = ConvProblem(
        x.layout, out.layout, kernel, op.strides, op.dilations, op.pads, op.groups,
        layout_of(end.residual),
    )  # fmt: skip
    assert has_conv_transpose(problem)
    layout = transposed_weights(dense.layout, op.groups)
    groups, points, channels, cols = layout.sizes
    floats = evaluate(groups * packed_size(points * channels, cols, low.registers), {})
    weights = low.pack(
        Operand(dense.buffer, layout), floats, "gemm", pack_call(layout, low.registers)
    )
    made = conv_transpose_call(low.registers, problem, low=end.low, high=end.high)
    pointers = (x, weights, out, end.bias, end.residual)
    return [*before, NativeCall("conv_transpose", made, pointers), *low.behind(step, end)]
