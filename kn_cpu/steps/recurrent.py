"""Recurrent layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kn_cpu.calls import NativeCall
from kn_cpu.gemm import Packed, gemm_call, pack_call
from kn_cpu.lowering import Calls, Lowering
from kn_cpu.product import packed_size
from kn_cpu.recurrent import (
    RecurrentLayouts,
    packed_recurrent_size,
    recurrent_call,
    recurrent_pack_call,
    recurrent_products,
    steps_come_first,
)
from kn_graph.dim import Size, evaluate
from kn_graph.dtype import DType
from kn_graph.ops.recurrent import Recurrent
from kn_plan.calls import Pointer, UnsupportedError
from kn_plan.layout import StridedLayout
from kn_plan.plan import Operand, Step
from kn_plan.statuses import lengths_status

__all__ = ["recurrent"]


def recurrent(low: Lowering, step: Step, op: Recurrent) -> Calls:
    """Multiply all steps with the input weights, then step through the sequence."""
    x, w, r, *rest = step.reads
    given: dict[str, Operand] = dict(zip(op.optional, rest, strict=True))
    floats = [o for o in (*step.reads, *step.writes) if o is not given.get("lengths")]
    if any(low.dtype(o) is not DType.FLOAT32 for o in floats):
        raise UnsupportedError("its kernel is for float32")
    y, y_h, *y_c = step.writes
    layouts = {n: o.layout for n, o in given.items()}
    at = RecurrentLayouts(y.layout, y_h.layout, *(o.layout for o in y_c), **layouts)
    products, calls = _products(low, op, x, w)
    call = recurrent_call(op, low.registers, products.layout, at)
    weights, packing = _weights(low, op, r)
    status = lengths_status(x.layout.sizes[0]) if "lengths" in given else None
    pointers = (
        y, y_h, y_c[0] if y_c else None, products, weights,
        *(given.get(n) for n in ("bias", "lengths", "initial_h", "initial_c", "peepholes")),
        status,
    )  # fmt: skip
    return [*calls, *packing, NativeCall("recurrent", call, pointers)]


def _products(low: Lowering, op: Recurrent, x: Operand, w: Operand) -> tuple[Operand, Calls]:
    """Return x @ w^T for all steps and gates, and what computes it."""
    depth = w.layout.sizes[2]  # which may be known where that of x is not
    out = recurrent_products(op, x.layout)
    slack = low.registers.vector
    memory = low.temporary(DType.FLOAT32, (out.numel + slack,)).buffer
    calls = []
    each = _transposed(w.layout)
    cols = each[0].sizes[1]
    for number, matrix in enumerate(each):
        part = Operand(memory, out.slice(2, number * cols, cols))
        target, left = (_matrices(o.layout, x.layout) for o in (part, x))
        left = replace(left, sizes=(*left.sizes[:-1], depth))
        batches = target.sizes[:-2]
        right, pointer = _right(low, Operand(w.buffer, matrix), (*batches, depth, cols))
        made = gemm_call(low.registers, target, left, right)
        calls.append(NativeCall("gemm", made, (x, pointer, part, None, None)))
    return Operand(memory, out), calls


def _matrices(layout: StridedLayout, x: StridedLayout) -> StridedLayout:
    """Return a layout [steps, batch, n] in the order in which rows of x lie, one matrix if it is.

    A product merges the batches of matrices that lie behind one another.
    """
    order = (0, 1) if steps_come_first(x) else (1, 0)
    one = next((a for a in order if x.sizes[a] == 1), None)
    kept = [a for a in (*order, 2) if a != one]
    sizes, strides = (tuple(t[a] for a in kept) for t in (layout.sizes, layout.strides))
    return StridedLayout(sizes, strides, layout.offset)


def _transposed(w: StridedLayout) -> list[StridedLayout]:
    """Return the weights [direction, row, depth] as one matrix [depth, columns], or as two."""
    (directions, rows, depth), (outer, row, col) = w.sizes, w.strides
    if directions == 1 or outer == rows * row:
        return [StridedLayout((depth, directions * rows), (col, row), w.offset)]
    first = StridedLayout((depth, rows), (col, row), w.offset)
    return [first, replace(first, offset=w.offset + outer)]


def _right(
    low: Lowering, w: Operand, sizes: Sequence[Size]
) -> tuple[StridedLayout | Packed, Pointer]:
    """Return a matrix as right operand of a product for each step, packed if it is a constant."""
    repeated = (0,) * (len(sizes) - 2)
    if not low.is_constant(w) or 0 in w.layout.sizes:
        return StridedLayout(tuple(sizes), (*repeated, *w.layout.strides), w.layout.offset), w
    count = evaluate(packed_size(sizes[-2], sizes[-1], low.registers), {})
    pointer = low.pack(w, count, "gemm", pack_call(w.layout, low.registers))
    return Packed(tuple(sizes), repeated), pointer


def _weights(low: Lowering, op: Recurrent, r: Operand) -> tuple[Pointer, Calls]:
    """Return the packed recurrent weights, and what packs them in each run if they are computed."""
    call, size = recurrent_pack_call(op, r.layout), packed_recurrent_size(op, low.registers)
    if low.is_constant(r) and 0 not in r.layout.sizes:
        return low.pack(r, evaluate(size, {}), "recurrent", call), []
    packed = low.temporary(DType.FLOAT32, (size,))
    return packed, [NativeCall("recurrent", call, (r, packed))]
