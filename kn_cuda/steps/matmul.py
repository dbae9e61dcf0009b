"""Products of matrices, by a library; the program behind them is a launch of its own."""

from __future__ import annotations

from kn_cuda.axes import joined
from kn_cuda.calls import Gemm, LibraryCall, UnsupportedError
from kn_cuda.lowering import Calls, Lowering
from kn_graph.dim import Size
from kn_graph.dtype import DType
from kn_graph.ops.matmul import MatMul
from kn_graph.types import Shape
from kn_plan.layout import StridedLayout
from kn_plan.plan import Operand, Step

__all__ = ["matmul"]

TYPES = {
    (DType.FLOAT32, DType.FLOAT32),
    (DType.FLOAT64, DType.FLOAT64),
    (DType.FLOAT16, DType.FLOAT16),
    (DType.FLOAT16, DType.FLOAT32),
    (DType.BFLOAT16, DType.BFLOAT16),
    (DType.BFLOAT16, DType.FLOAT32),
}
"""Of operands and result."""


def matmul(low: Lowering, step: Step, op: MatMul) -> Calls:
    """Multiply matrices."""
    assert step.node is not None
    dtype, out = low.dtype(step.reads[0]), step.node.results[0].dtype
    if (dtype, out) not in TYPES or low.dtype(step.reads[1]) is not dtype:
        raise UnsupportedError(f"there is no kernel for products of {dtype} that give {out}")
    calls: Calls = []
    a, b = (_as_lines(low, x, calls) for x in step.reads)
    result = low.result(step)
    target = result
    if not _lines(result.layout):
        target = low.temporary(out, step.shape)
    call = _product(low, a, b, target, dtype, out)
    calls.append(call)
    if target is not result:
        calls.append(low.copy(result, target))
    return [*calls, *low.behind(step, result)]


def _lines(layout: StridedLayout) -> bool:
    """Return whether the elements of rows lie side by side, and a library can tell rows apart."""
    return layout.strides[-1] == 1 and layout.strides[-2] != 0


def _turned(layout: StridedLayout) -> StridedLayout:
    axes = [*range(layout.rank - 2), layout.rank - 1, layout.rank - 2]
    return layout.permute(axes)


def _as_lines(low: Lowering, x: Operand, calls: Calls) -> Operand:
    """Return an operand whose rows or columns lie side by side, copied where they do not."""
    sizes, strides = x.layout.sizes[-2:], x.layout.strides[-2:]
    repeated = any(n != 1 and s == 0 for n, s in zip(sizes, strides, strict=True))
    if 1 in strides and not repeated:
        return x
    made = low.temporary(low.dtype(x), x.layout.sizes)
    calls.append(low.copy(made, x))
    return made


def _product(
    low: Lowering, a: Operand, b: Operand, out: Operand, dtype: DType, result: DType
) -> LibraryCall:
    a_turned, b_turned = (x.layout.strides[-1] != 1 for x in (a, b))
    rows = [
        _turned(a.layout) if a_turned else a.layout,
        _turned(b.layout) if b_turned else b.layout,
    ]
    lines = [*rows, out.layout]
    m, n = out.layout.sizes[-2:]
    k = a.layout.sizes[-1]
    steps = tuple(x.strides[-2] for x in lines)
    batch = _batches(out.layout.sizes[:-2], *(x.strides[:-2] for x in lines))
    request = Gemm(dtype, result, a_turned, b_turned, low.options.math)
    numbers = (m, n, k, *steps, *batch)
    return LibraryCall(request, (a, b, out), numbers, out.layout.numel)


def _batches(sizes: Shape, *strides: Shape) -> tuple[Size, ...]:
    """Return an outer and an inner batch, each with the strides of all operands.

    Raises:
        UnsupportedError: there are more than two.
    """
    joined_sizes, by_operand = joined(sizes, *strides)
    missing = 2 - len(joined_sizes)
    if missing < 0:
        raise UnsupportedError("its matrices lie in more than two ways")
    padded = (1,) * missing + joined_sizes
    rows = [(0,) * missing + steps for steps in by_operand]
    return tuple(n for i in (0, 1) for n in (padded[i], *(steps[i] for steps in rows)))
