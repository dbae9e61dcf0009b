"""Building methods for images: resizing, sampling, regions, blocks."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import cache

import numpy as np

from kn_graph.builder.base import Builder, normalize_axes
from kn_graph.dim import Size, floordiv, size_max, size_prod
from kn_graph.dtype import DType
from kn_graph.errors import ShapeError
from kn_graph.interpolation import Coordinates, NearestRule, simplest_fraction
from kn_graph.ops.fold import Col2Im
from kn_graph.ops.resize import Resize, ResizeMode, Scales
from kn_graph.ops.roi import MaxRoiPool, RoiAlign, RoiReduction
from kn_graph.ops.sample import GridPadding, GridSample
from kn_graph.value import Value

__all__ = ["ImageBuilder"]

LARGEST_AXIS = 1 << 16
"""Up to this size the formula for scaled symbolic sizes is compared with float32 arithmetic."""


class ImageBuilder(Builder):
    """See the module."""

    def resize(
        self,
        x: Value,
        axes: Sequence[int],
        sizes: Sequence[Size] | None = None,
        scales: Sequence[float | Fraction] | Value | None = None,
        *,
        mode: ResizeMode = "nearest",
        coordinates: Coordinates = "half_pixel",
        nearest: NearestRule = "round_prefer_floor",
        cubic_a: float = -0.75,
        exclude_outside: bool = False,
        antialias: bool = False,
        roi: Value | None = None,
        extrapolation: float = 0.0,
    ) -> Value:
        """Sample axes at other positions; see `Resize`.

        Args:
            x: any tensor.
            axes: the axes that change.
            sizes: what they become; by default size times scale, rounded down.
            scales: result size over operand size of each axis, or a float tensor of them; by
                default just that.
            mode: nearest, linear or cubic.
            coordinates: the rule for positions.
            nearest: which element is nearest, in mode nearest.
            cubic_a: slope of the cubic kernel.
            exclude_outside: give elements beyond the border no weight.
            antialias: widen the kernel where an axis shrinks.
            roi: for tf_crop_and_resize: float [2*k], starts and ends of the axes, from 0 to 1.
            extrapolation: for tf_crop_and_resize: what is outside of the operand.
        """
        over = normalize_axes(axes, x.rank)
        operands = [x]
        given: Scales = "sizes"
        if isinstance(scales, Value):
            given = "operand"
            operands.append(scales)
        elif scales is not None:
            given = tuple(s if isinstance(s, Fraction) else simplest_fraction(s) for s in scales)
        if sizes is None:
            if scales is None:
                raise ShapeError("resize needs sizes or scales")
            sizes = self.scaled_sizes([x.shape[a] for a in over], scales)
        if roi is not None:
            operands.append(roi)
        op = Resize(
            over,
            tuple(sizes),
            given,
            mode,
            coordinates,
            nearest,
            cubic_a,
            exclude_outside,
            antialias,
            extrapolation,
        )
        return self.push(op, *operands)

    def scaled_sizes(
        self, sizes: Sequence[Size], scales: Sequence[float | Fraction] | Value
    ) -> tuple[Size, ...]:
        """Return sizes times scales, rounded down, as float32 arithmetic gives them.

        Sizes that no formula gives are computed when the graph runs.

        Args:
            sizes: of some axes.
            scales: a number for each, or a float tensor [k].
        """
        if isinstance(scales, Value):
            return self._sizes_at_run_time(sizes, scales)
        out: list[Size] = []
        for n, scale in zip(sizes, scales, strict=True):
            wide = np.float32(float(scale))
            fraction = simplest_fraction(float(wide))
            if isinstance(n, int):
                out.append(int(np.float32(n) * wide))
            elif _is_exact(fraction):
                out.append(floordiv(n * fraction.numerator, fraction.denominator))
            else:
                out += self._sizes_at_run_time([n], self.constant(np.array([wide])))
        return tuple(out)

    def _sizes_at_run_time(self, sizes: Sequence[Size], scales: Value) -> tuple[Size, ...]:
        content = np.empty(len(sizes), object)
        content[:] = sizes
        wide = self.cast(self.size_tensor(content), DType.FLOAT32)
        product = self.binary("mul", wide, self.cast(scales, DType.FLOAT32))
        whole = self.cast(self.unary("floor", product), DType.INT64)
        return self.read_sizes(whole, name="resized")

    # ---- sampling ---------------------------------------------------------------------------

    def grid_sample(
        self,
        x: Value,
        grid: Value,
        *,
        mode: ResizeMode = "linear",
        padding: GridPadding = "zeros",
        align_corners: bool = False,
        in_elements: bool = False,
    ) -> Value:
        """Sample images [N, C, *spatial] at positions [N, *out, r]; see `GridSample`."""
        return self.push(GridSample(mode, padding, align_corners, in_elements), x, grid)

    def affine_grid(
        self, theta: Value, sizes: Sequence[Size], *, align_corners: bool = False
    ) -> Value:
        """Return the positions [N, *sizes, r] that affine maps give the elements of an image.

        Args:
            theta: [N, r, r + 1].
            sizes: r spatial sizes of the image.
            align_corners: whether -1 and 1 are centres of elements, or outer edges.
        """
        rank = len(sizes)
        if theta.rank != 3:
            raise ShapeError(f"affine maps are [N, {rank}, {rank + 1}], got {theta.type}")
        for axis, size in ((1, rank), (2, rank + 1)):
            self.require_eq(theta.shape[axis], size, f"affine maps of {rank} axes at axis {axis}")
        columns = [
            self.broadcast(
                self.view(
                    self._centred(n, theta.dtype, align_corners), (n, *(1,) * (rank - 1 - axis))
                ),
                sizes,
            )
            for axis, n in enumerate(sizes)
        ]
        columns = [*columns[::-1], self.broadcast(self.scalar(1, theta.dtype), sizes)]
        points = self.concat([self.unsqueeze(c, [rank]) for c in columns], rank)
        points = self.view(points, (1, size_prod(sizes), rank + 1))
        grid = self.matmul(points, self.permute(theta, (0, 2, 1)))
        return self.view(grid, (theta.shape[0], *sizes, rank))

    def _centred(self, n: Size, dtype: DType, align_corners: bool) -> Value:
        """Return n positions from -1 to 1: (2i - (n - 1)) over n - 1, or over n."""
        double = self.binary("mul", self.iota(n), self.scalar(2, DType.INT64))
        above = self.binary("sub", double, self.size_tensor(np.array(n - 1, object)))
        below = size_max(n - 1, 1) if align_corners else n
        below_value = self.size_tensor(np.array(below, object))
        return self.binary("div", self.cast(above, dtype), self.cast(below_value, dtype))

    def roi_align(
        self,
        x: Value,
        rois: Value,
        images: Value,
        size: tuple[int, int],
        *,
        reduction: RoiReduction = "mean",
        samples: int = 0,
        scale: float = 1.0,
        half_pixel: bool = True,
    ) -> Value:
        """Reduce samples of regions of images to a fixed size; see `RoiAlign`."""
        return self.push(RoiAlign(size, reduction, samples, scale, half_pixel), x, rois, images)

    def max_roi_pool(
        self, x: Value, rois: Value, size: tuple[int, int], *, scale: float = 1.0
    ) -> Value:
        """Take the maxima of regions of images; see `MaxRoiPool`."""
        return self.push(MaxRoiPool(size, scale), x, rois)

    # ---- blocks -----------------------------------------------------------------------------

    def depth_to_space(self, x: Value, block: int, *, depth_first: bool = False) -> Value:
        """Spread channels over blocks of the spatial axes.

        Args:
            x: [N, C*block*block, H, W].
            block: size of a block.
            depth_first: whether the channels of the result are the outer part of those of x (CRD),
                or the inner part (DCR).
        """
        n, c, h, w = self._block_shape(x, block)
        depth = floordiv(c, block * block)
        self.require_eq(depth * block * block, c, f"channels of blocks {block} x {block}")
        if depth_first:
            x = self.permute(self.view(x, (n, depth, block, block, h, w)), (0, 1, 4, 2, 5, 3))
        else:
            x = self.permute(self.view(x, (n, block, block, depth, h, w)), (0, 3, 4, 1, 5, 2))
        return self.view(x, (n, depth, h * block, w * block))

    def space_to_depth(self, x: Value, block: int, *, depth_first: bool = False) -> Value:
        """Move blocks of the spatial axes into channels: the inverse of `depth_to_space`."""
        n, c, h, w = self._block_shape(x, block)
        rows, columns = floordiv(h, block), floordiv(w, block)
        self.require_eq(rows * block, h, f"height in blocks of {block}")
        self.require_eq(columns * block, w, f"width in blocks of {block}")
        x = self.view(x, (n, c, rows, block, columns, block))
        x = self.permute(x, (0, 1, 3, 5, 2, 4) if depth_first else (0, 3, 5, 1, 2, 4))
        return self.view(x, (n, c * block * block, rows, columns))

    def _block_shape(self, x: Value, block: int) -> Sequence[Size]:
        if x.rank != 4 or block < 1:
            raise ShapeError(f"blocks of {block} of an image [N, C, H, W], got {x.type}")
        return x.shape

    def col2im(
        self,
        x: Value,
        image: Sequence[Size],
        kernel: Sequence[Size],
        *,
        strides: Sequence[int] | None = None,
        dilations: Sequence[int] | None = None,
        pads: Sequence[tuple[Size, Size]] | None = None,
    ) -> Value:
        """Add windows [N, C*prod(kernel), windows] up to an image; see `Col2Im`."""
        ones = (1,) * len(image)
        op = Col2Im(
            tuple(image),
            tuple(kernel),
            tuple(ones if strides is None else strides),
            tuple(ones if dilations is None else dilations),
            tuple(((0, 0),) * len(image) if pads is None else pads),
        )
        return self.push(op, x)

    def center_crop_pad(self, x: Value, axes: Sequence[int], sizes: Sequence[Size]) -> Value:
        """Cut or fill axes with zeros around their middle; an odd element goes to the end."""
        pads: list[tuple[Size, Size]] = [(0, 0)] * x.rank
        for axis, size in zip(normalize_axes(axes, x.rank), sizes, strict=True):
            n = x.shape[axis]
            cut, fill = size_max(0, n - size), size_max(0, size - n)
            x = self.slice(x, axis, floordiv(cut, 2), n - cut)
            pads[axis] = (floordiv(fill, 2), fill - floordiv(fill, 2))
        return self.pad(x, pads)


@cache
def _is_exact(scale: Fraction) -> bool:
    """Return whether float32 arithmetic rounds size times scale to the same integer."""
    if scale.denominator > 1 << 40:
        return False
    n = np.arange(1, LARGEST_AXIS + 1)
    exact = n * scale.numerator // scale.denominator
    return bool(np.array_equal(np.floor(n.astype(np.float32) * np.float32(float(scale))), exact))
