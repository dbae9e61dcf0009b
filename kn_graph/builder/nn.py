"""Building methods of neural networks: matmul, convolution, pooling, normalisation, attention."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kn_graph.builder.base import Builder, normalize_axes, normalize_axis
from kn_graph.dim import Size, size_prod
from kn_graph.dtype import DType, DTypeLike
from kn_graph.errors import ShapeError
from kn_graph.ops.attention import Attention
from kn_graph.ops.conv import Conv, ConvTranspose
from kn_graph.ops.deform import DeformConv
from kn_graph.ops.matmul import MatMul
from kn_graph.ops.norm import Norm, Softmax
from kn_graph.ops.pool import Pool, PoolFunction
from kn_graph.ops.scatter import ScatterElements
from kn_graph.sizes import broadcast_shapes
from kn_graph.types import format_shape

if TYPE_CHECKING:
    from kn_graph.value import Value

__all__ = ["NnBuilder"]

SizePairs = Sequence[tuple[Size, Size]]


class NnBuilder(Builder):
    """See the module."""

    # ---- products ---------------------------------------------------------------------------

    def matmul(self, x: Value, y: Value, *, out_dtype: DTypeLike | None = None) -> Value:
        """Multiply matrices as NumPy does: leading axes broadcast, rank 1 is a row or a column.

        Args:
            x: [.., m, k], or [k].
            y: [.., k, n], or [k].
            out_dtype: element type of the result, where it is wider than that of the operands.
        """
        if x.rank == 0 or y.rank == 0:
            raise ShapeError(
                f"matmul of {format_shape(x.shape)} and {format_shape(y.shape)}: a scalar"
            )
        row, column = x.rank == 1, y.rank == 1
        x = self.unsqueeze(x, [0]) if row else x
        y = self.unsqueeze(y, [1]) if column else y
        out = self._matrices(x, y, _wider(out_dtype, x, y))
        drop = [axis for axis, vector in ((-2, row), (-1, column)) if vector]
        return self.squeeze(out, drop) if drop else out

    def _matrices(self, x: Value, y: Value, out_dtype: DType | None) -> Value:
        op = MatMul(out_dtype)
        lead = x.shape[:-2]
        if y.rank == 2 and lead:  # one large product instead of many with one matrix
            rows = self.view(x, (size_prod(x.shape[:-1]), x.shape[-1]))
            return self.view(self.push(op, rows, y), (*x.shape[:-1], y.shape[-1]))
        if lead != y.shape[:-2]:
            lead = broadcast_shapes([lead, y.shape[:-2]], f"matmul of {x.name} and {y.name}")
            x = self.broadcast(x, (*lead, *x.shape[-2:]))
            y = self.broadcast(y, (*lead, *y.shape[-2:]))
        return self.push(op, x, y)

    def einsum(self, equation: str, *xs: Value) -> Value:
        """Multiply and sum by Einstein's convention, such as 'bij,bjk->bik' or '...ii'."""
        from kn_graph.builder.einsum import einsum

        return einsum(self, equation, xs)

    # ---- windows ----------------------------------------------------------------------------

    def conv(
        self,
        x: Value,
        w: Value,
        bias: Value | None = None,
        *,
        strides: Sequence[int] | None = None,
        dilations: Sequence[int] | None = None,
        pads: SizePairs | None = None,
        groups: int = 1,
        out_dtype: DTypeLike | None = None,
    ) -> Value:
        """Convolve.

        Args:
            x: [N, C, *spatial].
            w: [M, C/groups, *kernel].
            bias: [M], added to each channel.
            strides: step between windows, one a spatial axis; 1 by default.
            dilations: step between elements of a window; 1 by default.
            pads: zeros (before, after) each spatial axis; none by default.
            groups: parts that the channels are cut into.
            out_dtype: element type of the result, where it is wider than that of the operands.
        """
        rank = max(0, x.rank - 2)
        op = Conv(
            _steps(strides, rank),
            _steps(dilations, rank),
            _pads(pads, rank),
            groups,
            _wider(out_dtype, x, w),
        )
        return self._add_bias(self.push(op, x, w), bias)

    def conv_transpose(
        self,
        x: Value,
        w: Value,
        bias: Value | None = None,
        *,
        strides: Sequence[int] | None = None,
        dilations: Sequence[int] | None = None,
        pads: SizePairs | None = None,
        output_padding: Sequence[Size] | None = None,
        groups: int = 1,
        out_dtype: DTypeLike | None = None,
    ) -> Value:
        """Apply the transpose of a convolution.

        Args:
            x: [N, C, *spatial].
            w: [C, M/groups, *kernel].
            bias: [M], added to each channel.
            strides: step between kernels, one a spatial axis; 1 by default.
            dilations: step between elements of a kernel; 1 by default.
            pads: what is cut (before, after) each spatial axis; nothing by default.
            output_padding: elements added after each spatial axis; none by default.
            groups: parts that the channels are cut into.
            out_dtype: element type of the result, where it is wider than that of the operands.
        """
        rank = max(0, x.rank - 2)
        op = ConvTranspose(
            _steps(strides, rank),
            _steps(dilations, rank),
            _pads(pads, rank),
            (0,) * rank if output_padding is None else tuple(output_padding),
            groups,
            _wider(out_dtype, x, w),
        )
        return self._add_bias(self.push(op, x, w), bias)

    def deform_conv(
        self,
        x: Value,
        w: Value,
        offset: Value,
        mask: Value | None = None,
        bias: Value | None = None,
        *,
        strides: Sequence[int] | None = None,
        dilations: Sequence[int] | None = None,
        pads: SizePairs | None = None,
        groups: int = 1,
        offset_groups: int = 1,
    ) -> Value:
        """Convolve with samples beside the grid; see `DeformConv`."""
        rank = max(0, x.rank - 2)
        op = DeformConv(
            _steps(strides, rank), _steps(dilations, rank), _pads(pads, rank), groups, offset_groups
        )
        operands = (x, w, offset) if mask is None else (x, w, offset, mask)
        return self._add_bias(self.push(op, *operands), bias)

    def _add_bias(self, x: Value, bias: Value | None) -> Value:
        if bias is None:
            return x
        return self.binary("add", x, self.channels(bias, x.rank))

    def channels(self, x: Value, rank: int) -> Value:
        """View a vector [C] so that it broadcasts along axis 1 of a tensor of this rank."""
        return self.view(x, (*x.shape, *(1,) * (rank - 2)))

    def pool(
        self,
        x: Value,
        fn: PoolFunction,
        kernel: Sequence[int],
        *,
        strides: Sequence[int] | None = None,
        dilations: Sequence[int] | None = None,
        pads: SizePairs | None = None,
        ceil: bool = False,
        count_include_pad: bool = False,
    ) -> Value:
        """Take the max, mean or sum of windows of the last axes; see `Pool`.

        Args:
            x: [*lead, *spatial].
            fn: max, mean or sum.
            kernel: size of a window, one number a spatial axis.
            strides: step between windows; 1 by default.
            dilations: step between elements of a window; 1 by default.
            pads: padding (before, after) each spatial axis; none by default.
            ceil: keep a last window that reaches beyond the padding.
            count_include_pad: whether a mean counts padding.
        """
        rank = len(kernel)
        op = Pool(
            fn,
            tuple(kernel),
            _steps(strides, rank),
            _steps(dilations, rank),
            _pads(pads, rank),
            ceil,
            count_include_pad,
        )
        return self.push(op, x)

    def max_pool_with_indices(
        self,
        x: Value,
        kernel: Sequence[int],
        *,
        strides: Sequence[int] | None = None,
        dilations: Sequence[int] | None = None,
        pads: SizePairs | None = None,
        ceil: bool = False,
        column_major: bool = False,
    ) -> tuple[Value, Value]:
        """Take the max of windows, and where in x it is; see `Pool`."""
        rank = len(kernel)
        op = Pool(
            "max",
            tuple(kernel),
            _steps(strides, rank),
            _steps(dilations, rank),
            _pads(pads, rank),
            ceil,
            indices="column_major" if column_major else "row_major",
        )
        out, indices = self.push_all(op, x)
        return out, indices

    def max_unpool(self, x: Value, indices: Value, shape: Sequence[Size]) -> Value:
        """Put elements at flat positions of a tensor of zeros; of several for one, the last stays.

        Args:
            x: of any shape.
            indices: int64 of the same.
            shape: of the result.
        """
        count = size_prod(x.shape)
        zeros = self.broadcast(self.scalar(0, x.dtype), (size_prod(shape),))
        flat = [self.view(v, (count,)) for v in (indices, x)]
        return self.view(self.push(ScatterElements(0), zeros, *flat), tuple(shape))

    # ---- normalisation ----------------------------------------------------------------------

    def softmax(self, x: Value, axis: int = -1) -> Value:
        """Take the softmax along an axis."""
        return self.push(Softmax(normalize_axis(axis, x.rank)), x)

    def log_softmax(self, x: Value, axis: int = -1) -> Value:
        """Take the logarithm of the softmax along an axis."""
        return self.push(Softmax(normalize_axis(axis, x.rank), log=True), x)

    def norm(self, x: Value, axes: Sequence[int], epsilon: float, *, center: bool = True) -> Value:
        """Normalise over axes to mean 0 and variance 1, or without `center` to mean square 1."""
        return self.push(Norm(tuple(sorted(normalize_axes(axes, x.rank))), epsilon, center), x)

    # ---- attention --------------------------------------------------------------------------

    def attention(
        self,
        q: Value,
        k: Value,
        v: Value,
        bias: Value | None = None,
        lengths: Value | None = None,
        *,
        scale: float | None = None,
        causal: bool = False,
        left: int | None = None,
        right: int | None = None,
        offset: Size = 0,
        softcap: float | None = None,
        softmax_dtype: DTypeLike | None = None,
    ) -> Value:
        """Apply scaled dot product attention; see `Attention`.

        Args:
            q: [B, H, S, D].
            k: [B, Hk, T, D].
            v: [B, Hk, T, Dv].
            bias: bool (True: may be seen) or float, broadcast to [B, H, S, T].
            lengths: how many keys of each batch there are, int64 [B].
            scale: factor of the scores; 1/sqrt(D) by default.
            causal: a query sees no key after its position: the same as right = 0.
            left: how many keys before its position a query sees; all by default.
            right: how many keys after its position a query sees; all by default.
            offset: position of the first query among the keys.
            softcap: bound of the scores.
            softmax_dtype: element type that the softmax is computed in, where wider.
        """
        right = 0 if causal else right
        wide = None if softmax_dtype is None else DType.of(softmax_dtype)
        op = Attention(scale, left, right, offset, softcap, wide)
        operands = [q, k, v]
        if bias is not None:
            operands.append(self.broadcast(bias, (*q.shape[:3], k.shape[2])))
        return self.push(op, *operands, *(() if lengths is None else (lengths,)))


def _wider(dtype: DTypeLike | None, *operands: Value) -> DType | None:
    """Return the element type of a result, where operands have others."""
    found = None if dtype is None else DType.of(dtype)
    return None if all(x.dtype is found for x in operands) else found


def _steps(numbers: Sequence[int] | None, rank: int) -> tuple[int, ...]:
    return (1,) * rank if numbers is None else tuple(numbers)


def _pads(pairs: SizePairs | None, rank: int) -> tuple[tuple[Size, Size], ...]:
    return ((0, 0),) * rank if pairs is None else tuple((b, a) for b, a in pairs)
