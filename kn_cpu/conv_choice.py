"""Which kernel computes a convolution, by an estimate of the cycles that each takes."""

from __future__ import annotations

from enum import Enum

from kn_cpu.conv import ConvProblem
from kn_cpu.depthwise import is_depthwise
from kn_cpu.product import Registers
from kn_cpu.winograd import POINTS, SIDE, has_winograd
from kn_graph.dim import Size

__all__ = ["Algorithm", "choose_algorithm"]


class Algorithm(Enum):
    """A kernel for convolutions."""

    DIRECT = "direct"
    """`conv_call`: any convolution."""
    DEPTHWISE = "depthwise"
    """`depthwise_call`: one channel a group."""
    WINOGRAD = "winograd"
    """`winograd_call`: 3 x 3, stride 1, less exact."""


ASSUMED_SIDE = 56
"""Pixels along an axis of unknown size."""

TRANSFORM = 450
"""Cycles in which a vector of a tile is transformed, forward or backward."""

WEIGHT = 0.4
"""Cycles in which a transformed weight arrives that no nearer cache holds."""

GAIN = 0.9
"""Part of the direct kernel's time that Winograd's may take to be worth its rounding errors."""


def choose_algorithm(
    problem: ConvProblem, registers: Registers, *, strict: bool = False
) -> Algorithm:
    """Return the kernel that is likely to be the fastest.

    Args:
        problem: the convolution.
        registers: of the instruction set.
        strict: never choose one that is less exact than a sum of products.
    """
    if is_depthwise(problem):
        return Algorithm.DEPTHWISE
    if strict or not has_winograd(problem):
        return Algorithm.DIRECT
    faster = _winograd_cycles(problem, registers) < GAIN * _direct_cycles(problem, registers)
    return Algorithm.WINOGRAD if faster else Algorithm.DIRECT


def _known(size: Size, assumed: int) -> int:
    return size if isinstance(size, int) else assumed


def _products(p: ConvProblem, registers: Registers) -> float:
    """Return the cycles of one product of all channels with all output channels."""
    channels, cols = _known(p.channels, 64), _known(p.cols, 64)
    padded = -(-cols // registers.vector) * registers.vector
    return channels * padded / registers.panel


def _direct_cycles(p: ConvProblem, registers: Registers) -> float:
    images, (_, height, width) = _known(p.x.sizes[0], 1), p.windows
    pixels = images * _known(height, ASSUMED_SIDE) * _known(width, ASSUMED_SIDE)
    return 9 * pixels * _products(p, registers)


def _winograd_cycles(p: ConvProblem, registers: Registers) -> float:
    _, height, width = p.windows
    sides = (-(-_known(n, ASSUMED_SIDE) // SIDE) for n in (height, width))
    tiles = _known(p.x.sizes[0], 1)
    for n in sides:
        tiles *= n
    channels, cols = _known(p.channels, 64), _known(p.cols, 64)
    again = -(-cols // (4 * registers.panel))  # each block of columns transforms its tiles itself
    vectors = -(-channels // registers.vector) * again + -(-cols // registers.vector)
    weights = POINTS * channels * cols * WEIGHT
    return POINTS * tiles * _products(p, registers) + TRANSFORM * tiles * vectors + weights
