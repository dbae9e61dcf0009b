"""What the planner may attach to our kernels, and in which order of axes they want tensors."""

from __future__ import annotations

from dataclasses import dataclass, field

from kn_cuda.options import CudaOptions
from kn_graph.dtype import DType
from kn_graph.op import Op
from kn_graph.ops.attention import Attention
from kn_graph.ops.conv import Conv, ConvTranspose
from kn_graph.ops.gather import Gather
from kn_graph.ops.layout import Concat, Pad
from kn_graph.ops.matmul import MatMul
from kn_graph.ops.norm import Norm, Softmax
from kn_graph.ops.pool import Pool
from kn_graph.ops.random import Random
from kn_graph.ops.reduce import Reduce, ReduceTo
from kn_graph.ops.resize import Resize
from kn_graph.ops.sample import GridSample
from kn_graph.value import Node
from kn_plan.target import Order

__all__ = ["ARCHITECTURES", "MOST_JOINED", "CudaTarget"]

ARCHITECTURES = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")
"""What kernels are compiled for and checked on."""

PROGRAMMED: tuple[type[Op], ...] = (
    Attention,
    Concat,
    Conv,
    ConvTranspose,
    Gather,
    MatMul,
    Norm,
    Pool,
    Random,
    Reduce,
    ReduceTo,
    Resize,
    Softmax,
)
"""Operations behind whose results a program runs, through `Lowering.end`."""

MOST_JOINED = 8
"""Tensors that one launch joins."""

FOLLOWING: tuple[type[Op], ...] = (Concat, GridSample, Norm, Pad, Pool, Resize)
"""Operations whose results are stored in the order of axes of what they read."""


@dataclass(frozen=True)
class CudaTarget:
    """A GPU; see `kn_plan.target`. It is described, never asked.

    Attributes:
        arch: what kernels are compiled for.
        options: how graphs run.
    """

    arch: str = "sm_90"
    options: CudaOptions = field(default_factory=CudaOptions)

    @property
    def max_instructions(self) -> int:
        """How many nodes a scalar program may have: registers hold all that is alive."""
        return 48

    @property
    def repeats(self) -> bool:
        """Whether cheap elements are computed wherever they are broadcast: a launch costs more."""
        return True

    def expands(self, op: Op) -> bool:
        """Return True: what the host computes takes two copies and a wait."""
        return True

    def accepts(self, anchor: Node, out: DType) -> bool:
        """Return whether a program may follow; it may change the type."""
        if isinstance(anchor.op, Concat):
            return len(anchor.operands) <= MOST_JOINED
        return isinstance(anchor.op, PROGRAMMED)

    def order(self, anchor: Node | None, rank: int, given: Order | None) -> Order | None:
        """Store channels last behind convolutions, and as it was behind what follows them."""
        if anchor is None or isinstance(anchor.op, FOLLOWING):
            return given
        return (0, *range(2, rank), 1) if isinstance(anchor.op, (Conv, ConvTranspose)) else None
