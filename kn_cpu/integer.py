"""What products of integers share: operands, packed weights, what becomes of the sums.

The numbers are those of `native/kn_integer.h`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any

import numpy as np

from kn_cpu.axes import KernelCall, float_bits
from kn_cpu.memory import aligned
from kn_cpu.product import Registers, round_up
from kn_graph.dim import Size, ceildiv, size_max
from kn_graph.dtype import DType

__all__ = ["Dot", "Factors", "Finish", "Target", "Weights", "shared_block"]

Array = np.ndarray[Any, Any]

TYPES: Mapping[DType, int] = {DType.UINT8: 0, DType.INT8: 1, DType.INT16: 2}
"""What the kernels multiply."""


class Dot(IntEnum):
    """How groups of elements are multiplied."""

    S8 = 0
    """Four; the right operand is signed."""
    U8 = 1
    """Four; the right operand is unsigned."""
    PAIRS = 2
    """Two of 16 bits."""

    @property
    def group(self) -> int:
        """How many elements of a row are multiplied at a time."""
        return 2 if self is Dot.PAIRS else 4


@dataclass(frozen=True)
class Factors:
    """The operands of a product.

    Attributes:
        depth: how many products a sum has.
        dot: how they are computed.
        left: type of the left operand.
        right: of the right one.
    """

    depth: Size
    dot: Dot
    left: DType
    right: DType

    @classmethod
    def of(cls, registers: Registers, depth: Size, left: DType, right: DType) -> Factors:
        """Return how operands are multiplied.

        Raises:
            ValueError: they have other types than the kernels know.
        """
        for dtype in (left, right):
            if dtype not in TYPES:
                raise ValueError(f"its kernel multiplies integers of 8 and 16 bits, not {dtype}")
        short = registers.quads and DType.INT16 not in (left, right)
        dot = Dot.PAIRS if not short else Dot.S8 if right is DType.INT8 else Dot.U8
        return cls(depth, dot, left, right)

    @property
    def numbers(self) -> tuple[Size, ...]:
        """As the kernels have them."""
        return (self.depth, self.dot, TYPES[self.left], TYPES[self.right])

    @property
    def column(self) -> Size:
        """Bytes of a packed column, and of a row of the left operand."""
        return 4 * ceildiv(self.depth, self.dot.group)

    @property
    def reads_in_place(self) -> bool:
        """Whether rows whose elements lie side by side need no copy."""
        whole = isinstance(self.depth, int) and self.depth % self.dot.group == 0
        return whole and (self.dot is not Dot.PAIRS or self.left is DType.INT16)


@dataclass(frozen=True)
class Weights:
    """Constant right operands [depth, cols], packed.

    Attributes:
        factors: of each.
        panels: see `native/integer.h`.
        starts: what the sums of each column begin with.
        lows: what elements of each column were lowered by to fit into 8 bits; None for nothing.
    """

    factors: Factors
    panels: Array
    starts: Array
    lows: Array | None

    @classmethod
    def narrowed(
        cls, registers: Registers, w: Array, left: DType
    ) -> tuple[Factors, Array, Array | None]:
        """Return weights [matrices, depth, cols] in the fewest bits, and their lows."""
        depth, dtype = w.shape[1], DType.from_numpy(w.dtype)
        lows = None
        if dtype is DType.INT16 and left is not DType.INT16 and registers.quads and w.size:
            low, high = int(w.min()), int(w.max())
            if low >= -128 and high <= 127:
                w, dtype = w.astype(np.int8), DType.INT8
            else:
                least = _least(w, low, high)
                if least is not None:
                    padded = round_up(w.shape[2], registers.vector)
                    lows = np.zeros((w.shape[0], padded), np.int32)
                    lows[:, : w.shape[2]] = least
                    w, dtype = w.astype(np.uint8), DType.UINT8
                    w -= least.astype(np.uint8)[:, None]  # low bytes wrap
        return Factors.of(registers, depth, left, dtype), w, lows

    @classmethod
    def packed(
        cls, registers: Registers, factors: Factors, w: Array, lows: Array | None
    ) -> tuple[Weights, KernelCall, Array]:
        """Return room for narrowed weights, and the call that fills it.

        Its pointers are the array returned with it, the panels and the starts.
        """
        matrices, _, cols = w.shape
        padded = matrices * round_up(cols, registers.vector)
        column = factors.column
        assert isinstance(column, int)
        room = cls(factors, aligned(padded * column), aligned(4 * padded).view(np.int32), lows)
        units = matrices * -(-cols // registers.panel)
        call = KernelCall("pack_int", (cols, *factors.numbers), units)
        return room, call, np.ascontiguousarray(w)


def _least(w: Array, low: int, high: int) -> Array | None:
    """Return the least element of each column where bytes hold the distances; any below will do."""
    if high - low <= 255:
        return np.full((w.shape[0], w.shape[2]), low, np.int32)
    least, most = w.min(axis=1).astype(np.int32), w.max(axis=1).astype(np.int32)
    return least if (most - least).max() <= 255 else None


class Target(IntEnum):
    """What sums become."""

    INT32 = 0
    FLOAT32 = 1
    UINT8 = 2
    INT8 = 3


@dataclass(frozen=True)
class Finish:
    """How sums become results: see `kn_requantize` of `native/kn_integer.h`.

    Attributes:
        to: what they become.
        bias_sign: 1 or -1; 0 without a bias.
        bias_step: from one column's bias to the next: 1, or 0.
        scale_step: likewise.
        factor: the scale, where there is no operand for it.
        zero: added when all is rounded.
        low: bounds of the result.
        high: see `low`.
        in_place: whether a program follows.
    """

    to: Target = Target.INT32
    bias_sign: int = 0
    bias_step: int = 0
    scale_step: int = 0
    factor: float = 1.0
    zero: int = 0
    low: int = 0
    high: int = 0
    in_place: bool = False

    def numbers(self, row: Size, col: Size) -> tuple[Size, ...]:
        """Return what the kernels read, for a result of these strides."""
        bits = float_bits(self.factor)
        steps = (self.to, self.bias_sign, self.bias_step, self.scale_step, bits)
        return (*steps, self.zero, self.low, self.high, int(self.in_place), row, col)

    @property
    def before_program(self) -> Finish:
        """The same where a program follows."""
        return replace(self, in_place=True)


def shared_block(total: Size, most: int, multiple: int, parts: int) -> Size:
    """Return the size of blocks of at most `most` that make about `parts` of them, if they can."""
    wanted = ceildiv(ceildiv(total, parts), multiple) * multiple
    if isinstance(wanted, int):
        return max(multiple, min(most, wanted))
    return most - size_max(0, most - size_max(multiple, wanted))
