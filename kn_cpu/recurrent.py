"""Recurrent layers: see `native/kn_recurrent.h`.

The products of the operand with the input weights come from a call of `gemm_call` for all steps;
the recurrent kernel does what depends on the step before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf

from kn_cpu.axes import KernelCall, float_bits
from kn_cpu.product import Registers, ceil_to
from kn_cpu.scalar import ScalarKernel, ScalarRefusal, compile_program
from kn_graph.dim import Size, size_max
from kn_graph.dtype import DType
from kn_graph.ops.elementwise import Unary
from kn_graph.ops.recurrent import CELLS, Activation, Recurrent
from kn_graph.scalar import scalar_function
from kn_plan.derived import derive
from kn_plan.layout import StridedLayout
from kn_plan.program import Instruction, ScalarProgram

__all__ = [
    "RecurrentLayouts",
    "packed_recurrent_size",
    "recurrent_call",
    "recurrent_pack_call",
    "recurrent_products",
    "steps_come_first",
]

KINDS = {"rnn": 0, "gru": 1, "lstm": 2}
SIGMOID, TANH, CLAMPED, PROGRAM = range(4)

ACTIVATIONS = 3
"""Of a direction, and how many numbers each has."""
ACTIVATION_NUMBERS = 6

UNIT_WORK = 1 << 18
"""Multiplications that are worth a work unit."""

FEW_ROWS, MANY_ROWS = 4, 24
"""Rows of a task: fewer read the weights too often, more do not fit the cache."""


@dataclass(frozen=True)
class RecurrentLayouts:
    """Where the operands of a layer lie, of the shapes that `Recurrent` names.

    Attributes:
        y: hidden states.
        y_h: the last ones.
        y_c: the last cell states.
        bias: both biases.
        lengths: of the sequences.
        initial_h: hidden states at the start.
        initial_c: cell states at the start.
        peepholes: weights.
    """

    y: StridedLayout
    y_h: StridedLayout
    y_c: StridedLayout | None = None
    bias: StridedLayout | None = None
    lengths: StridedLayout | None = None
    initial_h: StridedLayout | None = None
    initial_c: StridedLayout | None = None
    peepholes: StridedLayout | None = None


def recurrent_products(op: Recurrent, x: StridedLayout) -> StridedLayout:
    """Return the layout [steps, batch, directions * gates * hidden] of the products of x with w.

    Steps and rows lie as those of x do, so that they fold into one axis where these do. What lies
    behind the products, up to a vector, has to be readable.
    """
    steps, batch, _ = x.sizes
    columns = op.directions * CELLS[op.kind].gates * op.hidden_size
    if steps_come_first(x):
        return StridedLayout.contiguous((steps, batch, columns))
    return StridedLayout.contiguous((batch, steps, columns)).permute((1, 0, 2))


def steps_come_first(x: StridedLayout) -> bool:
    """Return whether the rows [steps, batch] of an operand lie behind one another in this order."""
    return x.strides[0] == x.sizes[1] * x.strides[1]


def packed_recurrent_size(op: Recurrent, registers: Registers) -> Size:
    """Return how many floats the packed recurrent weights have."""
    width = ceil_to(op.hidden_size, registers.vector)
    return op.directions * CELLS[op.kind].gates * op.hidden_size * width


def recurrent_pack_call(op: Recurrent, r: StridedLayout) -> KernelCall:
    """Pack the recurrent weights [directions, gates * hidden, hidden], p = {r, packed}."""
    numbers = (KINDS[op.kind], int(op.linear_before_reset), op.hidden_size, *r.strides)
    return KernelCall("recurrent_pack_f32", numbers, op.directions)


def recurrent_call(
    op: Recurrent, registers: Registers, products: StridedLayout, at: RecurrentLayouts
) -> KernelCall:
    """Return the steps of a layer.

    p = {y, y_h, y_c, products, packed r, bias, lengths, h, c, peepholes, status}.

    Args:
        op: what is computed.
        registers: of the instruction set.
        products: see `recurrent_products`.
        at: layouts of the other operands.

    Raises:
        ValueError: there is no kernel.
    """
    if op.quantize_hidden and op.kind == "gru" and not op.linear_before_reset:
        raise ValueError("there is no kernel that rounds products of gates to 8 bits")
    steps, directions, batch, hidden = at.y.sizes
    gates = CELLS[op.kind].gates
    rows = _rows(op, batch)
    (units,) = derive(_units, 1, steps, batch, directions, gates * hidden, hidden, rows)
    clip = inf if op.clip is None else op.clip
    head: tuple[Size, ...] = (
        KINDS[op.kind], directions, int(op.direction == "reverse"), steps, batch, hidden,
        rows, units, int(op.linear_before_reset), int(op.input_forget), int(op.quantize_hidden),
        float_bits(-clip), float_bits(clip),
        *products.strides[:2], *at.y.strides, *_strides(at.y_h, 3), *_strides(at.y_c, 3),
        *_strides(at.initial_h, 3), *_strides(at.initial_c, 3),
        *_strides(at.bias, 2), *_strides(at.peepholes, 2), *_strides(at.lengths, 1),
    )  # fmt: skip
    more, workspace = _activations(op, len(head))
    return KernelCall(
        "recurrent_f32",
        (*head, *more),
        units,
        scratch=_scratch(gates, rows, ceil_to(hidden, registers.vector)) + workspace,
    )


def _strides(layout: StridedLayout | None, rank: int) -> tuple[Size, ...]:
    return (0,) * rank if layout is None else layout.strides


def _rows(op: Recurrent, batch: Size) -> Size:
    """Return how many rows of the batch a task has."""
    if op.quantize_hidden:  # the range is that of all rows
        return size_max(1, batch)
    (rows,) = derive(_shared_rows, 1, batch, op.directions)
    return rows


def _shared_rows(batch: int, directions: int) -> tuple[int]:
    if directions == 2:
        return (max(1, min(batch, MANY_ROWS)),)
    return (max(FEW_ROWS, min(-(-batch // 8), MANY_ROWS)),)


def _units(
    steps: int, batch: int, directions: int, columns: int, hidden: int, rows: int
) -> tuple[int]:
    work = steps * batch * directions * columns * (hidden + 32)
    return (min(directions * -(-batch // rows), max(1, work // UNIT_WORK)),)


def _scratch(gates: int, rows: Size, width: Size) -> Size:
    """Return the bytes that `divide_scratch` of recurrent.c hands out."""
    floats = rows * width * (3 + 2 * gates) + width * (gates + 4) + 8 * rows
    return ceil_to(4 * floats, 64) + 64 * 12


# ---- activations --------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Encoded:
    """An activation: its code and immediate numbers, or a program."""

    code: int
    alpha: float = 1.0
    beta: float = -0.0
    low: float = -inf
    high: float = inf
    program: ScalarKernel | None = None

    def numbers(self, place: int) -> tuple[int, ...]:
        bits = map(float_bits, (self.alpha, self.beta, self.low, self.high))
        return (self.code, *bits, place)


def _activations(op: Recurrent, start: int) -> tuple[tuple[Size, ...], int]:
    """Return the numbers of all activations and of their programs, and the scratch of these."""
    encoded = [_Encoded(TANH)] * (2 * ACTIVATIONS)
    for d, functions in enumerate(op.activations):
        for i, activation in enumerate(functions):
            encoded[d * ACTIVATIONS + i] = _encode(activation)
    places: dict[ScalarKernel, int] = {}
    programs: list[Size] = []
    for kernel in [e.program for e in encoded if e.program is not None]:
        if kernel not in places:
            places[kernel] = start + len(encoded) * ACTIVATION_NUMBERS + len(programs)
            programs += kernel.numbers((1, 1), (0, 1), (0, 1))
    heads = [n for e in encoded for n in e.numbers(places[e.program] if e.program else 0)]
    return (*heads, *programs), max((k.scratch for k in places), default=0)


def _encode(activation: Activation) -> _Encoded:
    name, params = activation
    if name in _CODES:
        return _CODES[name](scalar_function(name).bind(dict(params)))
    step = Instruction(DType.FLOAT32, Unary(name, params), (0,))
    kernel = compile_program(ScalarProgram((DType.FLOAT32,), (step,), (1,)))
    if isinstance(kernel, ScalarRefusal):
        raise ValueError(str(kernel))
    return _Encoded(PROGRAM, program=kernel)


_CODES: Mapping[str, Callable[[Mapping[str, float]], _Encoded]] = {
    "sigmoid": lambda p: _Encoded(SIGMOID),
    "tanh": lambda p: _Encoded(TANH),
    "relu": lambda p: _Encoded(CLAMPED, low=0.0),
    "affine": lambda p: _Encoded(CLAMPED, p["alpha"], p["beta"]),
    "hard_sigmoid": lambda p: _Encoded(CLAMPED, p["alpha"], p["beta"], 0.0, 1.0),
}
