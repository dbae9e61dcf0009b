"""Products of matrices."""

from __future__ import annotations

from typing import Any

from kn_cpu.calls import NativeCall, Pointer
from kn_cpu.epilogue import split
from kn_cpu.gemm import Packed, gemm_call, pack_call, packed_layout
from kn_cpu.lowering import Calls, Lowering, layout_of
from kn_cpu.product import Registers, packed_size
from kn_cpu.steps.integer import is_integer
from kn_cpu.steps.integer_matmul import integer_matmul
from kn_graph.dim import evaluate
from kn_graph.ops.matmul import MatMul
from kn_plan.layout import StridedLayout
from kn_plan.plan import Operand, Step

__all__ = ["matmul"]


def matmul(low: Lowering, step: Step, op: MatMul) -> Calls:
    """Multiply matrices."""
    if is_integer(low, step):
        return integer_matmul(low, step, op)
    low.only_float32(step)
    a, b = step.reads
    end = split(step.program, step.extras, len(step.shape) - 1)
    out = step.writes[0]
    right: StridedLayout | Packed = b.layout
    pointer: Pointer = b
    array = low.constant(b)
    if array is not None and 0 not in b.layout.sizes and _single(b.layout):
        matrix = StridedLayout(b.layout.sizes[-2:], b.layout.strides[-2:], b.layout.offset)
        packed = packed_layout(matrix.sizes, low.registers)
        floats = evaluate(_floats(packed, low.registers), {})
        call = pack_call(matrix, low.registers)
        pointer = low.pack(Operand(b.buffer, matrix), floats, "gemm", call)
        right = Packed((*b.layout.sizes[:-2], *packed.sizes), (0,) * (b.layout.rank - 2))
    made = gemm_call(
        low.registers, out.layout, a.layout, right,
        bias=layout_of(end.bias), residual=layout_of(end.residual), low=end.low, high=end.high,
    )  # fmt: skip
    pointers = (a, pointer, out, end.bias, end.residual)
    return [NativeCall("gemm", made, pointers), *low.behind(step, end)]


def _single(layout: StridedLayout) -> bool:
    """Return whether all matrices of a batch are the same one."""
    return all(
        n == 1 or s == 0 for n, s in zip(layout.sizes[:-2], layout.strides[:-2], strict=True)
    )


def _floats(packed: Packed, registers: Registers) -> Any:

    return packed_size(packed.sizes[-2], packed.sizes[-1], registers)
