"""Reductions."""

from __future__ import annotations

from collections.abc import Mapping

from kn_cuda.axes import blocks_for, in_order, joined
from kn_cuda.builder import KernelBuilder
from kn_cuda.calls import UnsupportedError
from kn_cuda.expression import literal
from kn_cuda.lowering import Calls, Lowering
from kn_cuda.types import compute_type, wide
from kn_graph.dim import Size, size_prod
from kn_graph.dtype import DType, Kind
from kn_graph.ops.reduce import ArgReduce, Reduce, ReduceTo, identity_of
from kn_plan.layout import StridedLayout
from kn_plan.plan import Step

__all__ = ["arg_reduce", "reduce", "reduce_to"]

COMBINE: Mapping[str, str] = {
    "sum": "a + b",
    "mean": "a + b",
    "prod": "a * b",
    "max": "a > b || a != a ? a : b",
    "min": "a < b || a != a ? a : b",
    "any": "a || b",
    "all": "a && b",
}
"""A NaN stays what it is."""

WIDE_ROW = 1024
"""Elements from which on a block reduces a row, and not a warp."""

FEW = 16
"""Elements up to which a thread reduces a row by itself."""


def reduce(low: Lowering, step: Step, op: Reduce) -> Calls:
    """Reduce axes."""
    (x, type_), dtype = low.typed(step.reads[0]), low.dtype(step.reads[0])
    kept = [a for a in range(x.layout.rank) if a not in op.axes]
    gone = _along_memory(x.layout, op.axes)
    rows, reduced = (size_prod([x.layout.sizes[a] for a in axes]) for axes in (kept, gone))
    group = _group(x.layout, gone, reduced)
    b = KernelBuilder("reduce", "reduce_rows" if group else "reduce_each", low.threads)
    if group:
        b.constant("GROUP", min(group, low.threads))
        b.constant("THREADS", low.threads)
    b.reads("x", x, type_)
    b.number("rows", rows)
    b.number("reduced", reduced)
    for name, axes in (("kept", kept), ("gone", gone)):
        sizes, (strides,) = joined(*(tuple(t[a] for a in axes) for t in
                                     (x.layout.sizes, x.layout.strides)))  # fmt: skip
        b.numbers(name, sizes)
        b.numbers(f"x_{name}", strides)
    _add_functions(b, op, dtype)
    low.end(b, step)
    per_block = low.threads // min(group, low.threads) if group else low.threads
    return [b.launch(blocks_for(rows, per_block), extent=rows * reduced)]


def reduce_to(low: Lowering, step: Step, op: ReduceTo) -> Calls:
    """Refuse: there is no kernel yet."""
    raise UnsupportedError("there is no kernel for it")


def arg_reduce(low: Lowering, step: Step, op: ArgReduce) -> Calls:
    """Refuse: there is no kernel yet."""
    raise UnsupportedError("there is no kernel for it")


def _along_memory(layout: StridedLayout, axes: tuple[int, ...]) -> list[int]:
    order = in_order(tuple(layout.strides[a] for a in axes))
    return [axes[i] for i in order]


def _group(layout: StridedLayout, gone: list[int], reduced: Size) -> int:
    """Return how many threads reduce a row: 0 for one by itself."""
    if isinstance(reduced, int) and reduced <= FEW:
        return 0
    along = gone and layout.strides[gone[-1]] == 1
    if not along:
        return 0
    return 256 if isinstance(reduced, int) and reduced > WIDE_ROW else 32


def _add_functions(b: KernelBuilder, op: Reduce, dtype: DType) -> None:
    acc = compute_type(dtype)
    b.type("Acc", acc)
    start = literal(identity_of(op.fn, dtype), dtype)
    b.code(f"KN_DEVICE static Acc start() {{ return {start}; }}")
    text = COMBINE[op.fn]
    if dtype.is_int and op.fn in ("sum", "mean", "prod"):  # wraps
        unsigned = "uint64_t" if dtype.bits > 32 else "uint32_t"
        text = f"Acc({text.replace('a', f'{unsigned}(a)').replace(' b', f' {unsigned}(b)')})"
    b.code(f"struct Combine {{ KN_DEVICE static Acc of(Acc a, Acc b) {{ return {text}; }} }};")
    b.code(
        f"KN_DEVICE static Acc finish(Acc acc, const Numbers& n) {{ return {_finish(op, dtype)}; }}"
    )


def _finish(op: Reduce, dtype: DType) -> str:
    """Return the result of an accumulated number; integers have no NaN, and are truncated."""
    if op.fn != "mean":
        return "acc"
    count = wide(dtype)
    if dtype.kind in (Kind.INT, Kind.UINT):
        divisor = "int64_t(n.reduced)" if dtype is not DType.UINT64 else "uint64_t(n.reduced)"
        return f"n.reduced ? Acc(acc / {divisor}) : Acc(0)"
    return f"acc / {compute_type(count)}(n.reduced)"
