"""Convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from kn_cpu.calls import NativeCall
from kn_cpu.conv import (
    FEW_CHANNELS,
    ConvProblem,
    Order,
    conv_call,
    has_few_outputs,
    packed_weights,
    weight_layout,
    weight_rows,
    window_order,
)
from kn_cpu.conv_choice import winograd_wins
from kn_cpu.conv_lines import conv_lines_call, has_conv_lines
from kn_cpu.copy import copy_call
from kn_cpu.depthwise import depthwise_call, depthwise_weights, is_depthwise
from kn_cpu.epilogue import Epilogue, split
from kn_cpu.gemm import pack_call
from kn_cpu.lowering import Calls, Lowering, layout_of
from kn_cpu.product import BlockProgram, common_stride
from kn_cpu.steps.integer import is_integer
from kn_cpu.steps.integer_conv import integer_conv
from kn_cpu.steps.spacing import channels_last
from kn_cpu.tune import faster
from kn_cpu.winograd import (
    has_winograd,
    winograd_call,
    winograd_shares,
    winograd_tiles_call,
    winograd_tiles_size,
    winograd_weights_call,
    winograd_weights_size,
)
from kn_graph.dim import Size, evaluate
from kn_graph.dtype import DType
from kn_graph.ops.conv import Conv
from kn_plan.calls import Pointer
from kn_plan.layout import StridedLayout
from kn_plan.plan import Operand, Step

__all__ = ["conv"]


def conv(low: Lowering, step: Step, op: Conv) -> Calls:
    """Convolve, by the kernel that is the fastest at the sizes at hand."""
    x, w = step.reads
    x = _of_known_channels(x, w, op.groups)
    step = replace(step, reads=(x, w))
    if is_integer(low, step):
        return integer_conv(low, step, op)
    low.only_float32(step)
    before, after = list[NativeCall](), list[NativeCall]()
    if _is_worth_turning(x.layout):
        turned = channels_last(low, x)
        before.append(low.copy(turned, x))
        step = replace(step, reads=(turned, w))
    if len(step.writes) == 1 and not _is_written(step.writes[0].layout, op.groups):
        (out,) = step.writes
        turned = channels_last(low, out)
        after.append(low.copy(out, turned))
        step = replace(step, writes=(turned,))
    return [*before, *_convolved(low, step, op), *after]


def _of_known_channels(x: Operand, w: Operand, groups: int) -> Operand:
    """Return what is read with the number of channels that the weights require.

    Those of a tensor may be a symbol, or what a reshape left over: numbers choose kernels.
    """
    return replace(x, layout=x.layout.slice(1, 0, w.layout.sizes[1] * groups))


def _is_last(layout: StridedLayout) -> bool:
    return layout.strides[1] == 1 or layout.sizes[1] == 1


def _is_worth_turning(x: StridedLayout) -> bool:
    """Return whether all kernels are faster by more than it takes to copy the channels together."""
    few = isinstance(x.sizes[1], int) and x.sizes[1] < FEW_CHANNELS
    return not _is_last(x) and not few


def _is_written(out: StridedLayout, groups: int) -> bool:
    """Return whether kernels write a layout, and not a channel at a time."""
    if _is_last(out):
        return True
    return common_stride(out, range(2, out.rank)) is not None and out.sizes[1] != groups


def _convolved(low: Lowering, step: Step, op: Conv) -> Calls:
    x, w = step.reads
    out = step.writes[0]
    end = split(step.program, step.extras, 1, adds=partial(_adds, out.layout))
    kernel: Any = w.layout.sizes[2:]
    problem = ConvProblem(
        x.layout, out.layout, kernel, op.strides, op.dilations, op.pads, op.groups,
        layout_of(end.residual),
    )  # fmt: skip
    program = low.block_program(step, end, (0, *range(2, out.layout.rank)), 1)
    writer = _Writer(low, step, problem, end, program)
    if is_depthwise(problem):
        calls = [writer.depthwise()]
    elif has_few_outputs(low.registers, problem):
        calls = [writer.few()]
    elif has_conv_lines(problem):
        calls = [writer.lines()]
    else:
        # weights that are computed would be transformed in each run
        strict = low.strict or w.buffer not in low.constants
        wins = winograd_wins(problem, low.registers, strict=strict)
        if low.tune and not strict and isinstance(wins, int) and has_winograd(problem):
            new = len(low.packed)
            wins = faster(low, ([writer.direct(1)], writer.winograd(1)), new)
        calls = [] if wins == 1 else [writer.direct(1 - wins)]
        calls += [] if wins == 0 else writer.winograd(wins)
    return calls if program is not None else [*calls, *low.behind(step, end)]


def _adds(out: StridedLayout, residual: StridedLayout) -> bool:
    """Return whether all kernels add a residual, and fast: it lies as the result does."""
    shared = (1, *range(2, out.rank))
    return all(out.sizes[a] == 1 or out.strides[a] == residual.strides[a] for a in shared)


@dataclass(frozen=True)
class _Writer:
    """Writes the call of one of the kernels."""

    low: Lowering
    step: Step
    problem: ConvProblem
    end: Epilogue
    program: BlockProgram | None

    @property
    def w(self) -> Operand:
        return self.step.reads[1]

    def _pointers(self, weights: Pointer) -> tuple[Pointer, ...]:
        step, end = self.step, self.end
        more = () if self.program is None else self.low.program_pointers(step, end)
        return (step.reads[0], weights, step.writes[0], end.bias, end.residual, *more)

    @property
    def _finish(self) -> Any:
        return {"low": self.end.low, "high": self.end.high, "program": self.program}

    def depthwise(self) -> NativeCall:
        registers = self.low.registers
        turned = depthwise_weights(self.w.layout)
        count = evaluate(turned.numel, {})
        copy = copy_call(StridedLayout.contiguous(turned.sizes), turned, 4)
        weights = self.low.pack_copy(Operand(self.w.buffer, turned), count, copy)
        call = depthwise_call(registers, self.problem, **self._finish)
        return NativeCall("depthwise", call, self._pointers(weights))

    def _packed(self, order: Order, guard: Size) -> Pointer:
        registers, p = self.low.registers, self.problem
        dense = self.low.dense(self.w)
        layout = weight_layout(dense.layout, p.groups, order)
        floats = evaluate(packed_weights(registers, p), {})
        matrix, pack = Operand(dense.buffer, layout), pack_call(layout, registers)
        return self.low.pack_if(guard, matrix, floats, "gemm", pack)

    def lines(self) -> NativeCall:
        call = conv_lines_call(self.low.registers, self.problem, **self._finish)
        x, weights, out, bias, _, *more = self._pointers(self._packed(Order.CHANNELS_FIRST, 1))
        return NativeCall("conv_lines", call, (x, weights, out, bias, *more))

    def few(self) -> NativeCall:
        registers, p = self.low.registers, self.problem
        order = window_order(p.x, p.kernel, p.groups, p.dilations[-1], many=True)
        dense = self.low.dense(self.w)
        rows = weight_rows(dense.layout, p.groups, order)
        copy = copy_call(StridedLayout.contiguous(rows.sizes), rows, 4)
        weights = self.low.pack_copy(Operand(dense.buffer, rows), evaluate(rows.numel, {}), copy)
        call = conv_call(registers, p, order, few=True, **self._finish)
        return NativeCall("conv", call, self._pointers(weights))

    def direct(self, guard: Size) -> NativeCall:
        registers, p = self.low.registers, self.problem
        order = window_order(p.x, p.kernel, p.groups)
        weights = self._packed(order, guard)
        call = conv_call(registers, p, order, **self._finish)
        return NativeCall("conv", call, self._pointers(weights), guard)

    def winograd(self, guard: Size) -> Calls:
        registers, p = self.low.registers, self.problem
        floats = evaluate(winograd_weights_size(p, registers), {})
        pack = winograd_weights_call(p, registers)
        weights = self.low.pack_if(guard, self.low.dense(self.w), floats, "winograd", pack)
        pointers = self._pointers(weights)
        shares = winograd_shares(registers, p)
        calls = [] if shares == 0 else self._shared_winograd(guard * shares, pointers)
        if shares != 1:
            call = winograd_call(registers, p, **self._finish)
            calls.append(NativeCall("winograd", call, pointers, guard * (1 - shares)))
        return calls

    def _shared_winograd(self, guard: Size, pointers: Sequence[Pointer]) -> Calls:
        registers, p = self.low.registers, self.problem
        floats = guard * winograd_tiles_size(registers, p)
        tiles = self.low.temporary(DType.FLOAT32, (floats,))
        x, *others = pointers
        first = winograd_tiles_call(registers, p)
        call = winograd_call(registers, p, shared=True, **self._finish)
        return [
            NativeCall("winograd", first, (x, tiles), guard),
            NativeCall("winograd", call, (tiles, *others), guard),
        ]
