"""Sampling at positions that are data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Literal

import numpy as np

from kn_graph.cast import cast_array
from kn_graph.dtype import DType, Kind
from kn_graph.errors import DTypeError, ShapeError
from kn_graph.interpolation import cubic_kernel, linear_kernel
from kn_graph.op import EvalContext, InferContext, Op
from kn_graph.ops.matmul import accumulator
from kn_graph.ops.resize import ResizeMode, interpolation_type
from kn_graph.types import TensorType

__all__ = ["GridPadding", "GridSample"]

Array = np.ndarray[Any, Any]
GridPadding = Literal["zeros", "border", "reflection"]

CUBIC_A = -0.75
FAR = 2**30
"""Positions beyond are as good as this: they fit into integers."""


@dataclass(frozen=True)
class GridSample(Op):
    """Sample an image at the positions of a grid.

    The numbers of a grid vector are for the spatial axes from the last to the first; -1 and 1 are
    the outer edges of the first and last element of an axis of size n, or with `align_corners`
    their centres: position = ((g + 1)*n - 1)/2, or (g + 1)/2*(n - 1). With
    `in_elements` it holds the positions themselves: element i lies at i. Each axis takes the
    nearest element (the even one, if between two), or 2 (linear) or 4 (cubic) elements around
    with weights by distance. An element outside of the axis is 0, or that at the border, or that
    at the reflected position.

    Positions are computed in the element type of the grid, at least float32. A NaN in the grid
    lies outside of a padding of zeros, and else at 0. A NaN in x spreads to every sample that has
    it among its elements. Narrow floats compute in float32; interpolated integers are truncated.

    Shapes: x [N, C, *spatial], grid float [N, *out, r] with r spatial axes -> [N, C, *out].

    Attributes:
        mode: nearest, linear or cubic.
        padding: what is outside of x.
        align_corners: whether -1 and 1 are centres of elements.
        in_elements: whether the grid holds positions; then without `align_corners`.
    """

    mode: ResizeMode = "linear"
    padding: GridPadding = "zeros"
    align_corners: bool = False
    in_elements: bool = False

    def infer(self, ctx: InferContext, x: TensorType, grid: TensorType) -> TensorType:
        """Take the spatial sizes of the grid."""
        if x.rank < 3 or x.rank != grid.rank:
            raise ShapeError(f"grid of {grid} for {x}: expected equal ranks of at least 3")
        ctx.require_eq(x.shape[0], grid.shape[0], "batch sizes of image and grid")
        ctx.require_eq(grid.shape[-1], x.rank - 2, "length of grid vectors and spatial axes")
        if self.in_elements and self.align_corners:
            raise ShapeError("a grid of positions has no corners to align")
        if not grid.dtype.is_float:
            raise DTypeError(f"a grid holds floats, got {grid.dtype}")
        if x.dtype is DType.STRING and self.mode != "nearest":
            raise DTypeError(f"{self.mode} samples of strings")
        return TensorType(x.dtype, (*x.shape[:2], *grid.shape[1:-1]))

    def eval(self, ctx: EvalContext, x: Array, grid: Array) -> Array:
        """Gather the neighbours of all positions, one corner of the window after another."""
        n, c, *spatial = x.shape
        shape = (n, c, *grid.shape[1:-1])
        dtype = DType.from_numpy(x.dtype)
        exact = self.mode == "nearest"
        out = np.zeros((n, c, int(np.prod(shape[2:]))), x.dtype if exact else _wide(dtype))
        if dtype is DType.STRING:
            out[:] = ""
        if not x.size or not out.size:
            return out.reshape(shape).astype(x.dtype)
        positions = grid.reshape(n, -1, len(spatial)).astype(
            accumulator(DType.from_numpy(grid.dtype))
        )
        axes = [self._axis(positions[..., -1 - d], size) for d, size in enumerate(spatial)]
        flat = x.reshape(n, c, -1)
        with np.errstate(all="ignore"):
            for index, inside, weight in _corners(axes, spatial):
                values = np.take_along_axis(flat, index[:, None], 2)
                if exact:
                    return np.where(inside[:, None], values, out).reshape(shape)
                values = values.astype(out.dtype, copy=False)
                out += np.where(inside[:, None], values, 0) * weight[:, None]
            return cast_array(out, dtype).reshape(shape)

    def _axis(self, position: Array, size: int) -> list[_Neighbour]:
        """Return the neighbours of positions [N, P] along one axis."""
        with np.errstate(all="ignore"):
            if self.align_corners:
                position = (position + 1) / 2 * (size - 1)
            elif not self.in_elements:
                position = ((position + 1) * size - 1) / 2
            if self.mode == "nearest":
                position = np.rint(position)
            position = self._padded(position, size)
        if self.mode == "nearest":
            return [self._neighbour(position.astype(np.int64), np.ones_like(position), size)]
        kernel, first, count = (
            (linear_kernel, 0, 2) if self.mode == "linear" else (cubic_kernel(CUBIC_A), -1, 4)
        )
        floor = np.floor(position)
        return [
            self._neighbour(
                floor.astype(np.int64) + step,
                kernel(position - floor - step).astype(position.dtype),
                size,
            )
            for step in range(first, first + count)
        ]

    def _neighbour(self, index: Array, weight: Array, size: int) -> _Neighbour:
        if self.padding == "reflection":
            index = self._reflected(index, size).astype(np.int64)
        inside = (index >= 0) & (index < size)
        if self.padding != "zeros":
            inside = np.ones_like(inside)
        return _Neighbour(np.clip(index, 0, size - 1), inside, weight)

    def _padded(self, position: Array, size: int) -> Array:
        """Bring positions as near to the axis as matters; its neighbours are padded one by one."""
        if self.padding != "reflection":
            nowhere = -FAR if self.padding == "zeros" else 0.0
            return np.asarray(np.clip(np.nan_to_num(position, nan=nowhere), -FAR, FAR))
        return np.where(np.isfinite(position), self._reflected(position, size), 0.0)

    def _reflected(self, position: Array, size: int) -> Array:
        """Reflect positions at the edges, or the centres of the outer elements, until inside."""
        low, high = (0.0, size - 1.0) if self.align_corners else (-0.5, size - 0.5)
        width = high - low
        if width == 0:
            return np.zeros_like(position)
        folded = np.mod(position - low, 2 * width)
        return np.where(folded <= width, folded, 2 * width - folded) + low


@dataclass(frozen=True)
class _Neighbour:
    """For each sample one element along an axis.

    Attributes:
        index: [N, P], inside of the axis.
        inside: whether it is an element, or 0.
        weight: its share.
    """

    index: Array
    inside: Array
    weight: Array


def _wide(dtype: DType) -> np.dtype[Any]:
    return interpolation_type(DType.FLOAT32 if dtype.kind is Kind.BOOL else dtype)


def _corners(
    axes: Sequence[list[_Neighbour]], spatial: Sequence[int]
) -> Iterator[tuple[Array, Array, Array]]:
    """Yield flat index, whether it is inside, and weight, for each choice of neighbours."""
    for corner in product(*axes):
        index: Any = 0
        inside: Any = True
        weight: Any = 1
        for neighbour, size in zip(corner, spatial, strict=True):
            index = index * size + neighbour.index
            inside = inside & neighbour.inside
            weight = weight * neighbour.weight
        yield index, inside, weight
