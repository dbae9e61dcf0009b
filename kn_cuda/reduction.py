"""Launches that reduce rows of elements, in one pass or, where rows are few and long, in two."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from kn_cuda.axes import blocks_for, typical
from kn_cuda.builder import KernelBuilder
from kn_cuda.calls import Launch
from kn_cuda.combine import add_combine
from kn_cuda.elements import Elements, Place
from kn_cuda.lowering import Calls, Lowering
from kn_cuda.types import compute_type, wide
from kn_graph.dim import Size, ceildiv
from kn_graph.dtype import DType, Kind
from kn_plan.plan import Operand

__all__ = ["Reduction"]

FEW = 16
"""Elements up to which a thread reduces a row by itself."""

WIDE_ROW = 1024
"""Elements from which on a block reduces a row, and not a warp."""

ENOUGH_THREADS = 1 << 14
"""Threads with which a GPU is busy enough: with fewer, long rows are reduced in parts."""

LONG = 4096
"""Elements from which on a row may be reduced in parts."""

MOST_PARTS = 64


@dataclass(frozen=True)
class Reduction:
    """Rows of a tensor, each of which becomes one element.

    Attributes:
        fn: of `kn_graph.ops.reduce`.
        dtype: of the elements that are reduced, before they are widened.
        elements: where they are.
        count: how many elements a mean is over; those of a row by default.
        guard: 1 where it runs, 0 where not.
    """

    fn: str
    dtype: DType
    elements: Elements
    count: Size | None = None
    guard: Size = 1

    @property
    def rows(self) -> Size:
        """How many results there are."""
        return self.elements.rows

    @property
    def length(self) -> Size:
        """How many elements each one is of."""
        return self.elements.length

    @property
    def group(self) -> int:
        """How many threads reduce a row whose elements lie side by side."""
        return 256 if isinstance(self.length, int) and self.length > WIDE_ROW else 32

    def calls(self, low: Lowering, end: Callable[[KernelBuilder], None]) -> Calls:
        """Return the launches.

        Args:
            low: whose step it is.
            end: gives a kernel the function that stores the i-th result.
        """
        parts = self._parts(low.threads)
        if parts == 1:
            return [self._launch(low, 1, end)]
        partial = wide(self.dtype)
        made = low.temporary(partial, (parts, self.rows))
        kept, gone = ((self.rows,), ((1,),)), ((parts,), ((self.rows,),))
        elements = Elements((Place("x", (made, compute_type(partial))),), kept, gone)
        count = self.length if self.count is None else self.count
        rest = replace(self, dtype=partial, elements=elements, count=count)
        first = self._launch(low, parts, lambda b: _end_part(b, made, partial))
        return [first, *rest.calls(low, end)]

    def _parts(self, threads: int) -> int:
        """Return in how many parts rows are reduced: sizes that are symbols are guessed."""
        rows, length = typical(self.rows), typical(self.length)
        if length < LONG:
            return 1
        busy = max(1, rows) * min(threads, 32 if not self.elements.along else self.group)
        return max(1, min(MOST_PARTS, ENOUGH_THREADS // busy, length // (LONG // 4)))

    def _entry(self) -> str:
        if isinstance(self.length, int) and self.length <= FEW:
            return "reduce_each"
        return "reduce_rows" if self.elements.along else "reduce_columns"

    def _launch(self, low: Lowering, parts: int, end: Callable[[KernelBuilder], None]) -> Launch:
        entry, threads = self._entry(), low.threads
        group = min(self.group, threads)
        vector = self.elements.vector(low) if entry == "reduce_rows" else 1
        b = KernelBuilder("reduce", entry, threads)
        for name, number in (
            ("THREADS", threads), ("GROUP", group), ("VECTOR", vector), ("SPLIT", parts > 1),
        ):  # fmt: skip
            b.constant(name, number)
        add_combine(b, self.fn, self.dtype)
        self.elements.add(b)
        b.number("count", self.length if self.count is None else self.count)
        b.number("parts", parts)
        b.number("chunk", ceildiv(ceildiv(self.length, parts), vector) * vector)
        result = "acc" if parts > 1 else _finish(self.fn, self.dtype)
        b.code(f"KN_DEVICE static Acc finish(Acc acc, const Numbers& n) {{ return {result}; }}")
        end(b)
        per_block = {"reduce_rows": threads // group, "reduce_columns": 32, "reduce_each": threads}
        return b.launch(
            blocks_for(self.rows * parts, per_block[entry]),
            guard=self.guard, extent=self.rows * self.length,
        )  # fmt: skip


def _end_part(b: KernelBuilder, out: Operand, dtype: DType) -> None:
    """Store parts as they are: they lie behind one another."""
    b.writes("y0", out, compute_type(dtype))
    b.code(
        "KN_DEVICE static void end(const Pointers& p, const Numbers& n, Index i, Acc result) {\n"
        "    p.y0[i] = result;\n}\n"
    )


def _finish(fn: str, dtype: DType) -> str:
    """Return the result of an accumulated number; integers have no NaN, and are truncated."""
    if fn != "mean":
        return "acc"
    if dtype.kind in (Kind.INT, Kind.UINT):
        divisor = "int64_t(n.count)" if dtype is not DType.UINT64 else "uint64_t(n.count)"
        return f"n.count ? Acc(acc / {divisor}) : Acc(0)"
    return "acc / Acc(n.count)"
