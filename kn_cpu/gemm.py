"""Products of matrices for the native kernels; the numbers are those of `native/kn_gemm.h`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf

from kn_cpu.axes import KernelCall, float_bits
from kn_cpu.product import BlockProgram, Registers, ceil_to, packed_size, round_up
from kn_graph.dim import Size, ceildiv, size_prod
from kn_plan.derived import derive
from kn_plan.layout import StridedLayout

__all__ = ["MAX_BATCH", "Packed", "gemm_call", "pack_call", "packed_layout", "product_of"]

MAX_BATCH = 3
"""How many axes of matrices a call may have that do not fold into one another."""

UNIT_WORK = 1 << 19
"""Multiplications that are worth a work unit, while there are not enough units for all threads."""

READ_COST = 16
"""How many multiplications take as long as reading an element."""

ENOUGH_UNITS = 16

ROWS, COLS, LONG, COLS_STEP = 192, 512, 2048, 256
"""Bounds of the blocks that `choose_blocks` of `native/gemm.c` finds."""


@dataclass(frozen=True)
class Packed:
    """A right operand [*batch, depth, cols] in column panels.

    Attributes:
        sizes: of the batch axes, depth, columns.
        strides: of the batch axes, in floats of the panels; 0 repeats.
    """

    sizes: tuple[Size, ...]
    strides: tuple[Size, ...]


def packed_layout(sizes: Sequence[Size], registers: Registers) -> Packed:
    """Return how a matrix, or a contiguous batch of them, is packed."""
    *batch, depth, cols = sizes
    each = packed_size(depth, cols, registers)
    return Packed(tuple(sizes), StridedLayout.contiguous((*batch, each)).strides[:-1])


def pack_call(b: StridedLayout, registers: Registers) -> KernelCall:
    """Pack matrices, p = {b, packed}.

    Args:
        b: layout [depth, cols], [batch, depth, cols] or [batch, outer, inner, cols], where outer
            and inner are the two axes of the depth.
        registers: of the instruction set.
    """
    sizes = (1,) * (4 - b.rank) + b.sizes
    strides = (0,) * (4 - b.rank) + b.strides
    if b.rank == 3:  # the batch comes first
        sizes, strides = (sizes[1], 1, *sizes[2:]), (strides[1], 0, *strides[2:])
    batch, outer, inner, cols = sizes
    each = packed_size(outer * inner, cols, registers)
    units = batch * ceildiv(cols, registers.panel)
    return KernelCall("pack_f32", (outer, inner, cols, *strides[1:], strides[0], each), units)


@dataclass(frozen=True)
class _Operand:
    """Strides of the batch axes, of rows and of columns; of a packed matrix those are unused."""

    batch: tuple[Size, ...]
    row: Size
    col: Size

    @classmethod
    def of(cls, layout: StridedLayout | Packed | None, rank: int) -> _Operand:
        if layout is None:
            return cls((0,) * (rank - 2), 0, 0)
        if isinstance(layout, Packed):
            return cls(layout.strides, 0, 0)
        strides = tuple(
            0 if n == 1 else step for n, step in zip(layout.sizes, layout.strides, strict=True)
        )
        return cls(strides[:-2], strides[-2], strides[-1])

    @property
    def turned(self) -> _Operand:
        return replace(self, row=self.col, col=self.row)

    @property
    def numbers(self) -> tuple[Size, ...]:
        missing = MAX_BATCH - len(self.batch)
        return (self.row, self.col, *((0,) * missing), *self.batch)


@dataclass(frozen=True)
class _Problem:
    """A product, [a, b, out, bias, residual] in this order."""

    batch: tuple[Size, ...]
    rows: Size
    cols: Size
    depth: Size
    operands: tuple[_Operand, ...]
    packed: bool
    turned: bool = False

    def folded(self) -> _Problem:
        """Merge batch axes that lie behind one another, and into the rows what shares b."""
        p = self._without_ones()
        if p.batch and p.operands[1].batch[-1] == 0:
            others = [p.operands[i] for i in (0, 2, 3, 4)]
            if all(o.batch[-1] == o.row * p.rows for o in others):
                rest = tuple(replace(o, batch=o.batch[:-1]) for o in p.operands)
                return replace(
                    p, batch=p.batch[:-1], rows=p.rows * p.batch[-1], operands=rest
                ).folded()
        for i in range(len(p.batch) - 1):
            if all(o.batch[i] == o.batch[i + 1] * p.batch[i + 1] for o in p.operands):
                return p._merged(i).folded()
        return p

    def _without_ones(self) -> _Problem:
        keep = [i for i, n in enumerate(self.batch) if n != 1]
        if len(keep) == len(self.batch):
            return self
        operands = tuple(replace(o, batch=tuple(o.batch[i] for i in keep)) for o in self.operands)
        return replace(self, batch=tuple(self.batch[i] for i in keep), operands=operands)

    def _merged(self, i: int) -> _Problem:
        def drop(sizes: tuple[Size, ...]) -> tuple[Size, ...]:
            return sizes[:i] + sizes[i + 1 :]

        batch = list(self.batch)
        batch[i + 1] = batch[i] * batch[i + 1]
        operands = tuple(replace(o, batch=drop(o.batch)) for o in self.operands)
        return replace(self, batch=drop(tuple(batch)), operands=operands)

    def turn(self) -> _Problem:
        """Compute the transpose of the result from the transposes of the operands."""
        a, b, *rest = (o.turned for o in self.operands)
        return replace(self, rows=self.cols, cols=self.rows, operands=(b, a, *rest), turned=True)


def _better_turned(p: _Problem, registers: Registers) -> bool:
    if p.packed:
        return False
    out = p.operands[2]
    if out.col != 1 and out.row == 1 and p.cols != 1:
        return True
    small = isinstance(p.cols, int) and 2 * p.cols <= registers.vector
    return small and not (isinstance(p.rows, int) and p.rows < 2 * registers.vector)


def _units(p: _Problem) -> Size:
    """Return into how many units the work is cut."""
    (units,) = derive(_divided, 1, size_prod(p.batch), p.rows, p.cols, p.depth)
    return units


def _divided(batch: int, rows: int, cols: int, depth: int) -> tuple[int]:
    # multiplications, or as many as one reads the matrix b in
    work = batch * depth * cols * max(rows, READ_COST)
    blocks = batch * -(-rows // ROWS) * -(-cols // COLS)
    return (max(1, min(max(blocks, ENOUGH_UNITS), work // UNIT_WORK)),)


def gemm_call(
    registers: Registers,
    out: StridedLayout,
    a: StridedLayout,
    b: StridedLayout | Packed,
    *,
    bias: StridedLayout | None = None,
    residual: StridedLayout | None = None,
    low: float = -inf,
    high: float = inf,
    program: BlockProgram | None = None,
) -> KernelCall:
    """Return out = clamp(a @ b + bias + residual), p = {a, b, out, bias, residual, program's..}.

    Args:
        registers: of the instruction set.
        out: layout [*batch, rows, cols].
        a: layout [*batch, rows, depth], stride 0 where it repeats.
        b: layout [*batch, depth, cols], or packed.
        bias: layout of the sizes of `out` whose rows are contiguous or repeat one number.
        residual: any layout of the sizes of `out`.
        low: lower bound of the result.
        high: upper bound of the result.
        program: what finished blocks go through; `out` is not written then.

    Raises:
        ValueError: more batch axes than MAX_BATCH are left, or bias or program do not fit.
    """
    problem = _problem(registers, out, a, b, bias, residual)
    if len(problem.batch) > MAX_BATCH:
        raise ValueError(f"a product over {len(problem.batch)} batch axes, at most {MAX_BATCH}")
    if problem.operands[3].col not in (0, 1):
        raise ValueError(f"the columns of a bias {bias} neither lie side by side nor repeat")
    units = _units(problem)
    copy = problem.operands[0].col != 1
    batch = (1,) * (MAX_BATCH - len(problem.batch)) + problem.batch
    numbers = (problem.rows, problem.cols, problem.depth, *batch, units)
    flags = (int(problem.packed), int(problem.turned), int(copy), float_bits(low), float_bits(high))
    more: tuple[Size, ...] = ()
    scratch: Size = _scratch(registers, problem)
    if program is not None:
        if problem.turned and problem.batch:
            raise ValueError("a program behind transposed products of several matrices")
        more = program.numbers(range(out.rank - 1), out.rank - 1, turned=problem.turned)
        scratch = program.scratch(scratch)
    strides = tuple(n for o in problem.operands for n in o.numbers)
    everything = (*numbers, *flags, int(program is not None), *strides, *more)
    return KernelCall("gemm_f32", everything, units, scratch=scratch)


def product_of(
    out: StridedLayout,
    a: StridedLayout,
    b: StridedLayout | Packed,
    bias: StridedLayout | None,
    residual: StridedLayout | None,
) -> _Problem:
    """Return a product whose batch axes are folded as far as strides allow."""
    operands = tuple(_Operand.of(o, out.rank) for o in (a, b, out, bias, residual))
    *batch, rows, cols = out.sizes
    packed = isinstance(b, Packed)
    return _Problem(tuple(batch), rows, cols, a.sizes[-1], operands, packed).folded()


def _problem(
    registers: Registers,
    out: StridedLayout,
    a: StridedLayout,
    b: StridedLayout | Packed,
    bias: StridedLayout | None,
    residual: StridedLayout | None,
) -> _Problem:
    problem = product_of(out, a, b, bias, residual)
    return problem.turn() if _better_turned(problem, registers) else problem


def _scratch(registers: Registers, p: _Problem) -> int:
    """Return the bytes that `divide_scratch` of gemm.c hands out at most, at any sizes."""
    vector = registers.vector
    cols = _bounded(ceil_to(p.cols, COLS_STEP), COLS)

    def needed(rows: int, depth: int) -> int:
        rows = round_up(rows, registers.rows)
        part = rows * (cols + vector)
        left = rows * (round_up(depth, vector) + vector)
        return round_up(8 * rows, 4 * vector) + 4 * (part + depth * registers.panel + left)

    few = needed(_bounded(p.rows, registers.rows), _bounded(p.depth, LONG))
    many = needed(_bounded(p.rows, ROWS), _bounded(p.depth, registers.depth))
    return max(64, few, many)


def _bounded(size: Size, most: int) -> int:
    """Return the smaller of a size and a number, and the number where the size is open."""
    return min(size, most) if isinstance(size, int) else most
