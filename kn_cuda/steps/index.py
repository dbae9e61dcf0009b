"""Elements chosen by indices that are data: see `kernels/index.cu`."""

from __future__ import annotations

from dataclasses import dataclass

from kn_cuda.axes import blocks_for, in_order, joined
from kn_cuda.builder import KernelBuilder
from kn_cuda.calls import Call
from kn_cuda.copy import RAW_DTYPES
from kn_cuda.lowering import Calls, Lowering
from kn_cuda.scalar import add_end
from kn_cuda.types import compute_type, raw_type, storage_type
from kn_graph.dim import Size, evaluate, size_prod
from kn_graph.dtype import DType
from kn_graph.ops.gather import Gather, GatherElements, GatherND
from kn_graph.ops.scatter import ScatterElements, ScatterND
from kn_graph.types import Shape
from kn_plan.layout import StridedLayout
from kn_plan.plan import Operand, Step
from kn_plan.statuses import index_status

__all__ = ["gather", "gather_elements", "gather_nd", "scatter_elements", "scatter_nd"]

NARROW = 1 << 30
"""Updates and targets that numbers of 32 bits tell apart."""

_COMBINED = {
    "none": "b",
    "add": "Acc(Wide(a) + Wide(b))",
    "mul": "Acc(Wide(a) * Wide(b))",
    "max": "a > b || a != a ? a : b",
    "min": "a < b || a != a ? a : b",
}
"""What becomes of an element a and an update b."""


@dataclass(frozen=True)
class Pointing:
    """Where indices are, and where they point.

    Attributes:
        indices: the operand.
        axes: the axes of what is indexed that they point along.
        sizes: of these.
        step: from one index of a tuple to the next.
    """

    indices: Operand
    axes: tuple[int, ...]
    sizes: Shape
    step: Size

    @classmethod
    def of(cls, op: object, shape: Shape, indices: Operand) -> Pointing:
        """Return how an operation points into a tensor.

        Args:
            op: gathers or scatters.
            shape: of the tensor.
            indices: what it reads.
        """
        if isinstance(op, (GatherND, ScatterND)):
            first = op.batch_axes if isinstance(op, GatherND) else 0
            depth = evaluate(indices.layout.sizes[-1], {})
            axes = tuple(range(first, first + depth))
            step = indices.layout.strides[-1]
        else:
            assert isinstance(op, (Gather, GatherElements, ScatterElements))
            axes, step = (op.axis,), 0
        return cls(indices, axes, tuple(shape[a] for a in axes), step)

    def add(self, low: Lowering, b: KernelBuilder, jumps: Shape) -> None:
        """Give a kernel its indices.

        Args:
            low: the lowering of the plan.
            b: the kernel.
            jumps: by how much an index moves along each axis.
        """
        b.constant("DEPTH", len(self.axes))
        b.reads("indices", *low.typed(self.indices))
        b.writes("status", index_status(self.axes, self.sizes), "int64_t")
        b.number("index_step", self.step)
        b.numbers("bounds", self.sizes)
        b.numbers("jumps", jumps)


# ---- reading ------------------------------------------------------------------------------------


def gather(low: Lowering, step: Step, op: Gather) -> Calls:
    """Gather slices."""
    x, indices = step.reads
    at, rank = x.layout.strides, indices.layout.rank
    strides = (*at[: op.axis], *(0,) * rank, *at[op.axis + 1 :])
    behind = (0,) * (len(at) - op.axis - 1)
    return _gathered(low, step, op, strides, (*(0,) * op.axis, *indices.layout.strides, *behind))


def gather_elements(low: Lowering, step: Step, op: GatherElements) -> Calls:
    """Gather an element for each index."""
    x, indices = step.reads
    strides = _without(x.layout.strides, op.axis)
    return _gathered(low, step, op, strides, indices.layout.strides)


def gather_nd(low: Lowering, step: Step, op: GatherND) -> Calls:
    """Gather slices by index tuples."""
    x, indices = step.reads
    batch, tuples = op.batch_axes, indices.layout.rank - 1
    slices = x.layout.strides[batch + evaluate(indices.layout.sizes[-1], {}) :]
    strides = (*x.layout.strides[:batch], *(0,) * (tuples - batch), *slices)
    return _gathered(low, step, op, strides, (*indices.layout.strides[:-1], *(0,) * len(slices)))


def _gathered(
    low: Lowering,
    step: Step,
    op: Gather | GatherElements | GatherND,
    strides: Shape,
    index_strides: Shape,
) -> Calls:
    """Read an element for each of the result.

    Args:
        low: the lowering of the plan.
        step: reads a tensor and indices.
        op: how these point into it.
        strides: of the tensor along the axes of the result, 0 where only indices say where.
        index_strides: of the indices, or the tuples, along these.
    """
    x, indices = step.reads
    order = in_order(step.writes[0].layout.strides)
    b = KernelBuilder("index", "gather_each", low.threads)
    pointing = Pointing.of(op, x.layout.sizes, indices)
    pointing.add(low, b, tuple(x.layout.strides[a] for a in pointing.axes))
    sizes, rows = joined(
        *(tuple(t[a] for a in order) for t in (step.shape, strides, index_strides))
    )
    count = size_prod(step.shape)
    b.number("count", count)
    b.numbers("sizes", sizes)
    b.rows("strides", rows)
    if step.program is None:
        raw = raw_type(low.dtype(x))
        b.reads("x", x, raw)
        writes = [(step.writes[0], raw)]
        add_end(b, RAW_DTYPES[low.itemsize(x)], None, writes, [], order)
    else:
        b.reads("x", *low.typed(x))
        low.end(b, step, order)
    return [b.launch(blocks_for(count, low.threads))]


