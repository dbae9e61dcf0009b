"""Resampling."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any

import numpy as np

from kn_cpu.calls import NativeCall
from kn_cpu.lowering import Calls, Lowering
from kn_cpu.resize import (
    SPATIAL,
    resize_call,
    resize_supported,
    resize_tables,
    resize_taps,
)
from kn_cpu.steps.index import Indices, gathered_along
from kn_cpu.steps.wide import FLOATS, widened
from kn_graph.dim import Size, Symbol, evaluate
from kn_graph.ops.resize import Resize
from kn_plan.calls import Table, UnsupportedError
from kn_plan.plan import Step
from kn_plan.resampling import axis_taps, has_tables

__all__ = ["resize"]

Array = np.ndarray[Any, Any]


def resize(low: Lowering, step: Step, op: Resize) -> Calls:
    """Resample axes."""
    if not has_tables(op):
        raise UnsupportedError("its scales or regions are data")
    if op.mode == "nearest" and not resize_supported(op, low.dtype(step.reads[0])):
        return _picked(low, step, op)
    return widened(_blended, FLOATS)(low, step, op)


def _blended(low: Lowering, step: Step, op: Resize) -> Calls:
    x, (out,) = step.reads[0], step.writes
    if not resize_supported(op, low.dtype(x)):
        raise UnsupportedError("its kernel is for float32 and up to three axes")
    old, new = ([o.layout.sizes[a] for a in op.axes] for o in (x, out))

    def table(axis: int, which: int) -> Table:
        def make(env: Mapping[Symbol, int]) -> Array:
            sizes = ([evaluate(n, env) for n in part] for part in (old, new))
            return resize_tables(op, axis, *sizes)[which]

        return Table(make)

    call = resize_call(op, out.layout, x.layout, resize_taps(op, old, new))
    tables = (table(*which) for which in product(range(SPATIAL), range(2)))
    return [NativeCall("resize", call, (out, x, *tables))]


def _picked(low: Lowering, step: Step, op: Resize) -> Calls:
    """Gather elements of any type, along one axis after another."""
    x, (out,) = step.reads[0], step.writes
    old, new = ([o.layout.sizes[a] for a in op.axes] for o in (x, out))

    def indices(place: int) -> Indices:
        def make(env: Mapping[Symbol, int]) -> Array:
            sizes = ([evaluate(n, env) for n in part] for part in (old, new))
            return np.ascontiguousarray(axis_taps(op, place, *sizes).index[:, 0])

        return make

    # first what makes fewer elements; then rows grow before there are more of them
    order = sorted(range(len(op.axes)), key=lambda i: (not _shrinks(old[i], new[i]), -op.axes[i]))
    return gathered_along(low, out, x, {op.axes[i]: indices(i) for i in order})


def _shrinks(old: Size, new: Size) -> bool:
    return isinstance(old, int) and isinstance(new, int) and new < old
