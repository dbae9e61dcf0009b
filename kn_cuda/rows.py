"""Rows of elements that threads compute together: one by itself, a warp, or a block.

See `kernels/prelude.h`: what is here says where the elements of a row lie in every operand of a
step, how many threads share it and what they hold, how elements are read and results are stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kn_cuda.axes import blocks_for, in_order, joined
from kn_cuda.builder import KernelBuilder
from kn_cuda.elements import Elements, Front, Place, apply_lines, read_places, vector_function
from kn_cuda.lowering import Lowering
from kn_cuda.types import compute_type, storage_type, wide
from kn_graph.dim import Size, size_max, size_min
from kn_graph.types import Shape
from kn_plan.calls import UnsupportedError
from kn_plan.layout import StridedLayout
from kn_plan.plan import Step

__all__ = ["Split", "StepRows", "at_most"]

FEW = 16
"""Elements up to which a thread computes a row by itself."""

WARP_ROW = 512
"""Elements up to which a warp does, and not a block."""

MOST_HELD = 16
"""Elements of 4 bytes that a thread holds in registers."""


@dataclass(frozen=True)
class Split:
    """How threads share rows.

    Attributes:
        group: threads of a row.
        vector: elements that a thread handles at once.
        keep: vectors that it holds.
        limit: the longest row that it can hold; None for any.
    """

    group: int
    vector: int
    keep: int
    limit: int | None


class StepRows:
    """The rows of a step: one operand is read, results have its shape.

    Attributes:
        low: whose step it is.
        step: see above.
        elements: where they lie.
    """

    def __init__(
        self, low: Lowering, step: Step, axes: Sequence[int], front: Front | None = None
    ) -> None:
        """Find where rows lie.

        Args:
            low: whose step it is.
            step: reads one operand.
            axes: along which its rows go.
            front: makes the operand.
        """
        self.low, self.step = low, step
        (x,) = step.reads
        places = read_places(low, x, front)
        places += [Place(f"y{i}", low.typed(o), written=True) for i, o in enumerate(step.writes)]
        places += [Place(f"e{i}", low.typed(o)) for i, o in enumerate(step.extras)]
        order, layouts = in_order(x.layout.strides), [p.typed[0].layout for p in places]
        kept = [a for a in order if a not in axes]
        gone = [a for a in order if a in axes]
        self.elements = Elements(
            tuple(places), joined(*_chosen(layouts, kept)), joined(*_chosen(layouts, gone)), front
        )

    @property
    def itemsize(self) -> int:
        """Bytes of an element in registers."""
        return wide(self.low.dtype(self.step.reads[0])).itemsize

    def splits(self) -> list[Split]:
        """Return how threads may share rows: short ones first, where lengths are symbols.

        Raises:
            UnsupportedError: a program in front would store more than once.
        """
        found, front = self._splits(), self.elements.front
        if front is not None and front.stores and any(not s.keep for s in found):
            raise UnsupportedError("what is stored in front is made once")
        return found

    def _splits(self) -> list[Split]:
        threads, most = self.low.threads, MOST_HELD * 4 // self.itemsize
        length, vector = self.elements.length, min(self.elements.vector(self.low), most)
        if not self.elements.along:
            return [Split(1, 1, length if isinstance(length, int) and length <= FEW else 0, None)]
        block = Split(threads, vector, 0, None)
        if not isinstance(length, int):
            return [Split(32, vector, 8 // vector or 1, 32 * max(8, vector)), block]
        if length <= FEW:
            return [Split(1, 1, length, None)]
        group = 32 if length <= WARP_ROW else threads
        keep = -(-length // (group * vector))
        return [Split(group, vector, keep, None)] if keep * vector <= most else [block]

    def blocks(self, split: Split) -> Size:
        """Return how many blocks compute all rows."""
        per_block = self.low.threads // split.group
        return blocks_for(self.elements.rows, per_block) * size_min(1, self.elements.length)

    def add(self, b: KernelBuilder, split: Split) -> None:
        """Give a kernel its operands, the numbers of its rows, `begin` and `end`."""
        b.type("Acc", compute_type(self.low.dtype(self.step.reads[0])))
        for name, number in (
            ("THREADS", self.low.threads), ("GROUP", split.group), ("VECTOR", split.vector),
            ("KEEP", split.keep),
        ):  # fmt: skip
            b.constant(name, number)
        self.elements.add(b)
        b.code(vector_function("end", "const Acc (&x)[N]", self._end(b)))

    def _end(self, b: KernelBuilder) -> list[str]:
        """Return what applies the program behind results, and stores."""
        assert self.step.node is not None
        program, dtype = self.step.program, self.step.node.results[0].dtype
        names = [f"e{i}" for i in range(len(self.step.extras))]
        outputs = [f"y{i}" for i in range(len(self.step.writes))]
        if program is None:
            return self.elements.elementwise([], outputs, ["put(y0.lane[i], x[i]);"])
        b.program(program)
        narrow = wide(dtype) is not dtype
        rounded = f"Rounded<{storage_type(dtype)}>::of(x[i])" if narrow else "x[i]"
        given = [rounded, *map(self.elements.loaded, names)]
        lines = apply_lines("program", program, given, outputs, outputs)
        return self.elements.elementwise(names, outputs, lines)


def at_most(size: Size, limit: int) -> Size:
    """Return 1 where a size is at most a limit, and 0 where it is larger."""
    return size_min(1, size_max(0, limit + 1 - size))


def _chosen(layouts: Sequence[StridedLayout], axes: Sequence[int]) -> tuple[Shape, ...]:
    """Return the sizes of some axes, and the strides of each operand along them."""
    sizes = tuple(layouts[0].sizes[a] for a in axes)
    return (sizes, *(tuple(x.strides[a] for a in axes) for x in layouts))
