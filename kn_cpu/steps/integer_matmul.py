"""Products of integer matrices."""

from __future__ import annotations

from kn_cpu.axes import KernelCall
from kn_cpu.integer import Factors, Finish
from kn_cpu.integer_gemm import integer_gemm_call
from kn_cpu.lowering import Calls, Lowering
from kn_cpu.product import BlockProgram
from kn_cpu.steps.integer import finished, packed_weights
from kn_graph.ops.matmul import MatMul
from kn_plan.calls import Pointer
from kn_plan.layout import StridedLayout
from kn_plan.plan import Operand, Step

__all__ = ["integer_matmul"]


def integer_matmul(low: Lowering, step: Step, op: MatMul) -> Calls:
    """Multiply matrices of integers whose sums have 32 bits."""
    low.only_sums(op.out_dtype)
    a, b = step.reads
    left, right = low.dtype(a), low.dtype(b)
    array = low.constant(b)
    repeats = all(
        n == 1 or s == 0 for n, s in zip(b.layout.sizes[:-2], b.layout.strides[:-2], strict=True)
    )
    if array is not None and repeats and array.size:
        matrix = array[(0,) * (array.ndim - 2)][None]
        weights = packed_weights(low, b, matrix, left)
        factors, layout = weights.factors, None
        pointers: tuple[Pointer, ...] = (a, weights.panels, None, weights.starts, weights.lows)
    else:
        factors = Factors.of(low.registers, a.layout.sizes[-1], left, right)
        layout, pointers = b.layout, (a, b, None, None, None)

    def make(
        _: Operand, out: StridedLayout, finish: Finish, program: BlockProgram | None
    ) -> KernelCall:
        return integer_gemm_call(
            low.registers, factors, out, a.layout, layout, finish=finish, program=program
        )

    return finished(low, step, "integer_gemm", len(step.shape) - 1, pointers, make)
