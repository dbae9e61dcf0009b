"""Windows: see `kernels/pool.cu`."""

from __future__ import annotations

from collections.abc import Sequence

from kn_cuda.axes import blocks_for, in_order
from kn_cuda.builder import KernelBuilder
from kn_cuda.expression import literal
from kn_cuda.lowering import Calls, Lowering
from kn_cuda.places import add_places
from kn_cuda.types import compute_type
from kn_graph.dim import Size, size_prod
from kn_graph.dtype import DType
from kn_graph.ops.pool import Pool
from kn_graph.ops.reduce import identity_of
from kn_graph.types import Shape
from kn_plan.calls import UnsupportedError
from kn_plan.layout import StridedLayout
from kn_plan.plan import Step

__all__ = ["pool"]

SPATIAL = 3
"""Axes of the kernel; missing ones are put in front."""


def pool(low: Lowering, step: Step, op: Pool) -> Calls:
    """Fold windows."""
    (x, type_), dtype = low.typed(step.reads[0]), low.dtype(step.reads[0])
    rank = len(op.kernel)
    if rank > SPATIAL:
        raise UnsupportedError(f"there is no kernel for windows over {rank} axes")
    lead = x.layout.rank - rank
    order = in_order(step.writes[0].layout.strides)
    b = KernelBuilder("pool", "pool_windows", low.threads)
    b.constant("INDEXED", op.indices != "none")
    b.constant("COUNTED", op.fn == "mean")
    b.reads("x", x, type_)
    b.number("count", size_prod(step.shape))
    for name, row, missing in _rows(op, x.layout):
        b.numbers(name, (*(missing,) * (SPATIAL - rank), *row))
    special = {lead + i: SPATIAL - rank + i for i in range(rank)}
    plain = StridedLayout.contiguous(x.layout.sizes).strides
    add_places(b, step.shape, order, special, x.layout.strides, plain)
    _add_functions(b, op, dtype)
    low.end(b, step, order)
    if op.indices != "none":
        b.code(_END_INDEX)
    return [b.launch(blocks_for(size_prod(step.shape), low.threads))]


_END_INDEX = """KN_DEVICE static void end_index(
    const Pointers& p, const Numbers& n, Index i, Index found) {
    Index at[2] = {};
    locate(at, i, n.end_sizes, n.end_strides);
    p.y1[at[1]] = found;
}
"""


def _rows(op: Pool, x: StridedLayout) -> Sequence[tuple[str, Shape, Size]]:
    """Return the numbers of the spatial axes, and those of a missing one."""
    lead = x.rank - len(op.kernel)
    before, after = (tuple(p[i] for p in op.pads) for i in (0, 1))
    counts = op.count_include_pad
    none = (0,) * len(op.kernel)
    return (
        ("kernel", op.kernel, 1),
        ("step", op.strides, 1),
        ("dilation", op.dilations, 1),
        ("before", before, 0),
        ("margin", before if counts else none, 0),
        ("margin_after", after if counts else none, 0),
        ("spatial", x.sizes[lead:], 1),
        ("x_space", x.strides[lead:], 0),
        ("number", _numbering(op, x.sizes[lead:]), 0),
    )


def _numbering(op: Pool, sizes: Shape) -> Shape:
    """Return by how much the number of an element grows along each spatial axis."""
    if op.indices != "column_major":
        return StridedLayout.contiguous(sizes).strides
    return tuple(reversed(StridedLayout.contiguous(sizes[::-1]).strides))


def _add_functions(b: KernelBuilder, op: Pool, dtype: DType) -> None:
    acc, text = compute_type(dtype), "a + b"
    start = literal(identity_of("max" if op.fn == "max" else "sum", dtype), dtype)
    if op.fn == "max":
        text = "a > b || a != a ? a : b"
    elif dtype.is_int:  # wraps
        acc = "uint64_t" if dtype.bits > 32 else "uint32_t"
    b.type("Acc", acc)
    b.code(f"KN_DEVICE static Acc start() {{ return {start}; }}")
    b.code(f"struct Combine {{ KN_DEVICE static Acc of(Acc a, Acc b) {{ return {text}; }} }};")
    result = "acc / Acc(counted)" if op.fn == "mean" else "acc"
    b.code(f"KN_DEVICE static Acc finish(Acc acc, Index counted) {{ return {result}; }}")
