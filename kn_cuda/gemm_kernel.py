"""Our kernels of products: see `kernels/gemm.cu`. They take any type, stride, batch and program."""

from __future__ import annotations

from dataclasses import dataclass

from kn_cuda.axes import blocks_for, divides, joined
from kn_cuda.builder import KernelBuilder
from kn_cuda.calls import Launch
from kn_cuda.lowering import Lowering
from kn_cuda.products import add_products
from kn_cuda.scalar import add_end, vector_width
from kn_cuda.types import storage_type
from kn_graph.dim import Size, ceildiv, size_min, size_prod
from kn_graph.dtype import Kind
from kn_graph.types import Shape
from kn_plan.plan import Operand, Step

__all__ = ["FEW_ROWS", "TILE", "Product"]

FEW_ROWS = 8
"""Rows up to which b is read once and not kept in shared memory."""

FEW_ALONG = 16
"""Elements of a that a thread has at once where b is read along columns: more would spill."""

TILE = 64
"""Rows and columns of a tile."""

DEPTH = 16
"""Products in a slab."""

THREADS = 256

WORD = 4
"""Bytes that are multiplied at once."""

LANES = 8
"""Threads that read a row of b side by side, where rows are few."""


@dataclass(frozen=True)
class Product:
    """A product of matrices.

    Attributes:
        low: what finds its calls.
        step: the step.
        into: where results go without the step's program; None for through it.
    """

    low: Lowering
    step: Step
    into: Operand | None = None

    @property
    def batch(self) -> Size:
        """How many products there are."""
        return size_prod(self.step.shape[:-2])

    @property
    def rows(self) -> Size:
        """Rows of a."""
        return self.step.shape[-2]

    @property
    def cols(self) -> Size:
        """Columns of b."""
        return self.step.shape[-1]

    @property
    def depth(self) -> Size:
        """Products of a result."""
        return self.step.reads[0].layout.sizes[-1]

    @property
    def results(self) -> Size:
        """How many results there are."""
        return size_prod(self.step.shape)

    def tiled(self, guard: Size) -> Launch:
        """Return a launch for any sizes."""
        if self.is_of_bytes:
            return self._of_bytes(guard)
        a, b = (o.layout.strides for o in self.step.reads)
        made = self._builder("gemm_tiled")
        constants = {
            "ROWS": TILE, "COLS": TILE, "DEPTH": DEPTH, "DOWN": TILE * TILE // THREADS // 4,
            "A_ALONG": a[-1] == 1, "B_ALONG": b[-2] == 1 and b[-1] != 1,
        }  # fmt: skip
        for name, number in constants.items():
            made.constant(name, number)
        tiles = self.batch * ceildiv(self.rows, TILE) * ceildiv(self.cols, TILE)
        return made.launch(blocks_for(tiles, 1), guard=guard, extent=self.results)

    @property
    def is_of_bytes(self) -> bool:
        """Whether both operands are bytes, and sums have up to 32 bits."""
        assert self.step.node is not None
        out = self.step.node.results[0].dtype
        bytes_ = all(d.is_int and d.bits == 8 for d in map(self.low.dtype, self.step.reads))
        return bytes_ and out.is_int and out.bits <= 32

    def _of_bytes(self, guard: Size) -> Launch:
        """Return a launch that multiplies bytes by fours; see `kernels/gemm_bytes.cu`."""
        a, b = self.step.reads
        made = self._builder("gemm_bytes", "gemm_bytes")
        *lines, last = a.layout.strides
        starts = (a.layout.offset, *lines, self.depth)
        made.constant("A_WORDS", last == 1 and divides(WORD, starts))
        for name, operand in (("A_SIGNED", a), ("B_SIGNED", b)):
            made.constant(name, self.low.dtype(operand).kind is Kind.INT)
        tiles = self.batch * ceildiv(self.rows, TILE) * ceildiv(self.cols, TILE)
        return made.launch(blocks_for(tiles, 1), guard=guard, extent=self.results)

    def few(self, guard: Size) -> Launch:
        """Return a launch for at most `FEW_ROWS` rows."""
        b = self.step.reads[1].layout
        along = b.strides[-2] == 1 and b.strides[-1] != 1
        made = self._builder("gemm_few_along" if along else "gemm_few")
        most = self.rows if isinstance(self.rows, int) else FEW_ROWS
        vector = self._vector((self.cols, self.depth) if along else (self.depth, self.cols))
        while along and vector * most > FEW_ALONG:
            vector //= 2
        made.constant("ROWS", max(1, most))
        made.constant("VECTOR", vector)
        units = self.batch * (self.cols if along else ceildiv(self.cols, LANES * vector))
        blocks = blocks_for(units, THREADS // 32 if along else 1)
        return made.launch(blocks * size_min(1, self.rows), guard=guard, extent=self.results)

    def _vector(self, sizes: Shape) -> int:
        """Return how many elements of b a thread reads at once, along the last of two axes."""
        operand = self.step.reads[1]
        b = operand.layout
        matrix = b.strides[-2:] if sizes[-1] == self.cols else (b.strides[-1], b.strides[-2])
        if matrix[-1] != 1:
            return 1
        lead, (steps,) = joined(b.sizes[:-2], b.strides[:-2])
        strides = [(*steps, *matrix)]
        return vector_width((*lead, *sizes), strides, [b.offset], self.low.itemsize(operand))

    def _builder(self, entry: str, family: str = "gemm") -> KernelBuilder:
        """Return what all kernels have."""
        low, step = self.low, self.step
        assert step.node is not None
        b = KernelBuilder(family, entry, THREADS)
        dtype = step.node.results[0].dtype
        add_products(b, dtype)
        b.constant("THREADS", THREADS)
        layouts = [o.layout for o in step.reads]
        for name, operand in zip("ab", step.reads, strict=True):
            b.reads(name, operand, storage_type(low.dtype(operand)))
            b.number(f"{name}_row", operand.layout.strides[-2])
            b.number(f"{name}_col", operand.layout.strides[-1])
        for name in ("batch", "rows", "cols", "depth"):
            b.number(name, getattr(self, name))
        batches, strides = joined(step.shape[:-2], *(x.strides[:-2] for x in layouts))
        b.numbers("batches", batches)
        b.rows("batch_strides", strides)
        if self.into is None:
            low.end(b, step)
        else:
            add_end(b, dtype, None, [low.typed(self.into)], [])
        return b
