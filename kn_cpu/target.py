"""What the planner may attach to native kernels, and in which order of axes they want tensors."""

from __future__ import annotations

from kn_cpu.sample import samples_channels_last
from kn_graph.dtype import DType
from kn_graph.op import Op
from kn_graph.ops.conv import Conv, ConvTranspose
from kn_graph.ops.layout import Concat, Pad
from kn_graph.ops.matmul import MatMul
from kn_graph.ops.nonzero import NonZero, Unique
from kn_graph.ops.norm import Norm
from kn_graph.ops.pool import Pool
from kn_graph.ops.resize import Resize
from kn_graph.ops.sample import GridSample
from kn_graph.ops.signal import Dft
from kn_graph.value import Node
from kn_plan.target import Order

__all__ = ["CpuTarget"]


FLOATS = (DType.FLOAT32, DType.FLOAT16, DType.BFLOAT16)
PROGRAMMED = (Conv, ConvTranspose, MatMul, Norm)
FOLLOWING = (Pool, Concat, GridSample, Norm, Pad, Resize)


INTEGERS = {DType.UINT8, DType.INT8, DType.INT16}
"""Of products whose sums go through any program before they are stored."""


class CpuTarget:
    """Native kernels of floats and of small integers; see `kn_plan.target`."""

    max_instructions = 48
    repeats = False

    def expands(self, op: Op) -> bool:
        """Return whether kernels are faster than NumPy, whose transforms are quick and exact."""
        return not isinstance(op, (Dft, NonZero, Unique))

    def accepts(self, anchor: Node, out: DType) -> bool:
        """Return whether a program may follow in the memory of the result."""
        if not isinstance(anchor.op, PROGRAMMED):
            return False  # others may read what has no element type
        operands = {v.dtype for v in anchor.operands}
        if isinstance(anchor.op, (Conv, MatMul)) and anchor.op.out_dtype is DType.INT32:
            return operands <= INTEGERS
        return operands == {out} and out in FLOATS

    def order(self, anchor: Node | None, rank: int, given: Order | None) -> Order | None:
        """Store channels last behind convolutions, and as it was behind what follows them."""
        last = (0, *range(2, rank), 1)
        if anchor is None:
            return given
        if isinstance(anchor.op, GridSample) and samples_channels_last(anchor.operands[0].shape):
            return last
        if isinstance(anchor.op, FOLLOWING):
            return given
        return last if isinstance(anchor.op, (Conv, ConvTranspose)) else None
