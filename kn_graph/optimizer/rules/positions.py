"""Position arithmetic: reads at counted positions are slices, and some comparisons are decided.

Exporters read masks with flattened indices such as arange(batch)*length + arange(length), and
position tables with arange(n) + past; see `kn_graph.optimizer.positions`. Where the original would
read outside of a tensor, the slice does not fit either: that is checked as a constraint on sizes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from kn_graph.dim import Size, exact_div
from kn_graph.dim_facts import provably_ge
from kn_graph.dtype import DType
from kn_graph.op import Op
from kn_graph.ops.elementwise import Compare
from kn_graph.ops.gather import Gather, GatherElements, GatherND
from kn_graph.ops.layout import Broadcast, Concat, Permute, Slice, View
from kn_graph.optimizer.constants import filled
from kn_graph.optimizer.editor import Editor
from kn_graph.optimizer.pattern import uniform_scalar
from kn_graph.optimizer.positions import Affine, affine
from kn_graph.optimizer.ranges import value_range
from kn_graph.optimizer.rule import Rule
from kn_graph.optimizer.settings import OptimizerSettings
from kn_graph.types import Shape
from kn_graph.value import Node, Value

__all__ = ["RULES", "DecidedCompare", "GatherOfUniform", "GatherPositions", "GatherTuples"]


@dataclass(frozen=True)
class Reads:
    """How to read a block of a tensor.

    Attributes:
        x: the tensor.
        ops: views, slices and so on, applied in order.
    """

    x: Value
    ops: tuple[Op, ...]


class ReadRule(Rule[Reads]):
    """A rule that reads by slices."""

    def rewrite(self, edit: Editor, found: Reads) -> Value:
        """Apply the operations."""
        x = found.x
        for op in found.ops:
            x = edit.graph.push(op, x)
        return x


@dataclass(frozen=True)
class Line:
    """What is read along one axis of a tensor: start, start + step, ..

    Attributes:
        size: of the axis.
        start: the first element.
        step: 1 or more.
        count: how many.
        to: the axis of the indices that runs along it, or None: then there is one.
    """

    size: Size
    start: Size
    step: int
    count: Size
    to: int | None

    @property
    def fits(self) -> bool:
        """Whether it may lie inside; what is not certain becomes a constraint."""
        end = self.start + (self.count - 1) * self.step + 1
        inside = provably_ge(self.size, end) is not False
        return self.step >= 1 and bool(provably_ge(self.start, 0)) and inside


def _line(size: Size, at: Affine, shape: Shape) -> Line | None:
    """Return what indices that vary along one axis at most read of an axis of some size."""
    axes = [a for a in at.varying() if shape[a] != 1]
    start = at.offset
    if not axes:
        if isinstance(start, int) and start < 0:
            start = start + size
        return Line(size, start, 1, 1, None)
    step = at.strides[axes[0]]
    if len(axes) > 1 or not isinstance(step, int):
        return None
    return Line(size, start, step, shape[axes[0]], axes[0])


def _reading(x: Value, first: int, lines: list[Line], shape: Shape, result: Shape) -> Reads | None:
    """Return how to read lines along neighbouring axes of x, from `first` on.

    Args:
        x: the tensor.
        first: the axis of the first line.
        lines: one an axis; together they may split an axis of x.
        shape: of the indices.
        result: the shape in the end.
    """
    if not all(line.fits for line in lines):
        return None
    used = [line.to for line in lines if line.to is not None]
    if len(set(used)) != len(used):
        return None
    before, after = result[:first], result[first + len(shape) :]
    split = (*before, *(line.size for line in lines), *after)
    cuts = [Slice(first + i, n.start, n.count, n.step) for i, n in enumerate(lines)]
    ranked = sorted(range(len(lines)), key=lambda i: (lines[i].to is None, lines[i].to or 0))
    order = (*range(first), *(first + i for i in ranked))
    order = (*order, *range(len(order), len(split)))
    units = tuple(n if a in used else 1 for a, n in enumerate(shape))
    return Reads(
        x,
        (
            View(split),
            *cuts,
            Permute(order),
            View((*before, *units, *after)),
            Broadcast(result),
        ),
    )


class GatherPositions(ReadRule):
    """x[a + i*s + j] is a block of x viewed in rows of length s."""

    name = "gather_positions"
    roots: ClassVar[tuple[type[Op], ...]] = (Gather,)

    def match(self, edit: Editor, node: Node, settings: OptimizerSettings) -> Reads | None:
        """Find affine indices along at most two axes."""
        op = node.op
        assert isinstance(op, Gather)
        x, indices = edit.operands(node)
        at = affine(edit, indices)
        if at is None:
            return None
        shape, n = indices.shape, x.shape[op.axis]
        line = _line(n, at, shape)
        lines = [line] if line is not None else _rows(n, at, shape)
        if lines is None:
            return None
        return _reading(x, op.axis, lines, shape, node.results[0].shape)


def _rows(n: Size, at: Affine, shape: Shape) -> list[Line] | None:
    """Return two lines that indices with two strides, one of them 1, read in rows."""
    axes = [a for a in at.varying() if shape[a] != 1]
    if len(axes) != 2:
        return None
    row, column = axes if at.strides[axes[1]] == 1 else axes[::-1]
    width = at.strides[row]
    if at.strides[column] != 1 or not provably_ge(width, 0):
        return None
    height = exact_div(n, width)
    # with all rows read, a column beyond the width would lie outside of x in the last row
    if height is None or height != shape[row]:
        return None
    rows = Line(height, 0, 1, shape[row], row)
    return [rows, Line(width, at.offset, 1, shape[column], column)]


class GatherTuples(ReadRule):
    """x[i, j] with counted i and j is a block of x."""

    name = "gather_position_tuples"
    roots: ClassVar[tuple[type[Op], ...]] = (GatherND,)

    def match(self, edit: Editor, node: Node, settings: OptimizerSettings) -> Reads | None:
        """Find index tuples that are joined of affine ones."""
        op = node.op
        assert isinstance(op, GatherND)
        x, indices = edit.operands(node)
        last = indices.rank - 1
        joined = indices.node.op
        if op.batch_axes or not isinstance(joined, Concat) or joined.axis != last:
            return None
        lines = []
        for axis, part in enumerate(edit.operands(indices.node)):
            at = affine(edit, part) if part.shape[last] == 1 else None
            line = None if at is None else _line(x.shape[axis], at, part.shape)
            if line is None:
                return None
            lines.append(line)
        return _reading(x, 0, lines, indices.shape[:-1], node.results[0].shape)


# ---- what does not depend on the position ---------------------------------------------------


@dataclass(frozen=True)
class Filled:
    """A tensor of equal elements."""

    shape: Shape
    number: Any
    dtype: DType


class FilledRule(Rule[Filled]):
    """A rule after which all elements are known and equal."""

    def rewrite(self, edit: Editor, found: Filled) -> Value:
        """Broadcast a scalar."""
        return filled(edit, found.shape, found.number, found.dtype)


class GatherOfUniform(FilledRule):
    """Of equal elements, it does not matter which are read."""

    name = "gather_of_uniform"
    roots: ClassVar[tuple[type[Op], ...]] = (Gather, GatherElements)

    def match(self, edit: Editor, node: Node, settings: OptimizerSettings) -> Filled | None:
        """Find a constant with equal elements, and indices that certainly exist."""
        op: Any = node.op
        x, indices = edit.operands(node)
        n = x.shape[op.axis]
        scalar = uniform_scalar(edit, x) if isinstance(n, int) else None
        if scalar is None:
            return None
        known = value_range(edit, indices)
        if known.low < -n or known.high >= n:
            return None
        return Filled(node.results[0].shape, scalar, x.dtype)


HOLDS = {"ge": (1, 0), "gt": (1, 1), "le": (-1, 0), "lt": (-1, 1)}
"""Sign and bound: a compared with b holds where sign*(a - b) >= bound."""


class DecidedCompare(FilledRule):
    """arange(n) >= 0 is true everywhere."""

    name = "decided_compare"
    roots: ClassVar[tuple[type[Op], ...]] = (Compare,)

    def match(self, edit: Editor, node: Node, settings: OptimizerSettings) -> Filled | None:
        """Compare the bounds of two affine tensors."""
        op: Any = node.op
        rule = HOLDS.get(op.fn)
        if rule is None:
            return None
        x, y = edit.operands(node)
        a = affine(edit, x)
        b = None if a is None else affine(edit, y)
        if a is None or b is None:
            return None
        sign, bound = rule
        difference = a.combined(b, -1).scaled(sign)
        low = difference.lowest(x.shape)
        if low is not None and provably_ge(low, bound):
            return Filled(x.shape, True, DType.BOOL)
        opposite = difference.scaled(-1).lowest(x.shape)
        if opposite is not None and provably_ge(opposite, 1 - bound):
            return Filled(x.shape, False, DType.BOOL)
        return None


RULES = (GatherPositions(), GatherTuples(), GatherOfUniform(), DecidedCompare())
