"""What the builders of products share: panels, tiles and block sizes; see `native/product.h`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from kn_cpu.scalar import ScalarKernel
from kn_graph.dim import Size, ceildiv
from kn_plan.derived import derive
from kn_plan.layout import StridedLayout

__all__ = [
    "REGISTERS",
    "BlockProgram",
    "Registers",
    "balanced",
    "ceil_to",
    "common_stride",
    "even_blocks",
    "even_stride",
    "packed_size",
    "round_up",
]


@dataclass(frozen=True)
class Registers:
    """The tile of an instruction set.

    Attributes:
        vector: floats of a vector.
        rows: of a tile.
        quads: whether four products of 8 bits are one instruction.
    """

    vector: int
    rows: int
    quads: bool = False

    @property
    def panel(self) -> int:
        """Columns of a tile, and of a panel of a packed matrix."""
        return 2 * self.vector

    @property
    def depth(self) -> int:
        """At how many products a sum is split: a panel of this depth fits the first cache."""
        return 512 if self.vector == 16 else 384


REGISTERS: Mapping[str, Registers] = {
    "base": Registers(4, 6),
    "avx2": Registers(8, 6),
    "avxvnni": Registers(8, 6, quads=True),
    "avx512": Registers(16, 12, quads=True),
}
"""By the name of the instruction set."""


def balanced(total: Size, most: int, multiple: int = 1) -> Size:
    """Return the size of equal blocks of at most `most`; all but the last are multiples."""
    (size,) = derive(_balanced, 1, total, most, multiple)
    return size


def _balanced(total: int, most: int, multiple: int) -> tuple[int]:
    return (even_blocks(total, most, multiple),)


def even_blocks(total: int, most: int, multiple: int = 1) -> int:
    """Return the same for numbers."""
    blocks = max(1, -(-total // most))
    return max(1, round_up(-(-total // blocks), multiple))


def round_up(n: int, multiple: int) -> int:
    """Return the next multiple of a number."""
    return -(-n // multiple) * multiple


def ceil_to(n: Size, multiple: int) -> Size:
    """Return the next multiple."""
    return ceildiv(n, multiple) * multiple


def packed_size(depth: Size, cols: Size, registers: Registers) -> Size:
    """Return how many floats the panels of a matrix [depth, cols] have."""
    return depth * ceil_to(cols, registers.vector)


def even_stride(layout: StridedLayout, axes: Sequence[int]) -> Size:
    """Return the step from one element to the next along several axes, in row-major order.

    Raises:
        ValueError: it is not the same everywhere.
    """
    step = common_stride(layout, axes)
    if step is None:
        raise ValueError(f"elements of {layout} are not evenly spaced along axes {axes}")
    return step


def common_stride(layout: StridedLayout, axes: Sequence[int]) -> Size | None:
    """Return the same, or None where it is not the same everywhere."""
    steps = [(layout.sizes[a], layout.strides[a]) for a in axes if layout.sizes[a] != 1]
    for (_, outer), (n, inner) in pairwise(steps):
        if outer != n * inner:
            return None
    return steps[-1][1] if steps else 0


@dataclass(frozen=True)
class BlockProgram:
    """A scalar program that finished blocks of a product go through while they are in the cache.

    Its first input is the result of the product. The pointers of all operands, the first input's
    too, which is ignored, follow those of the product.

    Attributes:
        kernel: the program.
        outputs: layouts of the shape of the product's result.
        inputs: of the other inputs, likewise.
    """

    kernel: ScalarKernel
    outputs: tuple[StridedLayout, ...]
    inputs: tuple[StridedLayout, ...]

    def numbers(self, rows: Sequence[int], col: int, *, turned: bool = False) -> tuple[Size, ...]:
        """Return the program's numbers for a plane.

        Args:
            rows: the axes that are the rows of the plane.
            col: the axis that is its columns.
            turned: whether blocks are of the transposed plane.

        Raises:
            ValueError: an operand's rows are not evenly spaced.
        """

        def strides(layout: StridedLayout) -> tuple[Size, Size]:
            row = even_stride(layout, rows)
            column: Size = 0 if layout.sizes[col] == 1 else layout.strides[col]
            return (column, row) if turned else (row, column)

        places = [*map(strides, self.outputs), (0, 0), *map(strides, self.inputs)]
        return self.kernel.numbers((1, 1), *places)

    def scratch(self, others: Size) -> Size:
        """Return the scratch of a kernel that needs some itself."""
        return ceil_to(others, 64) + self.kernel.scratch
