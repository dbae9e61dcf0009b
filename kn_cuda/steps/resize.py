"""Images of other sizes: see `kernels/resize.cu`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from kn_cuda.axes import blocks_for, in_order
from kn_cuda.builder import KernelBuilder
from kn_cuda.lowering import Calls, Lowering
from kn_cuda.places import add_places
from kn_cuda.types import compute_type
from kn_graph.dim import Symbol, evaluate, size_prod
from kn_graph.dtype import DType
from kn_graph.ops.resize import Resize, interpolation_type
from kn_graph.types import Shape
from kn_plan.calls import Pointer, Table, UnsupportedError
from kn_plan.plan import Step
from kn_plan.resampling import axis_taps, has_tables, taps_width

__all__ = ["resize"]

Array = np.ndarray[Any, Any]

SPATIAL = 3
"""Axes of the kernel; missing ones are put in front."""


def resize(low: Lowering, step: Step, op: Resize) -> Calls:
    """Resample axes."""
    if not has_tables(op):
        raise UnsupportedError("its scales or regions are data")
    if len(op.axes) > SPATIAL:
        raise UnsupportedError(f"there is no kernel for resizing along {len(op.axes)} axes")
    (x, type_), dtype = low.typed(step.reads[0]), low.dtype(step.reads[0])
    fill = SPATIAL - len(op.axes)
    old, new = (tuple(t[a] for a in op.axes) for t in (x.layout.sizes, step.shape))
    widths = tuple(taps_width(op, i, old[i], new[i]) for i in range(len(op.axes)))
    b = KernelBuilder("resize", "resize_taps", low.threads)
    b.reads("x", x, type_)
    b.number("count", size_prod(step.shape))
    b.numbers("taps", (*(1,) * fill, *widths))
    b.numbers("x_space", (*(0,) * fill, *(x.layout.strides[a] for a in op.axes)))
    wide = _add_functions(b, op, dtype)
    for i in range(len(op.axes)):
        index, weight = (_table(low, op, i, old, new, part, wide) for part in (0, 1))
        b.reads(f"index{fill + i}", index, "int32_t")
        if op.mode != "nearest":
            b.reads(f"weight{fill + i}", weight, compute_type(wide))
    order = in_order(step.writes[0].layout.strides)
    special = {axis: fill + i for i, axis in enumerate(op.axes)}
    add_places(b, step.shape, order, special, x.layout.strides)
    low.end(b, step, order)
    return [b.launch(blocks_for(size_prod(step.shape), low.threads))]


def _add_functions(b: KernelBuilder, op: Resize, dtype: DType) -> DType:
    """Give a kernel what it computes with; returns the type of weights."""
    weighted = op.mode != "nearest"
    wide = DType.from_numpy(interpolation_type(dtype)) if weighted else dtype
    b.constant("WEIGHTED", weighted)
    b.type("Acc", compute_type(wide))
    axes = range(SPATIAL - len(op.axes), SPATIAL)
    for name, kind, missing in (("source", "index", "Index(0)"), ("weight", "weight", "Acc(1)")):
        type_ = "Index" if kind == "index" else "Acc"
        given = axes if weighted or kind == "index" else ()
        found = "".join(
            f"axis == {a} ? {type_}(p.{kind}{a}[o * n.taps[{a}] + t]) : " for a in given
        )
        b.code(
            f"KN_DEVICE static {type_} {name}(\n    const Pointers& p, const Numbers& n, "
            f"int axis, Index o, Index t) {{\n    return {found}{missing};\n}}"
        )
    result = compute_type(dtype)
    text = _whole(dtype) if weighted and dtype.is_int else f"{result}(acc)"
    b.code(f"KN_DEVICE static {result} finish(Acc acc) {{ return {text}; }}")
    return wide


def _whole(dtype: DType) -> str:
    """Return a sum as an integer: rounded to even, and the nearest one that there is."""
    info: Any = np.iinfo(dtype.numpy)
    low, top = float(info.min), float(info.max)
    type_ = compute_type(dtype)
    # the largest numbers of 64 bits are no floats
    inside = f"{type_}({'whole_u64' if dtype is DType.UINT64 else 'whole_64'}(rint(acc)))"
    edges = f"acc >= Acc({top!r}) ? {type_}({int(info.max)}ull) : acc <= Acc({low!r})"
    lowest = f"{type_}({int(info.min) + 1}ll - 1)" if low else f"{type_}(0)"
    return f"{edges} ? {lowest} : {inside}"


def _table(
    low: Lowering, op: Resize, place: int, old: Shape, new: Shape, part: int, wide: DType
) -> Pointer:
    """Return the elements (part 0) or weights (part 1) of an axis, known now or at a binding."""

    def make(env: Mapping[Symbol, int]) -> Array:
        sizes = [[evaluate(n, env) for n in shape] for shape in (old, new)]
        taps = axis_taps(op, place, *sizes)
        return taps.weight.astype(wide.numpy) if part else taps.index.astype(np.int32)

    if part and op.mode == "nearest":
        return None
    if all(isinstance(n, int) for n in (*old, *new)):
        return low.kept(("resize", op, place, old, new, part, wide), make({}))
    return Table(make)
