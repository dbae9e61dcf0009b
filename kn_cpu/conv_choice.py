"""Whether Winograd's kernel computes a convolution, by an estimate of the cycles that it takes."""

from __future__ import annotations

from kn_cpu.conv import ConvProblem
from kn_cpu.product import Registers
from kn_cpu.winograd import POINTS, SHARED, SIDE, has_winograd
from kn_graph.dim import Size
from kn_plan.derived import derive

__all__ = ["winograd_wins"]

TRANSFORM = 400
"""Cycles in which a vector of a tile is transformed, forward or backward."""

WEIGHT = 0.85
"""Cycles in which a transformed weight arrives; meanwhile others are multiplied."""

DIRECT = 1.15
"""How much longer the direct kernel takes than its multiplications."""

GAIN = 0.9
"""Part of the direct kernel's time that Winograd's may take to be worth its rounding errors."""


def winograd_wins(problem: ConvProblem, registers: Registers, *, strict: bool = False) -> Size:
    """Return 1 where Winograd's kernel is likely to be the fastest by enough, and 0 elsewhere.

    Args:
        problem: the convolution; its sizes decide, when they are known.
        registers: of the instruction set.
        strict: never choose a kernel that is less exact than a sum of products.
    """
    if strict or not has_winograd(problem):
        return 0
    _, height, width = problem.windows
    sizes = (problem.x.sizes[0], height, width, problem.channels, problem.cols)
    (wins,) = derive(_wins, 1, registers.vector, registers.panel, *sizes)
    return wins


def _wins(
    vector: int, panel: int, images: int, height: int, width: int, channels: int, cols: int
) -> tuple[int]:
    padded = -(-cols // vector) * vector
    direct = DIRECT * 9 * images * height * width * channels * padded / panel
    tiles = images * -(-height // SIDE) * -(-width // SIDE)
    shared = 4 * POINTS * tiles * channels <= SHARED
    again = 1 if shared else -(-cols // (4 * panel))  # times a tile is transformed
    vectors = -(-channels // vector) * again + -(-cols // vector)
    products = POINTS * channels * padded * max(tiles / panel, WEIGHT)
    cycles = products + TRANSFORM * tiles * vectors
    return (int(cycles < GAIN * direct),)
