"""What orders elements, and running totals."""

from __future__ import annotations

from collections.abc import Sequence

from kn_cuda.axes import blocks_for, in_order, joined
from kn_cuda.builder import KernelBuilder
from kn_cuda.calls import Launch
from kn_cuda.combine import add_combine
from kn_cuda.lowering import Calls, Lowering
from kn_cuda.rows import at_most
from kn_cuda.types import compute_type
from kn_graph.dim import Size, ceildiv, size_max, size_min, size_prod, size_sum
from kn_graph.dtype import DType
from kn_graph.ops.cumulative import Cumulative
from kn_graph.ops.sort import TopK
from kn_graph.types import Shape
from kn_plan.layout import StridedLayout
from kn_plan.plan import Operand, Step

__all__ = ["cumulative", "top_k"]

TILE = 2048
"""Elements that a block sorts in shared memory."""

MOST_PASSES = 20
"""Merges that put tiles together, where lengths are symbols: of 2^31 elements."""

SHORT = 32
"""Elements up to which a thread goes along a row by itself."""

ITEMS = 4
"""Elements of a row that a thread adds up before others are asked."""


def cumulative(low: Lowering, step: Step, op: Cumulative) -> Calls:
    """Accumulate; a total from the end goes along reversed axes."""
    x, out = step.reads[0].layout, step.writes[0].layout
    if op.reverse:
        x, out = x.flip(op.axis), out.flip(op.axis)
    source, made = Operand(step.reads[0].buffer, x), Operand(step.writes[0].buffer, out)
    length, (sizes, strides) = x.sizes[op.axis], _others((x, out), op.axis)
    short = isinstance(length, int) and length <= SHORT
    alone = short or abs(_number(x.strides[op.axis])) != 1
    b = KernelBuilder("scan", "scan_each" if alone else "scan_rows", low.threads)
    for name, number in (
        ("THREADS", low.threads), ("ITEMS", ITEMS), ("EXCLUSIVE", op.exclusive),
    ):  # fmt: skip
        b.constant(name, number)
    b.writes("y", *low.typed(made))
    b.reads("x", *low.typed(source))
    rows = size_prod(sizes)
    b.number("rows", rows)
    b.number("length", length)
    b.number("x_step", x.strides[op.axis])
    b.number("y_step", out.strides[op.axis])
    b.numbers("kept", sizes)
    b.rows("kept_strides", strides)
    add_combine(b, op.fn, low.dtype(source))
    blocks = blocks_for(rows, low.threads if alone else 1)
    return [b.launch(blocks * size_min(1, length), extent=rows * length)]


def top_k(low: Lowering, step: Step, op: TopK) -> Calls:
    """Sort, or select the first ones: in one launch where rows fit into shared memory."""
    sort = _Sort(low, step, op)
    short = at_most(sort.length, TILE)
    calls: Calls = []
    if short != 0:
        calls.append(sort.rows_launch(short))
    if short != 1:
        calls += sort.merged(1 - short)
    return calls


class _Sort:
    """The launches of a `TopK`."""

    def __init__(self, low: Lowering, step: Step, op: TopK) -> None:
        self.low, self.op = low, op
        self.x, (self.values, self.places) = step.reads[0], step.writes
        layouts = [o.layout for o in (self.x, self.values, self.places)]
        self.length, self.count = layouts[0].sizes[op.axis], op.k
        self.steps = [x.strides[op.axis] for x in layouts]
        self.kept = _others(layouts, op.axis)
        self.rows = size_prod(self.kept[0])

    def rows_launch(self, guard: Size) -> Launch:
        """Return the launch for rows that fit into a tile."""
        size = 64
        while size < TILE and not (isinstance(self.length, int) and self.length <= size):
            size *= 2
        b = self._builder("sort_rows", size)
        self._results(b)
        return b.launch(blocks_for(self.rows, 1) * size_min(1, self.count), guard=guard)

    def merged(self, guard: Size) -> Calls:
        """Return launches that sort tiles, merge them in pairs, and take what is asked for.

        Passes go from one array of places to another; how many there are decides where the last
        one ends.
        """
        low, shape = self.low, (self.rows, self.length)
        some = guard * size_min(1, self.count)
        orders = [low.temporary(DType.INT64, shape) for _ in range(2)]
        b = self._builder("sort_tiles", TILE)
        b.writes("y", orders[0], "int64_t")
        calls: Calls = [b.launch(blocks_for(self.rows * ceildiv(self.length, TILE), 1), guard=some)]
        happens: list[Size] = []
        run = TILE
        for number in range(MOST_PASSES):
            happens.append(size_min(1, size_max(0, self.length - run)))
            if happens[-1] == 0:
                break
            source, target = orders[number % 2], orders[1 - number % 2]
            calls.append(self._merge(target, source, run, some * happens[-1]))
            run *= 2
        odd = size_sum([h if i % 2 == 0 else -h for i, h in enumerate(happens)])
        for order, chosen in ((orders[0], 1 - odd), (orders[1], odd)):
            if chosen != 0:
                calls.append(self._take(order, some * chosen))
        return calls

    def _merge(self, out: Operand, order: Operand, run: int, guard: Size) -> Launch:
        b = self._builder("sort_merge", TILE)
        b.writes("y", out, "int64_t")
        b.reads("order", order, "int64_t")
        b.number("run", run)
        return b.launch(self._blocks(self.length), guard=guard, extent=2 * run)

    def _take(self, order: Operand, guard: Size) -> Launch:
        b = self._builder("sort_take", TILE)
        b.reads("order", order, "int64_t")
        self._results(b)
        return b.launch(self._blocks(self.count), guard=guard)

    def _blocks(self, count: Size) -> Size:
        return blocks_for(self.rows * count, self.low.threads)

    def _builder(self, entry: str, size: int) -> KernelBuilder:
        """Return a kernel that reads rows and orders elements."""
        low = self.low
        x, type_ = low.typed(self.x)
        threads = min(low.threads, size // 2)
        b = KernelBuilder("sort", entry, threads)
        b.constant("THREADS", threads)
        b.constant("SIZE", size)
        b.type("Acc", compute_type(low.dtype(x)))
        b.reads("x", x, type_)
        b.number("rows", self.rows)
        b.number("length", self.length)
        b.number("count", self.count)
        b.number("x_step", self.steps[0])
        b.numbers("kept", self.kept[0])
        b.rows("kept_strides", self.kept[1])
        order = "a > b || (a != a && b == b)" if self.op.largest else "a < b || (b != b && a == a)"
        b.code(f"KN_DEVICE static bool beats(Acc a, Acc b) {{ return {order}; }}")
        return b

    def _results(self, b: KernelBuilder) -> None:
        b.writes("values", *self.low.typed(self.values))
        b.writes("places", *self.low.typed(self.places))
        b.number("value_step", self.steps[1])
        b.number("place_step", self.steps[2])


def _others(layouts: Sequence[StridedLayout], axis: int) -> tuple[Shape, tuple[Shape, ...]]:
    """Return the sizes of all other axes, and the strides of each layout along them."""
    axes = [a for a in in_order(layouts[0].strides) if a != axis]
    return joined(
        tuple(layouts[0].sizes[a] for a in axes),
        *(tuple(x.strides[a] for a in axes) for x in layouts),
    )


def _number(stride: Size) -> int:
    return stride if isinstance(stride, int) else 0
