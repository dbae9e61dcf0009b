"""Products of matrices."""

from __future__ import annotations

from dataclasses import replace

from kn_cpu.calls import NativeCall
from kn_cpu.epilogue import Epilogue, split
from kn_cpu.gemm import Packed, gemm_call, pack_call, packed_layout
from kn_cpu.lowering import Calls, Lowering, layout_of
from kn_cpu.product import BlockProgram, common_stride, packed_size
from kn_cpu.steps.integer import is_integer
from kn_cpu.steps.integer_matmul import integer_matmul
from kn_graph.dim import evaluate, size_prod
from kn_graph.ops.matmul import MatMul
from kn_plan.calls import Pointer
from kn_plan.layout import StridedLayout
from kn_plan.plan import Operand, Step

__all__ = ["matmul"]


def matmul(low: Lowering, step: Step, op: MatMul) -> Calls:
    """Multiply matrices."""
    if is_integer(low, step):
        return integer_matmul(low, step, op)
    low.only_float32(step)
    last = len(step.shape) - 1
    end = split(step.program, step.extras, last)
    behind = low.block_program(step, end, range(last), last)
    if behind is not None:
        try:
            return [_product(low, step, end, behind)]
        except ValueError:
            pass  # transposed blocks of several matrices
    return [_product(low, step, end, None), *low.behind(step, end)]


def _product(low: Lowering, step: Step, end: Epilogue, behind: BlockProgram | None) -> NativeCall:
    a, b = step.reads
    out = step.writes[0]
    packed = _packed(low, b)
    pointer: Pointer = b if packed is None else packed[0]
    right = b.layout if packed is None else packed[1]
    call = gemm_call(
        low.registers, out.layout, a.layout, right,
        bias=layout_of(end.bias), residual=layout_of(end.residual), low=end.low, high=end.high,
        program=behind,
    )  # fmt: skip
    pointers: tuple[Pointer, ...] = (a, pointer, out, end.bias, end.residual)
    if behind is not None:
        pointers = (*pointers, *low.program_pointers(step, end))
    return NativeCall("gemm", call, pointers)


def _packed(low: Lowering, b: Operand) -> tuple[Pointer, Packed] | None:
    """Return a constant right operand in panels, if its matrices are evenly spaced."""
    if not low.is_constant(b) or 0 in b.layout.sizes:
        return None
    sizes, strides = b.layout.sizes, b.layout.strides
    varying = [i for i, n in enumerate(sizes[:-2]) if n != 1 and strides[i] != 0]
    kept = tuple(sizes[i] for i in varying)
    matrices = StridedLayout(sizes[-2:], strides[-2:], b.layout.offset)
    if varying:
        step = common_stride(b.layout, varying)
        if step is None:
            return None
        shape = (size_prod(kept), *matrices.sizes)
        matrices = StridedLayout(shape, (step, *matrices.strides), b.layout.offset)
    panels = packed_layout((*kept, *sizes[-2:]), low.registers)
    floats = evaluate(size_prod((*kept, packed_size(sizes[-2], sizes[-1], low.registers))), {})
    steps = dict(zip(varying, panels.strides, strict=True))
    right = Packed(sizes, tuple(steps.get(i, 0) for i in range(len(sizes) - 2)))
    call = pack_call(matrices, low.registers)
    return low.pack(replace(b, layout=matrices), floats, "gemm", call), right