def _without(strides: Shape, axis: int) -> Shape:
    return (*strides[:axis], 0, *strides[axis + 1 :])


# ---- writing ------------------------------------------------------------------------------------


def scatter_elements(low: Lowering, step: Step, op: ScatterElements) -> Calls:
    """Write an element for each index, or combine it."""
    x = step.reads[0].layout
    plain = StridedLayout.contiguous(x.sizes).strides
    return _Scatter(low, step, op, x.sizes, _without(plain, op.axis)).calls()


def scatter_nd(low: Lowering, step: Step, op: ScatterND) -> Calls:
    """Write slices by index tuples, or combine them."""
    x, indices, _ = (o.layout for o in step.reads)
    depth = evaluate(indices.sizes[-1], {})
    return _Scatter(low, step, op, x.sizes[:depth], (0,) * (indices.rank - 1)).calls()


class _Scatter:
    """The launches of a scatter.

    Attributes:
        targets: what updates go to, as a shape.
        starts: by how much the number of a target grows along the axes of the index tuples.
        linked: whether all updates of a target count, and not only the last one.
    """

    def __init__(
        self,
        low: Lowering,
        step: Step,
        op: ScatterElements | ScatterND,
        targets: Shape,
        starts: Shape,
    ) -> None:
        self.low, self.step = low, step
        self.x, indices, self.updates = step.reads
        self.dtype, self.fn = low.dtype(self.x), op.reduction
        self.targets, self.starts = targets, starts
        self.linked = op.reduction != "none"
        self.tuples = self.updates.layout.sizes[: len(starts)]
        self.count = size_prod(targets)
        self.pointing = Pointing.of(op, self.x.layout.sizes, indices)
        counts = (self.count, size_prod(self.tuples))
        few = all(isinstance(n, int) and n < NARROW for n in counts)
        self.link = DType.INT32 if few else DType.INT64
        self.head = low.temporary(self.link, (self.count,))
        self.next = low.temporary(self.link, (counts[1],)) if self.linked else None

    def calls(self) -> Calls:
        """Link the updates of each target, put them in order, and combine them."""
        calls: Calls = [self._cleared(), self._joined_lists()]
        if self.linked and self.dtype.is_float:
            calls.append(self._sorted())
        return [*calls, self._applied()]

    def _begun(self, entry: str, count: Size, *, written: bool) -> KernelBuilder:
        """Return a kernel with the lists."""
        b = KernelBuilder("index", entry, self.low.threads)
        type_ = storage_type(self.link)
        b.type("Link", type_)
        add = b.writes if written else b.reads
        add("head", self.head, type_)
        if self.next is not None and entry != "scatter_clear":
            add("next", self.next, type_)
        b.constant("LINKED", self.linked)
        b.number("count", count)
        return b

    def _launch(self, b: KernelBuilder, count: Size) -> Call:
        return b.launch(blocks_for(count, self.low.threads))

    def _cleared(self) -> Call:
        return self._launch(self._begun("scatter_clear", self.count, written=True), self.count)

    def _joined_lists(self) -> Call:
        count = size_prod(self.tuples)
        b = self._begun("scatter_link", count, written=True)
        plain = StridedLayout.contiguous(self.targets).strides
        axes = self.pointing.axes
        self.pointing.add(self.low, b, tuple(plain[a] for a in axes))
        strides = self.pointing.indices.layout.strides[: len(self.tuples)]
        sizes, rows = joined(self.tuples, self.starts, strides)
        b.numbers("sizes", sizes)
        b.rows("strides", rows)
        return self._launch(b, count)

    def _sorted(self) -> Call:
        return self._launch(self._begun("scatter_sort", self.count, written=True), self.count)

    def _applied(self) -> Call:
        count = size_prod(self.step.shape)
        b = self._begun("scatter_apply", count, written=False)
        slices = self.step.shape[len(self.targets) :]
        b.number("slice", size_prod(slices))
        layout, updates = self.x.layout, self.updates.layout
        tuples = len(self.tuples)
        for name, sizes, strides in (
            ("x", layout.sizes, layout.strides),
            ("tuple", self.tuples, updates.strides[:tuples]),
            ("slice", slices, updates.strides[tuples:]),
        ):
            kept, (steps,) = joined(sizes, strides)
            b.numbers(f"{name}_sizes", kept)
            b.numbers(f"{name}_strides", steps)
        self._add_combined(b)
        return self._launch(b, count)

    def _add_combined(self, b: KernelBuilder) -> None:
        """Add what is read and stored: by its bits, where nothing is computed."""
        low, step = self.low, self.step
        raw = not self.linked and step.program is None
        type_ = raw_type(self.dtype) if raw else storage_type(self.dtype)
        b.reads("x", self.x, type_)
        b.reads("updates", self.updates, type_)
        b.type("Acc", type_ if raw else compute_type(self.dtype))
        b.type("Wide", _wrapping(self.dtype))
        b.code(f"KN_DEVICE static Acc combined(Acc a, Acc b) {{ return {_COMBINED[self.fn]}; }}")
        if raw:
            writes = [(step.writes[0], type_)]
            add_end(b, RAW_DTYPES[self.dtype.itemsize], None, writes, [])
        else:
            low.end(b, step)


def _wrapping(dtype: DType) -> str:
    """Return the type of sums and products: integers wrap."""
    if dtype.is_int:
        return "uint64_t" if dtype.bits > 32 else "uint32_t"
    return "Acc"
