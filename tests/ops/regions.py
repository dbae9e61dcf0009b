"""Regions of images that kernels have to get right: a table for each device."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from kn_graph import DType, Graph, Value
from kn_graph.ops.roi import RoiReduction

__all__ = ["CASES", "IMAGES", "ROIS", "RegionCase"]

Array = np.ndarray[Any, Any]

IMAGES = (2, 5, 8, 10)
"""Images, channels, rows and columns."""

ROIS = np.array(
    [
        [0, 0, 7, 7],
        [1.3, 2.6, 8.9, 5.2],
        [-4, -3, 3, 2],
        [6, 5, 40, 30],
        [3, 3, 3, 3],
        [7, 6, 2, 1],
        [-9, -9, -5, -5],
        [2.5, 1.5, 4.5, 3.5],
        [0, 0, 9.6, 7.4],
        [3, 0, 3.25, 7],
    ],
    np.float32,
)
"""Inside, across the border, outside, without extent, turned around, large and narrow."""

REDUCTIONS: tuple[RoiReduction, ...] = ("mean", "max")


@dataclass(frozen=True)
class RegionCase:
    """A graph of one or both ways to pool regions.

    Attributes:
        dtype: of images and regions.
        size: bins.
        scale: of coordinates.
        last: whether the channels of the images lie side by side.
    """

    dtype: str
    size: tuple[int, int]
    scale: float
    last: bool = False

    def graph(self) -> Graph:
        """Return the graph; n is how many regions there are."""
        g = Graph("regions")
        g.symbol("n", lo=0)
        images, channels, rows, columns = IMAGES
        if self.last:
            x = g.permute(g.input("x", self.dtype, (images, rows, columns, channels)), (0, 3, 1, 2))
        else:
            x = g.input("x", self.dtype, IMAGES)
        rois, of = g.input("rois", self.dtype, ("n", 4)), g.input("images", "int64", ("n",))
        for i, v in enumerate(self._pooled(g, x, rois, of)):
            g.output(f"out{i}", v)
        return g

    def _pooled(self, g: Graph, x: Value, rois: Value, of: Value) -> Iterator[Value]:
        for reduction, samples, half in product(REDUCTIONS, (0, 2), (False, True)):
            yield g.roi_align(
                x, rois, of, self.size, reduction=reduction, samples=samples, scale=self.scale,
                half_pixel=half,
            )  # fmt: skip
        numbered = g.concat([g.cast(g.unsqueeze(of, [1]), x.dtype), rois], 1)
        yield g.max_roi_pool(x, numbered, self.size, scale=self.scale)

    def feeds(self, count: int | None = None) -> dict[str, Array]:
        """Return images, one of which has elements that are no numbers, and some regions."""
        rng = np.random.default_rng(0)
        x = rng.standard_normal(IMAGES)
        x[1, 0, 2, 3], x[1, 1, 4, 4], x[0, 2, 0, 0] = np.nan, np.inf, -np.inf
        x = x.transpose(0, 2, 3, 1) if self.last else x
        dtype = DType.parse(self.dtype).numpy
        of = rng.integers(0, IMAGES[0], len(ROIS))
        return {"x": x.astype(dtype), "rois": ROIS[:count].astype(dtype), "images": of[:count]}


CASES = [
    RegionCase("float32", (3, 2), 1.0),
    RegionCase("float32", (7, 7), 0.5, last=True),
    RegionCase("float32", (1, 1), 0.3),
    RegionCase("float16", (3, 2), 1.0),
    RegionCase("bfloat16", (2, 2), 1.0, last=True),
    RegionCase("float64", (2, 3), 0.7),
]
