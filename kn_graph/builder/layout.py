"""Building methods that reshape, reorder, cut, join and repeat."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kn_graph.builder.base import Builder, normalize_axes, normalize_axis
from kn_graph.dim import Dim, Size, exact_div, floordiv, size_max, size_min, size_prod
from kn_graph.errors import ShapeError
from kn_graph.ops.layout import Broadcast, Concat, Flip, Pad, PadMode, Permute, Slice, View
from kn_graph.sizes import as_size, as_sizes, broadcast_shapes
from kn_graph.types import format_shape

if TYPE_CHECKING:
    from kn_graph.value import Value

__all__ = ["LayoutBuilder"]


class LayoutBuilder(Builder):
    """See the module."""

    def view(self, x: Value, shape: Sequence[Size]) -> Value:
        """Give a tensor another shape with as many elements, in row-major order."""
        return self.push(View(as_sizes(shape)), x)

    def reshape(self, x: Value, shape: Sequence[Size]) -> Value:
        """Like `view`, and one size may be -1: it is computed from the others.

        Raises:
            ShapeError: the numbers of elements differ.
        """
        shape = as_sizes(shape)
        if -1 not in shape:
            return self.view(x, shape)
        if shape.count(-1) > 1:
            raise ShapeError(f"only one size can be inferred, got {format_shape(shape)}")
        at = shape.index(-1)
        others = size_prod(shape[:at] + shape[at + 1 :])
        total = size_prod(x.shape)
        if others == 0:
            raise ShapeError(f"cannot infer the size -1 of {format_shape(shape)}: it may be any")
        inferred = exact_div(total, others)
        if inferred is None:
            inferred = floordiv(total, others)
        return self.view(x, (*shape[:at], inferred, *shape[at + 1 :]))

    def flatten(self, x: Value, axis: int = 1) -> Value:
        """Merge the axes before `axis` into one, and those from there on into another."""
        shape = x.shape
        return self.view(x, (size_prod(shape[:axis]), size_prod(shape[axis:])))

    def squeeze(self, x: Value, axes: Sequence[int]) -> Value:
        """Drop axes, whose sizes must be 1."""
        drop = normalize_axes(axes, x.rank)
        for axis in drop:
            self.require_eq(x.shape[axis], 1, f"squeeze of axis {axis}")
        return self.view(x, [s for a, s in enumerate(x.shape) if a not in drop])

    def unsqueeze(self, x: Value, axes: Sequence[int]) -> Value:
        """Insert axes of size 1; `axes` count in the result."""
        rank = x.rank + len(axes)
        new = normalize_axes(axes, rank)
        old = iter(x.shape)
        return self.view(x, [1 if a in new else next(old) for a in range(rank)])

    def broadcast(self, x: Value, shape: Sequence[Size]) -> Value:
        """Repeat a tensor to a shape: axes align at the right, sizes of 1 repeat (NumPy's rule)."""
        shape = as_sizes(shape)
        if x.rank > len(shape):
            raise ShapeError(f"cannot broadcast {format_shape(x.shape)} to {format_shape(shape)}")
        if x.rank < len(shape):
            x = self.view(x, (1,) * (len(shape) - x.rank) + x.shape)
        # sizes that are written differently but assumed equal are renamed, not repeated
        pairs = zip(x.shape, shape, strict=True)
        named = tuple([s if self._same(a, s) else a for a, s in pairs])
        if named != x.shape:
            x = self.view(x, named)
        return self.push(Broadcast(shape), x)

    def _same(self, a: Size, b: Size) -> bool:
        both = isinstance(a, Dim) and isinstance(b, Dim) and a != b
        return both and bool(self.decide_equal(a, b, "broadcast"))

    def broadcast_together(self, *xs: Value) -> tuple[Value, ...]:
        """Repeat tensors to their common shape."""
        shapes = [x.shape for x in xs]
        if all(s == shapes[0] for s in shapes):
            return xs
        what = " and ".join(x.name for x in xs)
        shape = broadcast_shapes(shapes, what, lambda a, b: self.decide_equal(a, b, what))
        return tuple(self.broadcast(x, shape) for x in xs)

    def expand(self, x: Value, shape: Sequence[Size]) -> Value:
        """Broadcast to the common shape of the tensor's and `shape` (ONNX Expand)."""
        what = f"expand of {x.name}"
        shapes = [x.shape, tuple(shape)]
        common = broadcast_shapes(shapes, what, lambda a, b: self.decide_equal(a, b, what))
        return self.broadcast(x, common)

    def permute(self, x: Value, axes: Sequence[int]) -> Value:
        """Reorder axes: axis i of the result is axis `axes[i]` of x."""
        return self.push(Permute(normalize_axes(axes, x.rank)), x)

    def transpose(self, x: Value) -> Value:
        """Swap the last two axes."""
        n = x.rank
        return self.permute(x, [*range(n - 2), n - 1, n - 2])

    def slice(self, x: Value, axis: int, start: Size, length: Size, step: int = 1) -> Value:
        """Take `length` elements of an axis from `start` on, every `step`-th (step >= 1)."""
        op = Slice(normalize_axis(axis, x.rank), as_size(start), as_size(length), step)
        return self.push(op, x)

    def slice_bounds(
        self, x: Value, axis: int, start: Size | None, stop: Size | None, step: int = 1
    ) -> Value:
        """Slice as Python does: bounds count from the end where negative, are cut to the axis."""
        axis = normalize_axis(axis, x.rank)
        if step == 0:
            raise ShapeError("the slice step is 0")
        n = x.shape[axis]
        signed = [None if b is None else self._from_start(b, n) for b in (start, stop)]
        first, length = slice_extent(n, signed[0], signed[1], step)
        if step > 0:
            return self.slice(x, axis, first, length, step)
        # elements first, first-|step|, ... are those of the flipped axis from n-1-first on
        flipped = self.flip(x, axis)
        return self.slice(flipped, axis, n - 1 - first if length != 0 else 0, length, -step)

    def _from_start(self, bound: Size, n: Size) -> Size:
        """Return a bound counted from the start; only numbers far outside stay negative."""
        if isinstance(bound, int) and not -(2**31) < bound < 2**31 - 1:
            return bound
        counts_up = self.decide_ge(bound, 0, "a slice bound counts from the start")
        if counts_up is None:  # only known when it runs: add n where the bound is negative
            return bound + n * size_min(1, size_max(0, -bound))
        return bound if counts_up else bound + n

    def flip(self, x: Value, axis: int) -> Value:
        """Reverse an axis."""
        return self.push(Flip(normalize_axis(axis, x.rank)), x)

    def concat(self, xs: Sequence[Value], axis: int) -> Value:
        """Join tensors along an axis."""
        if not xs:
            raise ShapeError("nothing to concatenate")
        return self.push(Concat(normalize_axis(axis, xs[0].rank)), *xs)

    def stack(self, xs: Sequence[Value], axis: int) -> Value:
        """Join tensors along a new axis."""
        return self.concat([self.unsqueeze(x, [axis]) for x in xs], axis)

    def split(self, x: Value, axis: int, lengths: Sequence[Size]) -> list[Value]:
        """Cut an axis into consecutive parts; the lengths must add up to its size."""
        axis = normalize_axis(axis, x.rank)
        parts, start = [], 0
        for length in lengths:
            parts.append(self.slice(x, axis, start, length))
            start = start + length
        self.require_eq(start, x.shape[axis], f"split of axis {axis} into {len(parts)} parts")
        return parts

    def pad(
        self,
        x: Value,
        pads: Sequence[tuple[Size, Size]],
        mode: PadMode = "constant",
        value: Value | None = None,
    ) -> Value:
        """Add elements around a tensor; negative pads cut elements off first (ONNX Pad).

        Args:
            x: any tensor.
            pads: (before, after) for each axis.
            mode: constant, edge, reflect or wrap.
            value: rank 0, for mode constant; 0 by default.
        """
        if len(pads) != x.rank:
            raise ShapeError(f"{len(pads)} pads for {x.rank} axes")
        for axis, (before, after) in enumerate(pads):
            cut_before, cut_after = size_max(0, -before), size_max(0, -after)
            if cut_before != 0 or cut_after != 0:
                n = x.shape[axis]
                x = self.slice(x, axis, cut_before, n - cut_before - cut_after)
        grow = tuple((size_max(0, b), size_max(0, a)) for b, a in pads)
        if mode != "constant":
            return self.push(Pad(grow, mode), x)
        return self.push(Pad(grow), x, self.scalar(0, x.dtype) if value is None else value)

    def repeat(self, x: Value, axis: int, count: Size) -> Value:
        """Repeat the whole of an axis `count` times: a b a b (NumPy tile)."""
        return self._repeat(x, normalize_axis(axis, x.rank), count, interleave=False)

    def repeat_interleave(self, x: Value, axis: int, count: Size) -> Value:
        """Repeat each element of an axis `count` times: a a b b (NumPy repeat)."""
        return self._repeat(x, normalize_axis(axis, x.rank), count, interleave=True)

    def _repeat(self, x: Value, axis: int, count: Size, *, interleave: bool) -> Value:
        count = as_size(count)
        if count == 1:
            return x
        shape = list(x.shape)
        merged = [*shape[:axis], shape[axis] * count, *shape[axis + 1 :]]
        if shape[axis] == 1:
            return self.broadcast(x, merged)
        at = axis + 1 if interleave else axis
        x = self.unsqueeze(x, [at])
        wide = list(x.shape)
        wide[at] = count
        return self.view(self.broadcast(x, wide), merged)

    def index(self, x: Value, index: Any) -> Value:
        """Index as NumPy does, with integers, slices, None and an ellipsis."""
        items = list(index) if isinstance(index, tuple) else [index]
        used = sum(i is not None and i is not Ellipsis for i in items)
        dots = [at for at, i in enumerate(items) if i is Ellipsis] or [len(items)]
        if used > x.rank or len(dots) > 1:
            raise ShapeError(f"index {index!r} of a tensor of rank {x.rank}")
        items[dots[0] : dots[0] + 1] = [slice(None)] * (x.rank - used)
        axis = 0
        for item in items:
            if item is None:
                x = self.unsqueeze(x, [axis])
            elif isinstance(item, slice):
                start, stop, step = (
                    None if b is None else as_size(b) for b in (item.start, item.stop, item.step)
                )
                if isinstance(step, Dim):
                    raise ShapeError(f"a slice step is a number, got {step}")
                x = self.slice_bounds(x, axis, start, stop, 1 if step is None else step)
            else:
                n, item = x.shape[axis], as_size(item)
                start = item + n if isinstance(item, int) and item < 0 else item
                x = self.squeeze(self.slice(x, axis, start, 1), [axis])
                continue
            axis += 1
        return x


def slice_extent(n: Size, start: Size | None, stop: Size | None, step: int) -> tuple[Size, Size]:
    """Return the first element and the number of elements of a slice of an axis of size n.

    Bounds count from the start; they are cut to the axis.
    """
    down = step < 0
    lowest, highest = (-1, n - 1) if down else (0, n)
    first = (highest if down else lowest) if start is None else _clamp(start, n, lowest, highest)
    end = (lowest if down else highest) if stop is None else _clamp(stop, n, lowest, highest)
    span = first - end if down else end - first
    length = span if abs(step) == 1 else floordiv(span + (abs(step) - 1), abs(step))
    return first, size_max(0, length)


def _clamp(bound: Size, n: Size, lowest: Size, highest: Size) -> Size:
    """Cut a bound to [lowest, highest]."""
    if isinstance(bound, int) and isinstance(n, Dim) and bound >= 2**31 - 1:
        return highest  # INT32_MAX and more mean "to the end"
    if isinstance(bound, int) and isinstance(n, Dim) and bound <= -(2**31):
        return lowest
    return size_min(size_max(bound, lowest), highest)
