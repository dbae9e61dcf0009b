"""Scalar programs as native kernels: see `native/kn_scalar.h`. Pointers are outputs, then inputs.

```python
kernel = compile_program(program)
if isinstance(kernel, ScalarRefusal): ...   # a host step; str(kernel) says why
call = kernel.call(outputs, inputs)         # of layouts over symbolic sizes
```
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from kn_cpu.axes import KernelCall, axes_numbers
from kn_cpu.scalar_lower import CLASSES, OPS, Code, Node, ScalarRefusal, lower
from kn_cpu.scalar_peephole import simplify
from kn_graph.dim import Size, ceildiv
from kn_graph.dtype import DType
from kn_plan.layout import StridedLayout
from kn_plan.program import ScalarProgram

__all__ = ["ScalarKernel", "ScalarRefusal", "compile_program"]

UNIT, TILE = 4096, 512
MAX_OPERANDS, MAX_REGISTERS, MAX_AXES = 32, 96, 14
KEPT = 512
"""Compiled programs."""
WORK = 64
"""How much a thread takes at a time: units times the cost of an element."""

_TYPES = {
    DType.FLOAT32: 0,
    DType.INT32: 1,
    DType.FLOAT64: 2,
    DType.INT64: 3,
    DType.FLOAT16: 4,
    DType.BFLOAT16: 5,
    DType.INT8: 6,
    DType.UINT8: 7,
    DType.BOOL: 7,
    DType.INT16: 8,
    DType.UINT16: 9,
    DType.UINT32: 10,
    DType.INT4: 11,
    DType.UINT4: 12,
    DType.INT2: 13,
    DType.UINT2: 14,
    DType.FLOAT8E4M3FN: 15,
    DType.FLOAT8E4M3FNUZ: 16,
    DType.FLOAT8E5M2: 17,
    DType.FLOAT8E5M2FNUZ: 18,
}
_CONSTANT_TYPES = {"f32": 0, "i32": 1, "f64": 2, "i64": 3}

# relative to an addition, for what is not as cheap
_COSTS: dict[str, int] = {}
for _cost, _names in (
    (3, "div sqrt select_f64 round round_small"),
    (10, "exp expm1 tanh sigmoid silu gelu gelu_tanh erf mish scaled_silu"),
    (20, "sigmoid_once silu_once"),
    (15, "log log1p softplus"),
    (150, "mod fmod pow sin cos tan asin acos atan sinh cosh asinh acosh atanh"),
):
    _COSTS.update(dict.fromkeys(_names.split(), _cost))


@dataclass(frozen=True)
class ScalarKernel:
    """A scalar program for the native interpreter.

    Attributes:
        outputs: element types of what is written.
        inputs: of what is read.
        constants: kind of register and bits of each constant.
        temporaries: how many registers there are beside these.
        code: the words of each instruction.
        names: the instructions by name, for people.
        wide: whether some registers have elements of 64 bits.
        cost: of an element, in additions.
    """

    outputs: tuple[DType, ...]
    inputs: tuple[DType, ...]
    constants: tuple[tuple[str, int], ...]
    temporaries: int
    code: tuple[tuple[int, int, int], ...]
    names: tuple[str, ...]
    wide: bool
    cost: int

    @property
    def registers(self) -> int:
        """How many registers there are in all."""
        operands = len(self.outputs) + len(self.inputs)
        return operands + len(self.constants) + self.temporaries

    @property
    def scratch(self) -> int:
        """Bytes that a thread needs."""
        return self.registers * (TILE * (8 if self.wide else 4) + 64)

    def call(self, outputs: Sequence[StridedLayout], inputs: Sequence[StridedLayout]) -> KernelCall:
        """Return the step for operands of one shape; those that repeat have strides of 0."""
        shape = outputs[0].sizes
        numbers = self.numbers(shape, *(o.strides for o in (*outputs, *inputs)))
        units = ceildiv(outputs[0].numel, UNIT)
        return KernelCall("scalar", numbers, units, max(1, WORK // self.cost), self.scratch)

    def numbers(self, sizes: Sequence[Size], *strides: Sequence[Size]) -> tuple[Size, ...]:
        """Return the numbers for sizes and the strides of outputs and inputs.

        A program for `kn_scalar_block` has two axes, whose sizes do not matter.
        """
        head = (
            len(sizes),
            len(self.outputs),
            len(self.inputs),
            len(self.constants),
            self.temporaries,
            len(self.code),
            int(self.wide),
        )
        types = tuple(_TYPES[d] for d in (*self.outputs, *self.inputs))
        constants = (n for kind, bits in self.constants for n in (_CONSTANT_TYPES[kind], bits))
        words = (w for words in self.code for w in words)
        places = axes_numbers(tuple(sizes), *map(tuple, strides))
        return (*head, *types, *constants, *words, *places)


def compile_program(program: ScalarProgram, *, exact: bool = False) -> ScalarKernel | ScalarRefusal:
    """Return native code for a program, or the instruction that there is none for.

    Layers repeat, and so do their programs: what was compiled is kept.

    Args:
        program: what to compute.
        exact: whether functions of float32 are rounded as the reference rounds them.
    """
    numbers = tuple(repr(s.number) for s in program.instructions if s.op is None)
    return _compiled(program, exact, numbers)


@lru_cache(maxsize=KEPT)
def _compiled(
    program: ScalarProgram, exact: bool, numbers: tuple[str, ...]
) -> ScalarKernel | ScalarRefusal:
    """Compile; `numbers` tells 0 from -0, which are equal otherwise."""
    lowered = lower(program, exact=exact)
    if isinstance(lowered, ScalarRefusal):
        return lowered
    code, outputs = simplify(*lowered)
    output_types = tuple(program.dtype(r) for r in program.outputs)
    kernel = _encode(code, outputs, output_types, program.inputs)
    if len(kernel.outputs) + len(kernel.inputs) > MAX_OPERANDS:
        return ScalarRefusal("the program", f"it has more than {MAX_OPERANDS} operands")
    if kernel.registers > MAX_REGISTERS:
        return ScalarRefusal("the program", f"it needs more than {MAX_REGISTERS} registers")
    return kernel


def _encode(
    code: Code,
    outputs: Sequence[int],
    output_types: tuple[DType, ...],
    input_types: tuple[DType, ...],
) -> ScalarKernel:
    outputs = [_copied(code, place) for place in outputs]
    registers = _Registers(code, outputs)
    words: list[tuple[int, int, int]] = []
    names: list[str] = []
    cost = len(outputs) + code.inputs

    def append(op: str, written: int, read: Sequence[int], k: Sequence[float]) -> None:
        slots = [written, *read, *[read[0]] * (3 - len(read))]
        word = OPS.index(op) | sum(s << (16 + 8 * i) for i, s in enumerate(slots))
        low, high = struct.unpack("<qq", struct.pack("<4f", *k))
        words.append((word, low, high))
        names.append(op)

    for place, node in enumerate(code.nodes):
        if not node.op:
            continue
        read = [registers.slot(a, place) for a in node.args]
        append(node.op, registers.write(place), read, node.k)
        cost += _COSTS.get(node.op, _COSTS.get(node.op.rpartition("_")[0], 1))
    for number, place in enumerate(outputs):
        slot = registers.slot(place, len(code.nodes))
        if slot != number:
            append(_move(code.nodes[place]), number, [slot], (1, 0, 0, 0))
    kinds = {n.kind for n in code.nodes} | {CLASSES[d] for d in output_types}
    return ScalarKernel(
        output_types,
        input_types,
        tuple((code.nodes[p].kind, code.nodes[p].bits or 0) for p in registers.constants),
        registers.temporaries,
        tuple(words),
        tuple(names),
        bool(kinds & {"f64", "i64"}),
        cost,
    )


def _move(node: Node) -> str:
    return "move_f64" if node.kind in ("f64", "i64") else "move_f32"


def _copied(code: Code, place: int) -> int:
    """Return a place for an output: a copy of an input is read before any output is written."""
    node = code.nodes[place]
    return place if node.op else code.add(Node(_move(node), node.kind, (place,)))


class _Registers:
    """Gives values registers: outputs, inputs, constants, then temporaries, which are used again.

    A result goes straight to its output if no input is read any more: the output may lie where an
    input does.
    """

    def __init__(self, code: Code, outputs: Sequence[int]) -> None:
        self._nodes = code.nodes
        self.constants = [i for i, n in enumerate(code.nodes) if n.bits is not None]
        self.temporaries = 0
        self._first = len(outputs) + code.inputs + len(self.constants)
        self._slots = {i: len(outputs) + i for i in range(code.inputs)}
        self._slots.update(
            (p, len(outputs) + code.inputs + i) for i, p in enumerate(self.constants)
        )
        self._last: dict[int, int] = {}
        for place, node in enumerate(code.nodes):
            self._last.update((a, place) for a in node.args)
        inputs_read = max((self._last.get(i, -1) for i in range(code.inputs)), default=-1)
        self._direct: dict[int, int] = {}
        for number, place in enumerate(outputs):
            if place >= inputs_read:
                self._direct.setdefault(place, number)
        self._last.update((p, len(code.nodes)) for p in outputs)
        self._free: list[int] = []
        self._dying: list[int] = []

    def slot(self, place: int, reader: int) -> int:
        """Return where a value is; the last reader frees it."""
        slot = self._slots[place]
        if self._last[place] == reader and slot >= self._first and place not in self._dying:
            self._dying.append(place)
        return slot

    def write(self, place: int) -> int:
        """Return where the value goes whose operands have just been asked for.

        It may overwrite one of them, if its elements are as wide.
        """
        node = self._nodes[place]
        wide = node.kind in ("f64", "i64")
        same = all((self._nodes[a].kind in ("f64", "i64")) == wide for a in node.args)
        if same:
            self._release()
        slot = self._direct.get(place)
        if slot is None:
            slot = self._free.pop() if self._free else self._first + self.temporaries
            self.temporaries = max(self.temporaries, slot - self._first + 1)
        self._slots[place] = slot
        self._release()
        return slot

    def _release(self) -> None:
        self._free.extend(self._slots[p] for p in self._dying)
        self._dying.clear()
