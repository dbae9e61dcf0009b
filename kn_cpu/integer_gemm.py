"""Products of integer matrices; the numbers are those of `native/kn_integer_gemm.h`."""

from __future__ import annotations

from kn_cpu.axes import KernelCall
from kn_cpu.gemm import MAX_BATCH, product_of
from kn_cpu.integer import Factors, Finish, shared_block
from kn_cpu.product import BlockProgram, Registers, ceil_to
from kn_graph.dim import Size, ceildiv, size_prod
from kn_plan.layout import StridedLayout

__all__ = ["integer_gemm_call"]

PARTS = 4
"""Into how many blocks rows and columns are cut each, where they are long."""


def integer_gemm_call(
    registers: Registers,
    factors: Factors,
    out: StridedLayout,
    a: StridedLayout,
    b: StridedLayout | None,
    *,
    finish: Finish,
    program: BlockProgram | None = None,
) -> KernelCall:
    """Return out = finish(a @ b), p = {a, b, out, starts, lows, bias, scale, program's..}.

    Args:
        registers: of the instruction set.
        factors: the operands.
        out: layout [*batch, rows, cols].
        a: layout [*batch, rows, depth].
        b: layout [*batch, depth, cols]; None where it is packed, the same for all of the batch.
        finish: what becomes of the sums.
        program: what finished blocks go through; `out` is not written then.

    Raises:
        ValueError: more batch axes than MAX_BATCH are left, or the program does not fit.
    """
    right = StridedLayout((*a.sizes[:-1], out.sizes[-1]), (0,) * a.rank) if b is None else b
    problem = product_of(out, a, right, None, None)
    if len(problem.batch) > MAX_BATCH:
        raise ValueError(f"a product over {len(problem.batch)} batch axes, at most {MAX_BATCH}")
    left, matrix, target = problem.operands[:3]
    batch = (1,) * (MAX_BATCH - len(problem.batch)) + problem.batch
    rows, cols = _blocks(registers, problem.rows, problem.cols, packed=b is None)
    copy = left.col != 1 or not factors.reads_in_place
    sizes = (problem.rows, problem.cols, *batch, *factors.numbers)
    flags = (rows, cols, int(b is None), int(copy))
    more: tuple[Size, ...] = ()
    scratch = _scratch(registers, factors, rows, cols, packed=b is None, copy=copy)
    if program is not None:
        finish = finish.before_program
        more = program.numbers(range(out.rank - 1), out.rank - 1)
        scratch = program.scratch(scratch)
    places = (*left.numbers, *matrix.numbers, *target.numbers)
    numbers = (*sizes, *flags, *finish.numbers(target.row, target.col), *places, *more)
    units = size_prod(batch) * ceildiv(problem.rows, rows) * ceildiv(problem.cols, cols)
    return KernelCall("gemm_int", numbers, units, 1, scratch)


def _blocks(registers: Registers, rows: Size, cols: Size, *, packed: bool) -> tuple[Size, Size]:
    """Return how many rows and columns a unit has: a right operand is packed for each block."""
    tile, panel = registers.rows, registers.panel
    most, parts = (8 * tile, PARTS) if packed else (32 * tile, 1)
    return shared_block(rows, most, tile, parts), shared_block(cols, 8 * panel, panel, PARTS)


def _scratch(
    registers: Registers, factors: Factors, rows: Size, cols: Size, *, packed: bool, copy: bool
) -> Size:
    """Return the bytes that `divide_scratch` of integer_gemm.c hands out."""
    sums = 4 * (rows * (cols + registers.vector) + registers.panel)
    panel = 0 if packed else registers.panel * factors.column
    left = rows * (ceil_to(factors.column, 64) + 64) if copy else 0
    return sums + panel + left + 64
