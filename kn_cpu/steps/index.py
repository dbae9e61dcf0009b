"""Reading and writing elements at indices that are data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from kn_cpu.axes import KernelCall
from kn_cpu.calls import NativeCall
from kn_cpu.gather import (
    can_combine,
    gather_call,
    gather_elements_call,
    gather_nd_call,
    scatter_elements_call,
    scatter_nd_call,
)
from kn_cpu.lowering import Calls, Lowering
from kn_cpu.steps.wide import FLOATS, widened
from kn_graph.dim import Symbol
from kn_graph.dtype import DType
from kn_graph.op import Op
from kn_graph.ops.gather import Gather, GatherElements, GatherND
from kn_graph.ops.scatter import ScatterElements, ScatterND
from kn_plan.calls import Status, Table, UnsupportedError
from kn_plan.layout import StridedLayout
from kn_plan.plan import Operand, Step
from kn_plan.statuses import index_status

__all__ = [
    "Indices",
    "gather",
    "gather_elements",
    "gather_nd",
    "gathered_along",
    "scatter_elements",
    "scatter_nd",
]

Array = np.ndarray[Any, Any]

Make = Callable[..., KernelCall]

Indices = Callable[[Mapping[Symbol, int]], Array]
"""Computes int64 indices of numbers of symbols."""


def gather(low: Lowering, step: Step, op: Gather) -> Calls:
    """Gather slices."""
    return _gathered(low, step, op, gather_call, op.axis)


def gather_nd(low: Lowering, step: Step, op: GatherND) -> Calls:
    """Gather slices by index tuples."""
    return _gathered(low, step, op, gather_nd_call, op.batch_axes)


def gather_elements(low: Lowering, step: Step, op: GatherElements) -> Calls:
    """Gather an element for each index."""
    return _gathered(low, step, op, gather_elements_call, op.axis)


def scatter_nd(low: Lowering, step: Step, op: ScatterND) -> Calls:
    """Write slices by index tuples over a copy, or combine them."""
    return _scatter(low, step, op, scatter_nd_call, 0)


def scatter_elements(low: Lowering, step: Step, op: ScatterElements) -> Calls:
    """Write an element for each index over a copy, or combine them."""
    return _scatter(low, step, op, scatter_elements_call, op.axis)


def _gathered(low: Lowering, step: Step, op: Op, make: Make, axis: int) -> Calls:
    (x, indices), (out,) = step.reads, step.writes
    call = make(
        op, out.layout, x.layout, indices.layout,
        dtype=low.dtype(x), index_dtype=low.dtype(indices),
    )  # fmt: skip
    return [NativeCall("gather", call, (out, x, indices, _status(axis, x)))]


def _scatter(
    low: Lowering, step: Step, op: ScatterElements | ScatterND, make: Make, axis: int
) -> Calls:
    write = partial(_scattered, make=make, axis=axis)
    return write(low, step, op) if op.reduction == "none" else widened(write, FLOATS)(low, step, op)


def _scattered(
    low: Lowering, step: Step, op: ScatterElements | ScatterND, *, make: Make, axis: int
) -> Calls:
    (x, indices, updates), (out,) = step.reads, step.writes
    if not can_combine(op.reduction, low.dtype(x)):
        raise UnsupportedError(f"there is no kernel for {op.reduction} of {low.dtype(x)}")
    call = make(
        op, out.layout, updates.layout, indices.layout,
        dtype=low.dtype(x), index_dtype=low.dtype(indices),
    )  # fmt: skip
    pointers = (out, updates, indices, _status(axis, x))
    return [low.copy(out, x), NativeCall("gather", call, pointers)]


def _status(axis: int, indexed: Operand) -> Status:
    """Return what tells of an index that does not exist.

    Args:
        axis: the indexed axis, the first one of a tuple.
        indexed: what indices point into.
    """
    sizes = indexed.layout.sizes
    return index_status(range(axis, len(sizes)), sizes[axis:])


def gathered_along(low: Lowering, out: Operand, x: Operand, axes: Mapping[int, Indices]) -> Calls:
    """Gather elements along several axes, by indices that follow from sizes.

    Args:
        low: the lowering of the plan.
        out: where to.
        x: where from.
        axes: what computes the indices of each axis; they exist.
    """
    calls: Calls = []
    for place, (axis, make) in enumerate(axes.items()):
        sizes = list(x.layout.sizes)
        sizes[axis] = out.layout.sizes[axis]
        last = place == len(axes) - 1
        made = out if last else low.temporary(low.dtype(out), tuple(sizes))
        table = StridedLayout.contiguous((sizes[axis],))
        call = gather_call(
            Gather(axis), made.layout, x.layout, table,
            dtype=low.dtype(out), index_dtype=DType.INT64,
        )  # fmt: skip
        calls.append(NativeCall("gather", call, (made, x, Table(make), None)))
        x = made
    return calls or [low.copy(out, x)]
