"""What the lowering of single operations shares: constants, scalar programs, what follows them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kn_cpu.axes import KernelCall
from kn_cpu.calls import NativeCall
from kn_cpu.copy import copy_call
from kn_cpu.decisive import decisive_buffers
from kn_cpu.epilogue import Epilogue
from kn_cpu.memory import ConstantMemory, dense
from kn_cpu.native import STEP, NativeLibrary
from kn_cpu.product import REGISTERS, BlockProgram, Registers
from kn_cpu.scalar import ScalarKernel, ScalarRefusal, compile_program
from kn_graph.dim import Size, Symbol, evaluate
from kn_graph.dtype import DType
from kn_graph.pages import forget_pages, lose_pages
from kn_plan.calls import Constant, Pointer, Table, UnsupportedError
from kn_plan.layout import StridedLayout
from kn_plan.lowering import StepLowering
from kn_plan.plan import Operand, Step
from kn_plan.program import ScalarProgram

__all__ = ["Calls", "Lowering", "layout_of", "run_alone"]

Array = np.ndarray[Any, Any]

ANYWHERE = frozenset({"gemm"})
"""Families that pack weights from any address, as files have them; for others they are copied."""

Calls = list[NativeCall]
Tail = Callable[[Epilogue], Calls]


def layout_of(operand: Operand | None) -> StridedLayout | None:
    """Return the layout of an operand that may be missing."""
    return None if operand is None else operand.layout


@dataclass
class Lowering(StepLowering[NativeCall]):
    """What finds kernels for the steps of one plan.

    Arrays of constants are those of the plan, and those of the step at hand.

    Attributes:
        library: the kernels.
        strict: whether kernels that are less exact than a sum of products are left out.
        tune: on how many threads alternatives are timed; 0 to estimate them.
        packed: constants in the order that kernels read.
        before: calls that make operands of the step at hand.
        decisive: see `kn_cpu.decisive`.
        exact: whether the step at hand rounds functions as the reference does.
    """

    library: NativeLibrary
    strict: bool = False
    tune: int = 0
    packed: list[Array] = field(default_factory=list)
    before: Calls = field(default_factory=list)
    decisive: frozenset[int] = frozenset()
    exact: bool = False
    _memory: ConstantMemory = field(default_factory=ConstantMemory)
    _tails: dict[int, Tail] = field(default_factory=dict)
    _known: dict[tuple[Any, ...], Constant] = field(default_factory=dict)
    _late: dict[tuple[Any, ...], Array] = field(default_factory=dict)
    _env: Mapping[Symbol, int] = field(default_factory=dict)
    _held: dict[Size, bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Begin with the plan's buffers."""
        super().__post_init__()
        self.decisive = decisive_buffers(self.plan)

    def begin(self, step: Step) -> None:
        """Turn to a step; what another one left that was refused is dropped."""
        self.taken()
        self.exact = any(o.buffer in self.decisive for o in step.writes)

    @property
    def registers(self) -> Registers:
        """The tile of the instruction set."""
        return REGISTERS[self.library.isa]

    def only_float32(self, step: Step) -> None:
        """Refuse a step of other types."""
        if any(self.dtype(o) is not DType.FLOAT32 for o in (*step.reads, *step.writes)):
            raise UnsupportedError("its kernel is for float32")

    def only_sums(self, out: DType | None) -> None:
        """Refuse integers whose sums do not have 32 bits."""
        if out is not DType.INT32:
            raise UnsupportedError(f"its kernel adds up int32, not {out}")

    # ---- programs and copies ----------------------------------------------------------------

    def scalar(
        self, program: ScalarProgram, writes: Sequence[Operand], reads: Sequence[Operand]
    ) -> Calls:
        """Apply a scalar program."""
        if program.is_copy and len(writes) == 1:
            (out,), source = writes, reads[program.outputs[0]]
            return [self.copy(out, source)]
        kernel = self.compiled(program)
        call = kernel.call([o.layout for o in writes], [o.layout for o in reads])
        return [NativeCall("scalar", call, (*writes, *reads))]

    def compiled(self, program: ScalarProgram) -> ScalarKernel:
        """Return the native code of a program of the step at hand."""
        kernel = compile_program(program, exact=self.exact)
        if isinstance(kernel, ScalarRefusal):
            raise UnsupportedError(str(kernel))
        return kernel

    def copy(self, out: Operand, source: Operand) -> NativeCall:
        """Copy elements."""
        call = copy_call(out.layout, source.layout, self.itemsize(out))
        return NativeCall("copy", call, (out, source))

    @contextmanager
    def ending(self, buffer: int, tail: Tail) -> Iterator[None]:
        """Let another function apply what is left of programs for a buffer."""
        self._tails[buffer] = tail
        try:
            yield
        finally:
            del self._tails[buffer]

    def block_program(
        self, step: Step, epilogue: Epilogue, rows: Sequence[int], col: int
    ) -> BlockProgram | None:
        """Return what is left of a program for a kernel to apply to its finished blocks.

        None where nothing is left, more is to be done behind it, or rows are not evenly spaced.
        Its pointers are `program_pointers`.

        Args:
            step: writes float32 through the program.
            epilogue: what the kernel itself does of it.
            rows: the axes of the result that are the rows of a block.
            col: the axis that is its columns.
        """
        if epilogue.rest is None or any(o.buffer in self._tails for o in step.writes):
            return None
        kernel = compile_program(epilogue.rest, exact=self.exact)
        if isinstance(kernel, ScalarRefusal):
            return None
        layouts = ([o.layout for o in operands] for operands in (step.writes, epilogue.extras))
        program = BlockProgram(kernel, *map(tuple, layouts))
        try:
            program.numbers(rows, col)
        except ValueError:
            return None
        return program

    def program_pointers(self, step: Step, epilogue: Epilogue) -> tuple[Pointer, ...]:
        """Return the pointers of a block program; its first input is the block."""
        return (*step.writes, None, *epilogue.extras)

    def behind(self, step: Step, epilogue: Epilogue) -> Calls:
        """Apply what is left of a program, in place."""
        tail = self._tails.get(step.writes[0].buffer)
        if tail is not None:
            return tail(epilogue)
        if epilogue.rest is None:
            return []
        return self.scalar(epilogue.rest, step.writes, (step.writes[0], *epilogue.extras))

    # ---- constants --------------------------------------------------------------------------

    def dense(self, operand: Operand) -> Operand:
        """Return weights for `pack` whose elements lie in row-major order."""
        if operand.layout.is_contiguous:
            return operand
        made, array = self.temporary(self.dtype(operand), operand.layout.sizes), None
        if operand.buffer in self.constants:
            array = self.constant(operand)
        if array is None:
            self.before.append(self.copy(made, operand))
        else:
            self.constants[made.buffer] = np.ascontiguousarray(array)
        return made

    def pack_copy(self, operand: Operand, floats: int, call: KernelCall) -> Pointer:
        """Copy weights into another layout, constants once for all sizes."""
        return self.pack(operand, floats, "copy", call, target_first=True)

    def pack(
        self,
        operand: Operand,
        floats: int,
        family: str,
        call: KernelCall,
        *,
        target_first: bool = False,
    ) -> Pointer:
        """Run a kernel that reorders weights; once for all sizes if they are a constant."""
        if operand.buffer not in self.constants:
            made = self.temporary(DType.FLOAT32, (floats,))
            pointers = (made, operand) if target_first else (operand, made)
            self.before.append(NativeCall(family, call, pointers))
            return made
        key = (operand.buffer, operand.layout, call.kernel, call.numbers)
        found = self._known.get(key)
        if found is None:
            constant = self.constants[operand.buffer]
            array = self._packed(constant, operand, floats, family, call, target_first)
            found = self._known[key] = self.kept(array)
        return found

    def pack_if(
        self, guard: Size, operand: Operand, floats: int, family: str, call: KernelCall
    ) -> Pointer:
        """Do the same for a call that not all sizes choose: when the first ones do."""
        constant = self.constants.get(operand.buffer)
        if isinstance(guard, int) or constant is None:
            return self.pack(operand, floats, family, call)
        key = (operand.buffer, operand.layout, call.kernel, call.numbers)

        def make(env: Mapping[Symbol, int]) -> Array:
            if not self._holds(guard, env):
                return np.empty(0, np.float32)
            if key not in self._late:
                self._late[key] = self._packed(constant, operand, floats, family, call, False)
            return self._late[key]

        return Table(make)

    def _holds(self, guard: Size, env: Mapping[Symbol, int]) -> bool:
        """Return whether a guard is not 0; layers repeat, so that few differ in one binding."""
        if env is not self._env:
            self._env, self._held = env, {}
        found = self._held.get(guard)
        if found is None:
            found = self._held[guard] = evaluate(guard, env) != 0
        return found

    def _packed(
        self,
        constant: Array,
        operand: Operand,
        floats: int,
        family: str,
        call: KernelCall,
        target_first: bool,
    ) -> Array:
        source = constant if family in ANYWHERE and constant.flags.c_contiguous else dense(constant)
        target: Array = self._memory.take(4 * floats).view(np.float32)
        offset: Any = operand.layout.offset
        address = source.ctypes.data + offset * source.itemsize
        addresses = (address, target.ctypes.data)
        run_alone(self.library, family, call, addresses[::-1] if target_first else addresses)
        forget_pages(constant)
        return target

    def keep(
        self, name: tuple[Any, ...], count: int, make: Callable[[], Sequence[Array]]
    ) -> list[Constant]:
        """Keep arrays that are computed from constants, once for all sizes.

        Args:
            name: of what they are, the same for the same ones.
            count: how many there are.
            make: computes them.
        """
        if (*name, 0) not in self._known:
            for i, array in enumerate(make()):
                self._known[*name, i] = self.kept(array)
        return [self._known[*name, i] for i in range(count)]

    def kept(self, array: Array) -> Constant:
        """Return a constant that a kernel reads as it is."""
        self.packed.append(array)
        return Constant(len(self.packed) - 1)

    def forget(self, packed: Sequence[Constant]) -> None:
        """Release packed constants that nothing reads."""
        for p in packed:
            lose_pages(self.packed[p.number])
            self.packed[p.number] = np.empty(0, np.uint8)
        self._known = {k: p for k, p in self._known.items() if p not in packed}

    def taken(self) -> Calls:
        """Return the calls that make operands of the step at hand; that step is done then."""
        calls, self.before = self.before, []
        while next(reversed(self.constants), -1) >= len(self.plan.buffers):
            self.constants.popitem()  # those of temporaries come last
        return calls


def run_alone(
    library: NativeLibrary, family: str, call: KernelCall, addresses: Sequence[int]
) -> None:
    """Run one kernel whose numbers are known."""
    steps = np.zeros(1, STEP)
    sizes = (call.units, call.grain, call.scratch)
    steps[0] = (library.kernel(family, call.kernel), 0, 0, *(evaluate(n, {}) for n in sizes))
    numbers = np.array([evaluate(n, {}) for n in call.numbers], np.int64)
    library.run(steps, numbers, np.array(addresses, np.int64))
