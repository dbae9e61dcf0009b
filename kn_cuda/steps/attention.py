"""Attention: see `kernels/attention.cu`."""

from __future__ import annotations

from kn_cuda.axes import blocks_for, divides
from kn_cuda.builder import KernelBuilder
from kn_cuda.calls import Launch
from kn_cuda.expression import literal
from kn_cuda.lowering import Calls, Lowering
from kn_cuda.rows import at_most
from kn_cuda.types import compute_type, wide
from kn_graph.dim import Size, ceildiv, evaluate
from kn_graph.dtype import DType
from kn_graph.ops.attention import Attention
from kn_plan.calls import UnsupportedError
from kn_plan.layout import StridedLayout
from kn_plan.plan import Operand, Step

__all__ = ["attention"]

FEW = 8
"""Queries up to which blocks share keys, and not queries."""

LANES = 8
"""Threads that share a key then."""

MOST = 256
"""Elements of a key, or of a value."""

VECTOR_BYTES = 16

NO_BIAS, NUMBERS, MASK = range(3)
"""What is added to scores; see the kernel."""


def attention(low: Lowering, step: Step, op: Attention) -> Calls:
    """Attend, as one launch: the number of queries chooses which."""
    dtype, queries = low.dtype(step.reads[0]), step.reads[0].layout.sizes[2]
    if len(step.writes) != 1 or op.scores != "none":
        raise UnsupportedError("there is no kernel that keeps the scores of attention")
    if op.softmax_dtype is DType.FLOAT64 and dtype is not DType.FLOAT64:
        raise UnsupportedError(f"there is no kernel with a softmax of float64 for {dtype}")
    problem = _Problem(low, step, op)
    if problem.width == 0:
        return []
    if isinstance(queries, int):
        return [problem.rows(1) if queries <= FEW else problem.tiles(1)]
    few = at_most(queries, FEW)
    return [problem.rows(few), problem.tiles(1 - few)]


class _Problem:
    """One attention, and the kernels that compute it.

    Attributes:
        depth: elements of a key.
        width: elements of a value.
    """

    def __init__(self, low: Lowering, step: Step, op: Attention) -> None:
        self.low, self.step, self.op = low, step, op
        self.q, self.k, self.v, *masks = step.reads
        self.bias = next((m for m in masks if m.layout.rank == 4), None)
        self.lengths = next((m for m in masks if m.layout.rank == 1), None)
        self.dtype = low.dtype(self.q)
        self.depth = evaluate(self.k.layout.sizes[3], {})
        self.width = evaluate(self.v.layout.sizes[3], {})
        if max(self.depth, self.width) > MOST:
            raise UnsupportedError(f"there is no kernel for heads of more than {MOST} elements")

    def tiles(self, guard: Size) -> Launch:
        """Return the launch for many queries."""
        tile = 32 if self.dtype is DType.FLOAT64 else 64
        b = KernelBuilder("attention", "attention_tiles", 256)
        b.constant("TILE", tile)
        batch, heads, queries, _ = self.q.layout.sizes
        strips = batch * heads * ceildiv(queries, tile)
        return self._launch(b, strips, guard)

    def rows(self, guard: Size) -> Launch:
        """Return the launch for few queries."""
        small = max(self.depth, self.width) <= MOST // 2 and self.dtype is not DType.FLOAT64
        b = KernelBuilder("attention", "attention_rows", 512 if small else 256)
        b.constant("THREADS", b.threads)
        b.constant("KEY_VECTOR", self._vector(self.k))
        b.constant("VALUE_VECTOR", self._vector(self.v))
        batch, heads, queries, _ = self.q.layout.sizes
        return self._launch(b, batch * heads * queries, guard)

    def _vector(self, x: Operand) -> int:
        """Return how many elements of a key or value a thread reads at once."""
        layout: StridedLayout = x.layout
        vector = VECTOR_BYTES // self.low.itemsize(x)
        *steps, last = layout.strides
        if last != 1:
            return 1
        fits = (layout.offset, *steps, layout.sizes[3])
        while vector > 1 and not divides(vector, fits):
            vector //= 2
        return vector

    def _launch(self, b: KernelBuilder, blocks: Size, guard: Size) -> Launch:
        low, op = self.low, self.op
        batch, heads, queries, _ = self.q.layout.sizes
        b.type("Acc", compute_type(self.dtype))
        for name, number in (
            ("DEPTH", self.depth), ("WIDTH", self.width), ("LENGTHS", self.lengths is not None),
            ("LEFT", op.left is not None), ("RIGHT", op.right is not None),
            ("BIAS", self._bias_kind()),
        ):  # fmt: skip
            b.constant(name, number)
        for name, operand in (("q", self.q), ("k", self.k), ("v", self.v), ("bias", self.bias)):
            if operand is not None:
                b.reads(name, *low.typed(operand))
            b.numbers(name, operand.layout.strides if operand is not None else (0,) * 4)
        if self.lengths is not None:
            b.reads("lengths", *low.typed(self.lengths))
            b.number("length_step", self.lengths.layout.strides[0])
        for name, size in (
            ("batch", batch), ("heads", heads), ("queries", queries),
            ("keys", self.k.layout.sizes[2]), ("shared", self._shared()), ("offset", op.offset),
            ("left", op.left or 0), ("right", op.right or 0),
        ):  # fmt: skip
            b.number(name, size)
        b.code(self._functions())
        low.end(b, self.step)
        return b.launch(blocks_for(blocks, 1), guard=guard)

    def _bias_kind(self) -> int:
        if self.bias is None:
            return NO_BIAS
        return MASK if self.low.dtype(self.bias) is DType.BOOL else NUMBERS

    def _shared(self) -> Size:
        """Return how many heads of queries share one of keys."""
        heads, keys = self.q.layout.sizes[1], self.k.layout.sizes[1]
        if heads == keys or keys == 0:
            return 1
        return evaluate(heads, {}) // evaluate(keys, {})

    def _functions(self) -> str:
        op, dtype = self.op, wide(self.dtype)
        suffix = "" if dtype is DType.FLOAT64 else "f"
        scale = op.scale
        if scale is None:
            scale = self.depth**-0.5 if self.depth else 0.0
        score = f"x * {literal(scale, dtype)}"
        if op.softcap is not None:
            cap = literal(op.softcap, dtype)
            score = f"tanh{suffix}({score} / {cap}) * {cap}"
        rows = {
            "scored(Acc x)": score,
            "lowest()": literal(float("-inf"), dtype),
            "power(Acc x)": f"exp{suffix}(x)",
        }
        return "\n".join(
            f"KN_DEVICE static Acc {head} {{ return {text}; }}" for head, text in rows.items()
        )
