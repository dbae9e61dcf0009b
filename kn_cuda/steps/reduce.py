"""Reductions, and where extremes are."""

from __future__ import annotations

from collections.abc import Sequence

from kn_cuda.axes import blocks_for, in_order, joined
from kn_cuda.builder import KernelBuilder
from kn_cuda.calls import Launch
from kn_cuda.elements import Axes, Elements, Front, read_places
from kn_cuda.lowering import Calls, Lowering
from kn_cuda.reduction import FEW, Reduction
from kn_cuda.types import compute_type
from kn_graph.dim import Size, size_prod
from kn_graph.ops.reduce import ArgReduce, Reduce, ReduceTo
from kn_plan.calls import Status
from kn_plan.layout import StridedLayout
from kn_plan.plan import Step
from kn_plan.statuses import reduction_status, sizes_differ

__all__ = ["arg_reduce", "reduce", "reduce_to"]


def reduce(low: Lowering, step: Step, op: Reduce, front: Front | None = None) -> Calls:
    """Reduce axes, of what lies in memory or of what a program in front makes."""
    x = step.reads[0]
    left = [a for a in range(x.layout.rank) if a not in op.axes]
    kept, gone = _along_memory(x.layout, left), _along_memory(x.layout, op.axes)
    places = tuple(read_places(low, x, front))
    layouts = [p.typed[0].layout for p in places]
    elements = Elements(places, _chosen(layouts, kept), _chosen(layouts, gone), front)
    reduction = Reduction(op.fn, low.dtype(x), elements)
    order = [left.index(a) for a in kept]
    return reduction.calls(low, lambda b: low.end(b, step, order))


def reduce_to(low: Lowering, step: Step, op: ReduceTo) -> Calls:
    """Reduce the axes whose size becomes 1; sizes that are neither 1 nor the same are an error."""
    x = step.reads[0]
    old, new = x.layout.sizes, step.shape
    bad = sizes_differ(old, new)
    # along an axis that stays there is one element to reduce, and along another all of them
    order = in_order(x.layout.strides)
    steps = tuple(x.layout.strides[a] for a in order)
    kept = joined(tuple(new[a] for a in order), steps)
    gone = joined(tuple(old[a] - new[a] + 1 for a in order), steps)
    elements = Elements(tuple(read_places(low, x, None)), kept, gone)
    reduction = Reduction(op.fn, low.dtype(x), elements, guard=1 - bad)
    calls = reduction.calls(low, lambda b: low.end(b, step, order))
    return calls if bad == 0 else [_report(reduction_status(old, new), bad), *calls]


def _report(status: Status, guard: Size) -> Launch:
    """Return a launch that says that sizes are wrong."""
    b = KernelBuilder("fill", "fill_report", 32)
    b.writes("status", status, "int64_t")
    b.number("word", 1)
    return b.launch(1, guard=guard)


def arg_reduce(low: Lowering, step: Step, op: ArgReduce) -> Calls:
    """Find extremes."""
    x, type_ = low.typed(step.reads[0])
    layout, length = x.layout, x.layout.sizes[op.axis]
    left = [a for a in range(layout.rank) if a != op.axis]
    kept = _along_memory(layout, left)
    alone = layout.strides[op.axis] != 1 or (isinstance(length, int) and length <= FEW)
    group = 1 if alone else min(low.threads, 256)
    b = KernelBuilder("arg", "arg_rows", low.threads)
    for name, number in (("THREADS", low.threads), ("GROUP", group), ("LAST", op.last)):
        b.constant(name, number)
    acc = compute_type(low.dtype(x))
    b.type("Acc", acc)
    b.reads("x", x, type_)
    sizes, (strides,) = _chosen([layout], kept)
    rows = size_prod(sizes)
    b.number("rows", rows)
    b.number("length", length)
    b.number("stride", layout.strides[op.axis])
    b.numbers("kept", sizes)
    b.numbers("x_kept", strides)
    sign = ">" if op.largest else "<"
    b.code(
        f"KN_DEVICE static bool beats(Acc a, Acc b) {{ return a {sign} b || (a != a && b == b); }}"
    )
    low.end(b, step, [left.index(a) for a in kept])
    return [b.launch(blocks_for(rows, low.threads // group), extent=rows * length)]


def _along_memory(layout: StridedLayout, axes: Sequence[int]) -> list[int]:
    order = in_order(tuple(layout.strides[a] for a in axes))
    return [axes[i] for i in order]


def _chosen(layouts: Sequence[StridedLayout], axes: Sequence[int]) -> Axes:
    """Return the sizes of some axes, and the strides of each layout along them."""
    sizes = tuple(layouts[0].sizes[a] for a in axes)
    return joined(sizes, *(tuple(x.strides[a] for a in axes) for x in layouts))
