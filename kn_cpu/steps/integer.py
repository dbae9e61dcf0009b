"""What steps of integer products share: packed weights, and programs behind sums."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kn_cpu.axes import KernelCall
from kn_cpu.calls import NativeCall
from kn_cpu.integer import Factors, Finish, Weights
from kn_cpu.lowering import Calls, Lowering, run_alone
from kn_cpu.product import BlockProgram, ceil_to
from kn_cpu.requantize import Requantize, requantize
from kn_cpu.steps.spacing import channels_last
from kn_graph.dim import ceildiv
from kn_graph.dtype import DType
from kn_graph.pages import forget_pages
from kn_plan.calls import Constant, Pointer
from kn_plan.layout import StridedLayout
from kn_plan.plan import Operand, Step

__all__ = ["PackedWeights", "computed_weights", "finished", "is_integer", "packed_weights"]

Array = np.ndarray[Any, Any]

Make = Callable[[Operand, StridedLayout, Finish, BlockProgram | None], KernelCall]
"""The call of a kernel: where to, where the blocks of a program would lie, what sums become."""


def is_integer(low: Lowering, step: Step) -> bool:
    """Return whether a step multiplies integers."""
    return all(low.dtype(o).is_int for o in step.reads)


@dataclass(frozen=True)
class PackedWeights:
    """Weights and what belongs to them, where they are kept; temporaries where they are computed.

    Attributes:
        factors: of the product.
        panels: see `Weights`.
        starts: see `Weights`.
        lows: see `Weights`.
    """

    factors: Factors
    panels: Constant | Operand
    starts: Constant | Operand
    lows: Constant | None = None


def packed_weights(
    low: Lowering, key: Operand, matrices: Array, left: DType, *, order: int = 0
) -> PackedWeights:
    """Return constant weights [matrices, depth, cols], packed once for all steps that read them.

    Args:
        low: the lowering.
        key: where they come from.
        matrices: the weights.
        left: what they are multiplied with.
        order: of the depth, where they can be read in several.
    """
    factors, narrow, lows = Weights.narrowed(low.registers, matrices, left)

    def make() -> list[Array]:
        room, call, source = Weights.packed(low.registers, factors, narrow, lows)
        arrays = [source, room.panels, room.starts]
        run_alone(low.library, "integer_gemm", call, [a.ctypes.data for a in arrays])
        forget_pages(low.constants[key.buffer])
        return [*arrays[1:], *([] if room.lows is None else [room.lows])]

    name = (key.buffer, key.layout, "integers", matrices.shape, left, order)
    kept = low.keep(name, 2 if lows is None else 3, make)
    return PackedWeights(factors, kept[0], kept[1], kept[2] if lows is not None else None)


def computed_weights(
    low: Lowering, source: Operand, left: DType
) -> tuple[PackedWeights, NativeCall]:
    """Return weights [matrices, depth, cols] in row-major order, and the call that packs them."""
    matrices, depth, cols = source.layout.sizes
    factors = Factors.of(low.registers, depth, left, low.dtype(source))
    padded = matrices * ceil_to(cols, low.registers.vector)
    panels = low.temporary(DType.INT8, (padded * factors.column,))
    starts = low.temporary(DType.INT32, (padded,))
    units = matrices * ceildiv(cols, low.registers.panel)
    call = KernelCall("pack_int", (cols, *factors.numbers), units)
    packed = NativeCall("integer_gemm", call, (source, panels, starts))
    return PackedWeights(factors, panels, starts), packed


def finished(
    low: Lowering, step: Step, family: str, axis: int, pointers: tuple[Pointer, ...], make: Make
) -> Calls:
    """Return the calls of a product and its program.

    Args:
        low: the lowering.
        step: what is computed.
        family: of the kernel.
        axis: of the columns.
        pointers: of the kernel, where None is the result; bias, scale, program's follow.
        make: builds the call.
    """
    end = requantize(step.program, step.extras, axis, _finite(low, step))
    out = step.writes[0]
    if end.rest is None:
        direct = _dense_columns(low, out, axis)
        made = make(direct, direct.layout, end.finish, None)
        first = NativeCall(family, made, (*_with(pointers, direct), end.bias, end.scale))
        return [first] if direct is out else [first, low.copy(out, direct)]
    try:
        return _through_blocks(low, step, family, pointers, make, end)
    except ValueError:  # the program's operands do not lie as its blocks do
        assert step.program is not None
        sums = low.temporary(DType.INT32, step.shape)
        made = make(sums, sums.layout, Finish(), None)
        first = NativeCall(family, made, (*_with(pointers, sums), None, None))
        return [first, *low.scalar(step.program, step.writes, (sums, *step.extras))]


def _dense_columns(low: Lowering, out: Operand, axis: int) -> Operand:
    """Return memory whose columns lie side by side: the result, or what is turned behind it."""
    layout = out.layout
    if layout.strides[axis] == 1 or layout.sizes[axis] == 1:
        return out
    return low.temporary(low.dtype(out), layout.sizes) if axis != 1 else channels_last(low, out)


def _finite(low: Lowering, step: Step) -> frozenset[int]:
    """Return the buffers of constants that are numbers."""
    arrays = {o.buffer: low.constants.get(o.buffer) for o in step.extras}
    return frozenset(
        b
        for b, a in arrays.items()
        if a is not None and a.dtype.kind == "f" and np.isfinite(a).all()
    )


def _with(pointers: tuple[Pointer, ...], out: Operand) -> tuple[Pointer, ...]:
    return (*pointers[:2], out, *pointers[3:])


def _through_blocks(
    low: Lowering,
    step: Step,
    family: str,
    pointers: tuple[Pointer, ...],
    make: Make,
    end: Requantize,
) -> Calls:
    assert end.rest is not None
    kernel = low.compiled(end.rest)
    outputs, inputs = (tuple(o.layout for o in t) for t in (step.writes, end.extras))
    program = BlockProgram(kernel, outputs, inputs)
    finish = replace(end.finish, in_place=True)
    made = make(step.writes[0], StridedLayout.contiguous(step.shape), finish, program)
    more = (end.bias, end.scale, *step.writes, None, *end.extras)
    return [NativeCall(family, made, (*pointers, *more))]
