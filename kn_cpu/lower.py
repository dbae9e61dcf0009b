"""Steps of a plan as calls of native kernels, over symbolic sizes; or why there is none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kn_cpu.attention import attention_call, attention_supported
from kn_cpu.axes import KernelCall
from kn_cpu.conv import ConvProblem, conv_call, packed_weights, weight_layout, window_order
from kn_cpu.copy import concat_parts, copy_call, pad_copies
from kn_cpu.depthwise import depthwise_call, depthwise_weights, is_depthwise
from kn_cpu.epilogue import Epilogue, split
from kn_cpu.gemm import Packed, gemm_call, pack_call, packed_layout
from kn_cpu.native import NativeLibrary
from kn_cpu.norm import norm_call
from kn_cpu.pool import pool_call, pool_supported
from kn_cpu.product import REGISTERS, Registers
from kn_cpu.reduce import ARG_TYPES, REDUCE_TYPES, arg_reduce_call, reduce_call
from kn_cpu.scalar import ScalarRefusal, compile_program
from kn_cpu.softmax import softmax_call
from kn_graph.dim import UnboundSymbolError, evaluate
from kn_graph.dtype import DType
from kn_graph.op import Op
from kn_graph.ops.attention import Attention
from kn_graph.ops.conv import Conv
from kn_graph.ops.layout import Concat, Pad
from kn_graph.ops.matmul import MatMul
from kn_graph.ops.norm import Norm, Softmax
from kn_graph.ops.pool import Pool
from kn_graph.ops.reduce import ArgReduce, Reduce
from kn_plan.layout import StridedLayout
from kn_plan.plan import Home, Operand, Plan, Step
from kn_plan.program import ScalarProgram

__all__ = ["Lowering", "NativeCall", "PackedConstant", "Refusal"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class PackedConstant:
    """A constant in the order that a kernel reads it in; its place in `Lowering.packed`."""

    number: int


Pointer = Operand | PackedConstant | None


@dataclass(frozen=True)
class NativeCall:
    """One call of a kernel.

    Attributes:
        family: which table it is in.
        call: name and numbers.
        pointers: what it reads and writes.
    """

    family: str
    call: KernelCall
    pointers: tuple[Pointer, ...]


@dataclass(frozen=True)
class Refusal:
    """Why a step runs on the host."""

    reason: str


Calls = list[NativeCall]


class UnsupportedError(Exception):
    """There is no kernel for a step; becomes a `Refusal`."""


@dataclass
class Lowering:
    """Finds kernels for the steps of one plan.

    Attributes:
        library: the kernels.
        plan: whose steps are lowered.
        packed: constants in the order that kernels read.
    """

    library: NativeLibrary
    plan: Plan
    packed: list[Array] = field(default_factory=list)
    _known: dict[tuple[Any, ...], PackedConstant] = field(default_factory=dict)

    @property
    def registers(self) -> Registers:
        """The tile of the instruction set."""
        return REGISTERS[self.library.isa]

    def lower(self, step: Step) -> Calls | Refusal:
        """Return the calls of a step."""
        try:
            if any(self._buffer_dtype(o) is None for o in (*step.inputs, *step.writes)):
                raise UnsupportedError("objects are handled by the host")
            if any(self.plan.buffers[o.buffer].home is Home.LATE for o in step.writes):
                raise UnsupportedError("the size of the result shows when it has run")
            if step.node is None:
                assert step.program is not None
                return self.scalar(step.program, step.writes, step.extras)
            writer = _WRITERS.get(type(step.node.op))
            if writer is None:
                raise UnsupportedError("there is no kernel for it")
            return writer(self, step, step.node.op)
        except UnboundSymbolError:
            return Refusal("its weights have symbolic sizes")
        except (UnsupportedError, ValueError) as error:
            return Refusal(str(error))

    def _buffer_dtype(self, operand: Operand) -> DType | None:
        return self.plan.buffers[operand.buffer].dtype

    def dtype(self, operand: Operand) -> DType:
        """Return the element type of an operand."""
        dtype = self._buffer_dtype(operand)
        assert dtype is not None
        return dtype

    def only_float32(self, step: Step) -> None:
        """Refuse a step of other types."""
        if any(self.dtype(o) is not DType.FLOAT32 for o in (*step.reads, *step.writes)):
            raise UnsupportedError("its kernel is for float32")

    # ---- programs and copies ----------------------------------------------------------------

    def scalar(
        self, program: ScalarProgram, writes: Sequence[Operand], reads: Sequence[Operand]
    ) -> Calls:
        """Apply a scalar program."""
        if program.is_copy and len(writes) == 1:
            (out,), source = writes, reads[program.outputs[0]]
            size = self.dtype(out).numpy.itemsize
            return [NativeCall("copy", copy_call(out.layout, source.layout, size), (out, source))]
        kernel = compile_program(program)
        if isinstance(kernel, ScalarRefusal):
            raise UnsupportedError(str(kernel))
        call = kernel.call([o.layout for o in writes], [o.layout for o in reads])
        return [NativeCall("scalar", call, (*writes, *reads))]

    def behind(self, step: Step, epilogue: Epilogue) -> Calls:
        """Apply what is left of a program, in place."""
        if epilogue.rest is None:
            return []
        return self.scalar(epilogue.rest, step.writes, (step.writes[0], *epilogue.extras))

    # ---- constants --------------------------------------------------------------------------

    def constant(self, operand: Operand) -> Array | None:
        """Return the elements of an operand, where they are a constant."""
        array = self.plan.constants.get(operand.buffer)
        layout: Any = operand.layout
        if array is None or not all(isinstance(n, int) for n in layout.numbers):
            return None
        flat = np.ascontiguousarray(array).reshape(-1)
        strides = [s * flat.itemsize for s in layout.strides]
        if 0 in layout.sizes:
            return np.empty(layout.sizes, flat.dtype)
        return np.lib.stride_tricks.as_strided(flat[layout.offset :], layout.sizes, strides)

    def dense(self, operand: Operand) -> Operand:
        """Return a constant operand whose elements lie in row-major order."""
        if operand.layout.is_contiguous:
            return operand
        raise UnsupportedError("its weights are a view of others")

    def pack_copy(self, operand: Operand, floats: int, call: KernelCall) -> PackedConstant:
        """Copy a constant into another layout, once for all sizes."""
        return self.pack(operand, floats, "copy", call, target_first=True)

    def pack(
        self,
        operand: Operand,
        floats: int,
        family: str,
        call: KernelCall,
        *,
        target_first: bool = False,
    ) -> PackedConstant:
        """Run a kernel that reorders a constant, once for all sizes."""
        key = (operand.buffer, operand.layout, call.kernel, call.numbers)
        found = self._known.get(key)
        if found is None:
            source = dense(self.plan.constants[operand.buffer])
            target = aligned(4 * floats).view(np.float32)
            offset: Any = operand.layout.offset
            address = source.ctypes.data + offset * source.itemsize
            addresses = (address, target.ctypes.data)
            run_alone(self.library, family, call, addresses[::-1] if target_first else addresses)
            found = self._known[key] = PackedConstant(len(self.packed))
            self.packed.append(target)
        return found


def aligned(nbytes: int) -> Array:
    """Return zeroed bytes that begin at a cache line."""
    raw = np.zeros(nbytes + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + nbytes]


def as_bytes(x: Array) -> Array:
    """Return the bytes of an array in row-major order; of its own memory where that is so."""
    return dense(x).reshape(-1).view(np.uint8)


def dense(x: Array) -> Array:
    """Return an array in row-major order that is aligned; weights may lie anywhere in a file."""
    return np.require(x, requirements=["C_CONTIGUOUS", "ALIGNED"])


def run_alone(
    library: NativeLibrary, family: str, call: KernelCall, addresses: Sequence[int]
) -> None:
    """Run one kernel whose numbers are known."""
    from kn_cpu.native import STEP

    steps = np.zeros(1, STEP)
    sizes = (call.units, call.grain, call.scratch)
    steps[0] = (library.kernel(family, call.kernel), 0, 0, *(evaluate(n, {}) for n in sizes))
    numbers = np.array([evaluate(n, {}) for n in call.numbers], np.int64)
    library.run(steps, numbers, np.array(addresses, np.int64))


# ---- one function an operation --------------------------------------------------------------


def _matmul(low: Lowering, step: Step, op: MatMul) -> Calls:
    low.only_float32(step)
    a, b = step.reads
    end = split(step.program, step.extras, len(step.shape) - 1)
    out = step.writes[0]
    right: StridedLayout | Packed = b.layout
    pointer: Pointer = b
    array = low.constant(b)
    if array is not None and 0 not in b.layout.sizes and _single(b.layout):
        matrix = StridedLayout(b.layout.sizes[-2:], b.layout.strides[-2:], b.layout.offset)
        packed = packed_layout(matrix.sizes, low.registers)
        floats = evaluate(_floats(packed, low.registers), {})
        call = pack_call(matrix, low.registers)
        pointer = low.pack(Operand(b.buffer, matrix), floats, "gemm", call)
        right = Packed((*b.layout.sizes[:-2], *packed.sizes), (0,) * (b.layout.rank - 2))
    made = gemm_call(
        low.registers, out.layout, a.layout, right,
        bias=_layout(end.bias), residual=_layout(end.residual), low=end.low, high=end.high,
    )  # fmt: skip
    pointers = (a, pointer, out, end.bias, end.residual)
    return [NativeCall("gemm", made, pointers), *low.behind(step, end)]


def _single(layout: StridedLayout) -> bool:
    """Return whether all matrices of a batch are the same one."""
    return all(
        n == 1 or s == 0 for n, s in zip(layout.sizes[:-2], layout.strides[:-2], strict=True)
    )


def _floats(packed: Packed, registers: Registers) -> Any:
    from kn_cpu.product import packed_size

    return packed_size(packed.sizes[-2], packed.sizes[-1], registers)


def _layout(operand: Operand | None) -> StridedLayout | None:
    return None if operand is None else operand.layout


def _conv(low: Lowering, step: Step, op: Conv) -> Calls:
    low.only_float32(step)
    x, w = step.reads
    end = split(step.program, step.extras, 1)
    out = step.writes[0]
    if low.constant(w) is None:
        raise UnsupportedError("its weights are computed")
    kernel: Any = w.layout.sizes[2:]
    problem = ConvProblem(
        x.layout, out.layout, kernel, op.strides, op.dilations, op.pads, op.groups,
        _layout(end.residual),
    )  # fmt: skip
    if is_depthwise(problem):
        turned = depthwise_weights(w.layout)
        count = evaluate(turned.numel, {})
        call = copy_call(StridedLayout.contiguous(turned.sizes), turned, 4)
        weights = low.pack_copy(Operand(w.buffer, turned), count, call)
        made = depthwise_call(low.registers, problem, low=end.low, high=end.high)
        first = NativeCall("depthwise", made, (x, weights, out, end.bias, end.residual))
        return [first, *low.behind(step, end)]
    order = window_order(x.layout, kernel, op.groups)
    dense = low.dense(w)
    made = conv_call(low.registers, problem, order, low=end.low, high=end.high)
    layout = weight_layout(dense.layout, op.groups, order)
    floats = evaluate(packed_weights(low.registers, problem), {})
    weights = low.pack(
        Operand(dense.buffer, layout), floats, "gemm", pack_call(layout, low.registers)
    )
    pointers = (x, weights, out, end.bias, end.residual)
    return [NativeCall("conv", made, pointers), *low.behind(step, end)]


def _norm(low: Lowering, step: Step, op: Norm) -> Calls:
    low.only_float32(step)
    end = split(step.program, step.extras, len(step.shape) - 1, scales=True, clamps=False)
    (x,), out = step.reads, step.writes[0]
    parts = (end.scale, end.bias, end.residual)
    call = norm_call(op, out.layout, x.layout, *map(_layout, parts))
    return [NativeCall("norm", call, (out, x, *parts)), *low.behind(step, end)]


def _softmax(low: Lowering, step: Step, op: Softmax) -> Calls:
    low.only_float32(step)
    (x,), (out,) = step.reads, step.writes
    return [NativeCall("softmax", softmax_call(op, out.layout, x.layout), (out, x))]


def _reduce(low: Lowering, step: Step, op: Reduce) -> Calls:
    (x,), (out,) = step.reads, step.writes
    dtype = low.dtype(x)
    if dtype not in REDUCE_TYPES or (dtype is DType.BOOL) != (op.fn in ("any", "all")):
        raise UnsupportedError(f"there is no kernel for {op.fn} of {dtype}")
    call = reduce_call(op.fn, dtype, out.layout, x.layout, op.axes)
    return [NativeCall("reduce", call, (out, x))]


def _arg_reduce(low: Lowering, step: Step, op: ArgReduce) -> Calls:
    (x,), (out,) = step.reads, step.writes
    dtype = low.dtype(x)
    if dtype not in ARG_TYPES:
        raise UnsupportedError(f"there is no kernel for {dtype}")
    return [NativeCall("reduce", arg_reduce_call(op, dtype, out.layout, x.layout), (out, x))]


def _pool(low: Lowering, step: Step, op: Pool) -> Calls:
    (x,), out = step.reads, step.writes[0]
    if not pool_supported(op, low.dtype(x)):
        raise UnsupportedError("its kernel is for float32, up to three axes, without indices")
    return [NativeCall("pool", pool_call(op, out.layout, x.layout), (out, x))]


def _attention(low: Lowering, step: Step, op: Attention) -> Calls:
    q, k, v, *masks = step.reads
    if not attention_supported(op, low.dtype(q)) or len(step.writes) != 1:
        raise UnsupportedError("its kernel is for float32, without the scores")
    (out,) = step.writes
    bias = next((m for m in masks if m.layout.rank == 4), None)
    lengths = next((m for m in masks if m.layout.rank == 1), None)
    if lengths is not None and not (
        lengths.layout.is_contiguous and low.dtype(lengths) is DType.INT64
    ):
        raise UnsupportedError("lengths are no contiguous int64")
    call = attention_call(
        op, out.layout, q.layout, k.layout, v.layout, _layout(bias),
        None if bias is None else low.dtype(bias),
    )  # fmt: skip
    return [NativeCall("attention", call, (out, q, k, v, bias, lengths))]


def _concat(low: Lowering, step: Step, op: Concat) -> Calls:
    (out,) = step.writes
    size = low.dtype(out).numpy.itemsize
    parts = concat_parts(out.layout, op.axis, [o.layout for o in step.reads])
    return [
        NativeCall("copy", copy_call(part, o.layout, size), (Operand(out.buffer, part), o))
        for part, o in zip(parts, step.reads, strict=True)
    ]


def _pad(low: Lowering, step: Step, op: Pad) -> Calls:
    x, *values = step.reads
    (out,) = step.writes
    if op.mode == "wrap":
        raise UnsupportedError("there is no kernel that wraps")
    size = low.dtype(out).numpy.itemsize
    sources = {"x": x, "out": out, "value": values[0] if values else x}
    calls = []
    for copy in pad_copies(out.layout, x.layout, op.pads, op.mode):
        read = copy.read
        if copy.source == "value":
            read = StridedLayout(read.sizes, read.strides, values[0].layout.offset)
        source = Operand(sources[copy.source].buffer, read)
        target = Operand(out.buffer, copy.write)
        calls.append(NativeCall("copy", copy_call(copy.write, read, size), (target, source)))
    return calls


_WRITERS: dict[type[Op], Callable[[Lowering, Step, Any], Calls]] = {
    MatMul: _matmul,
    Conv: _conv,
    Norm: _norm,
    Softmax: _softmax,
    Reduce: _reduce,
    ArgReduce: _arg_reduce,
    Pool: _pool,
    Attention: _attention,
    Concat: _concat,
    Pad: _pad,
}
