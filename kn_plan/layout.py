"""Where the elements of a tensor lie: sizes, strides and an offset, counted in elements.

View, Permute, Broadcast, Slice and Flip are arithmetic on a layout, over symbolic sizes: they cost
nothing at run time. A view of a layout whose axes do not lie behind one another is the exception:
it is a view only where some gaps are 0, else a copy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import numpy as np

from kn_graph.dim import Size, Symbol, evaluate, exact_div, size_max, size_min, size_prod
from kn_graph.dim_facts import provably_eq, provably_ge
from kn_graph.types import Shape

__all__ = ["StridedLayout", "Viewed"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Viewed:
    """Whether other sizes are a view of a layout.

    Attributes:
        layout: the view, at sizes that make every gap 0; None where only a copy is possible.
        gaps: sizes that have to be 0; empty for a view at all sizes.
    """

    layout: StridedLayout | None
    gaps: tuple[Size, ...] = ()

    @property
    def always(self) -> StridedLayout | None:
        """The layout, where it holds at all sizes."""
        return None if self.gaps else self.layout


@dataclass(frozen=True)
class StridedLayout:
    """Element [i, j, ..] lies at offset + i*strides[0] + j*strides[1] + ...

    Layouts of empty tensors may point anywhere: nobody reads them.

    Attributes:
        sizes: of each axis, at least 0.
        strides: of each axis; 0 repeats, negative ones run backwards.
        offset: where the element [0, 0, ..] lies.
    """

    sizes: Shape
    strides: Shape
    offset: Size = 0

    @classmethod
    def contiguous(cls, sizes: Sequence[Size], offset: Size = 0) -> StridedLayout:
        """Return the layout in row-major order without gaps."""
        strides: list[Size] = [1] * len(sizes)
        for axis in range(len(sizes) - 1, 0, -1):
            strides[axis - 1] = strides[axis] * sizes[axis]
        return cls(tuple(sizes), tuple(strides), offset)

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.sizes)

    @property
    def numel(self) -> Size:
        """Number of elements."""
        return size_prod(self.sizes)

    @cached_property
    def is_contiguous(self) -> bool:
        """Whether the elements lie in row-major order without gaps, at all sizes."""
        expected: Size = 1
        for n, step in zip(reversed(self.sizes), reversed(self.strides), strict=True):
            if n == 1:
                continue
            if step != expected:
                return False
            expected = expected * n
        return True

    # ---- operations of the graph ------------------------------------------------------------

    def permute(self, axes: Sequence[int]) -> StridedLayout:
        """Return axis axes[i] as axis i."""
        sizes, strides = (tuple(t[a] for a in axes) for t in (self.sizes, self.strides))
        return StridedLayout(sizes, strides, self.offset)

    def broadcast(self, sizes: Sequence[Size]) -> StridedLayout:
        """Repeat axes of size 1; where it is open which ones have it, the sizes decide."""
        strides = (
            step if have == want else step * size_min(1, have - 1)
            for have, want, step in zip(self.sizes, sizes, self.strides, strict=True)
        )
        return StridedLayout(tuple(sizes), tuple(strides), self.offset)

    def slice(self, axis: int, start: Size, length: Size, step: Size = 1) -> StridedLayout:
        """Keep `length` elements of an axis, from `start` on; they are there."""
        offset = self.offset + start * self.strides[axis]
        return self._with(axis, length, self.strides[axis] * step, offset)

    def flip(self, axis: int) -> StridedLayout:
        """Reverse an axis."""
        n, step = self.sizes[axis], self.strides[axis]
        return self._with(axis, n, -step, self.offset + (n - 1) * step)

    def _with(self, axis: int, size: Size, stride: Size, offset: Size) -> StridedLayout:
        sizes, strides = list(self.sizes), list(self.strides)
        sizes[axis], strides[axis] = size, stride
        return StridedLayout(tuple(sizes), tuple(strides), offset)

    def view(self, sizes: Sequence[Size]) -> Viewed:
        """Return the same elements in row-major order under other sizes, as many in all.

        Sizes that a graph requires to be equal may be written in two ways.
        """
        if self.is_contiguous or any(n == 0 for n in (*self.sizes, *sizes)):
            return Viewed(StridedLayout.contiguous(sizes, self.offset))
        if len(sizes) == self.rank:
            changed = sum(a != b for a, b in zip(self.sizes, sizes, strict=True))
            if changed == 1:  # as many elements in all: the two are equal
                return Viewed(StridedLayout(tuple(sizes), self.strides, self.offset))
        blocks, gaps = self._blocks()
        strides: list[Size] = []
        crossed: list[Size] = []
        left: Size = 1  # of the block `at`, with stride `step`
        at, step = -1, self.offset
        for n in sizes:
            if n == 1:
                strides.append(0)
                continue
            while (part := None if left == 1 else exact_div(left, n)) is None:
                at += 1
                if at == len(blocks):
                    return Viewed(None)
                if left != 1:
                    crossed.append(gaps[at - 1])
                size, step = blocks[at]
                left = left * size
            left = part
            strides.append(left * step)
        if left != 1 or at + 1 < len(blocks) or any(provably_eq(g, 0) is False for g in crossed):
            return Viewed(None)
        return Viewed(StridedLayout(tuple(sizes), tuple(strides), self.offset), tuple(crossed))

    def _blocks(self) -> tuple[list[tuple[Size, Size]], list[Size]]:
        """Merge axes that lie behind one another: (size, stride) of each block, gaps between."""
        blocks: list[tuple[Size, Size]] = []
        gaps: list[Size] = []
        for n, step in zip(self.sizes, self.strides, strict=True):
            if n == 1:
                continue
            gap = blocks[-1][1] - n * step if blocks else None
            if gap == 0:
                blocks[-1] = (blocks[-1][0] * n, step)
                continue
            if gap is not None:
                gaps.append(gap)
            blocks.append((n, step))
        return blocks, gaps

    # ---- numbers ----------------------------------------------------------------------------

    @property
    def span(self) -> tuple[Size, Size]:
        """The lowest and the highest place that is read, where no size is 0."""
        low = high = self.offset
        for n, step in zip(self.sizes, self.strides, strict=True):
            reach = (n - 1) * step
            if provably_ge(reach):
                high = high + reach
            elif provably_ge(0, reach):
                low = low + reach
            else:
                low, high = low + size_min(reach, 0), high + size_max(reach, 0)
        return low, high

    @property
    def numbers(self) -> tuple[Size, ...]:
        """Sizes, strides and offset, in this order."""
        return (*self.sizes, *self.strides, self.offset)

    def of(self, flat: Array, shift: int = 0) -> Array:
        """Return the elements that lie in dense memory, as a view.

        Args:
            flat: one axis of elements.
            shift: how many elements in front of them are not there.
        """
        sizes, strides, offset = (cast("Any", n) for n in (self.sizes, self.strides, self.offset))
        if 0 in sizes:
            return np.empty(sizes, flat.dtype)
        unit = flat.itemsize
        # as bytes: NumPy cannot name all types of 8 bits
        memory = flat.view(np.uint8).data
        return np.ndarray(
            sizes, flat.dtype, memory, (offset - shift) * unit, [s * unit for s in strides]
        )

    def at(self, env: Mapping[Symbol, int]) -> StridedLayout:
        """Return the layout with numbers for symbols."""
        sizes, strides = (tuple(evaluate(s, env) for s in t) for t in (self.sizes, self.strides))
        return StridedLayout(sizes, strides, evaluate(self.offset, env))

    def __str__(self) -> str:
        """Return text such as `[2, 3]:[3, 1]+0`."""
        sizes, strides = (", ".join(map(str, t)) for t in (self.sizes, self.strides))
        return f"[{sizes}]:[{strides}]+{self.offset}"
