"""What cuDNN is asked for: a convolution with what is added behind it, as one graph."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from kn_cuda.options import Math
from kn_graph.dtype import DType

__all__ = ["Activation", "ConvGraph"]

Activation = Literal["none", "relu", "silu", "gelu", "sigmoid", "tanh"]


@dataclass(frozen=True)
class ConvGraph:
    """y = activation(conv(x, w) + bias + residual), computed in float32 and rounded once.

    All tensors lie without gaps in one order of axes, weights too. Pointers of a call are x, w, y,
    the bias [M] and the residual, which lies as y does; what is not there is a pointer to nothing.
    The numbers are N, C, M, then one row each for the spatial axes: sizes of x, of w and of y,
    and the pads before and after.

    Attributes:
        dtype: of x, w, bias and residual.
        out: of y.
        strides: step between windows, one number a spatial axis.
        dilations: step between elements of a window.
        groups: parts that the channels are cut into.
        channels_last: whether the channels lie side by side, and not the spatial axes.
        transposed: whether x and y change places, as in a gradient; w is [C, M/groups, *kernel].
        bias: whether there is one.
        residual: whether there is one.
        activation: what is applied at the end.
        math: how float32 is multiplied: strictly, or rounded to TF32 first; nothing narrower.
    """

    dtype: DType
    out: DType
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    groups: int = 1
    channels_last: bool = True
    transposed: bool = False
    bias: bool = False
    residual: bool = False
    activation: Activation = "none"
    math: Math = "fp32"

    @property
    def title(self) -> str:
        """What counters call it."""
        return "conv_graph"

    @property
    def rank(self) -> int:
        """Number of spatial axes."""
        return len(self.strides)

    @property
    def is_plain(self) -> bool:
        """Whether nothing is behind the convolution."""
        return self == self.plain

    @property
    def plain(self) -> ConvGraph:
        """The convolution alone."""
        return replace(self, bias=False, residual=False, activation="none")

    def rows(self, numbers: list[int]) -> list[list[int]]:
        """Return the numbers of a call, row by row: sizes of x, w and y, pads before and after."""
        rank = self.rank
        return [numbers[3 + i * rank : 3 + (i + 1) * rank] for i in range(5)]
