"""Operations that move or repeat elements without computing: planners turn most into strides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from kn_graph.dim import Dim, Size, size_min, size_sum
from kn_graph.dim_facts import surely_ge
from kn_graph.errors import DTypeError, ExecutionError, ShapeError
from kn_graph.op import Content, EvalContext, InferContext, Op
from kn_graph.types import Shape, TensorType, format_shape

if TYPE_CHECKING:
    from kn_graph.value import Value

__all__ = ["Broadcast", "Concat", "Flip", "Pad", "PadMode", "Permute", "Slice", "View"]

Array = np.ndarray[Any, Any]
PadMode = Literal["constant", "edge", "reflect", "wrap"]


def check_axis(axis: int, rank: int, what: str) -> None:
    """Raise ShapeError where an axis, counted from 0, does not exist."""
    if not 0 <= axis < rank:
        raise ShapeError(f"{what} {axis} does not exist in a tensor of rank {rank}")


def check_sizes(ctx: InferContext, shape: Shape) -> None:
    """Raise ShapeError where a size of a result is negative."""
    for axis, size in enumerate(shape):
        if not surely_ge(size):
            ctx.require_ge(size, 0, f"size {axis} of {format_shape(shape)} is not negative")


@dataclass(frozen=True)
class View(Op):
    """The same elements in row-major order under another shape.

    Shapes: any -> `shape`, with as many elements.
    """

    shape: Shape

    def infer(self, ctx: InferContext, x: TensorType) -> TensorType:
        """Return the new shape; the number of elements stays."""
        check_sizes(ctx, self.shape)
        result = TensorType(x.dtype, self.shape)
        have, want = x.numel, result.numel
        if isinstance(have, int) and isinstance(want, int) and have != want:
            raise ShapeError(
                f"cannot view {format_shape(x.shape)} ({have} elements) "
                f"as {format_shape(self.shape)} ({want} elements)"
            )
        if have != want:
            what = f"view {format_shape(x.shape)} as {format_shape(self.shape)}"
            ctx.require_eq(have, want, what)
        return result

    def eval(self, ctx: EvalContext, x: Array) -> Array:
        """Reshape."""
        return x.reshape(ctx.sizes(self.shape))

    def content(self, *operands: Content) -> Content | None:
        """Reshape what is known."""
        return operands[0].reshape([int(s) for s in self.shape if isinstance(s, int)])

    def forward(self, operands: tuple[Value, ...]) -> Value | None:
        """Return the operand when it has the shape already."""
        return operands[0] if operands[0].shape == self.shape else None


@dataclass(frozen=True)
class Broadcast(Op):
    """Repeat axes of size 1.

    Shapes: [a, b, ...] -> `shape` of the same rank; each size stays, or was 1.
    Raises at run time where a size that was not known is neither.
    """

    shape: Shape

    def infer(self, ctx: InferContext, x: TensorType) -> TensorType:
        """Check each axis where both sizes are numbers; the rest shows at run time."""
        check_sizes(ctx, self.shape)
        if x.rank != len(self.shape):
            raise ShapeError(
                f"cannot broadcast {format_shape(x.shape)} to {format_shape(self.shape)}: "
                f"rank {x.rank} against {len(self.shape)}"
            )
        for axis, (a, b) in enumerate(zip(x.shape, self.shape, strict=True)):
            if isinstance(a, int) and isinstance(b, int) and a not in (1, b):
                raise ShapeError(
                    f"cannot broadcast {format_shape(x.shape)} to {format_shape(self.shape)}: "
                    f"axis {axis} has size {a}, expected 1 or {b}"
                )
        return TensorType(x.dtype, self.shape)

    def eval(self, ctx: EvalContext, x: Array) -> Array:
        """Return a view with stride 0."""
        shape = ctx.sizes(self.shape)
        if any(a not in (1, b) for a, b in zip(x.shape, shape, strict=True)):
            raise ExecutionError(f"cannot broadcast {list(x.shape)} to {list(shape)}")
        return np.broadcast_to(x, shape)

    def content(self, *operands: Content) -> Content | None:
        """Repeat what is known."""
        return np.broadcast_to(operands[0], [int(s) for s in self.shape if isinstance(s, int)])

    def forward(self, operands: tuple[Value, ...]) -> Value | None:
        """Return the operand when it has the shape already."""
        return operands[0] if operands[0].shape == self.shape else None


@dataclass(frozen=True)
class Permute(Op):
    """Reorder axes.

    Shapes: out.shape[i] = x.shape[axes[i]].
    """

    axes: tuple[int, ...]

    def infer(self, ctx: InferContext, x: TensorType) -> TensorType:
        """Reorder the sizes."""
        if sorted(self.axes) != list(range(x.rank)):
            raise ShapeError(f"axes {self.axes} are no permutation of {x.rank} axes")
        return TensorType(x.dtype, tuple(x.shape[a] for a in self.axes))

    def eval(self, ctx: EvalContext, x: Array) -> Array:
        """Return a transposed view."""
        return x.transpose(self.axes)

    def content(self, *operands: Content) -> Content | None:
        """Transpose what is known."""
        return operands[0].transpose(self.axes)

    def forward(self, operands: tuple[Value, ...]) -> Value | None:
        """Return the operand for the identity permutation."""
        return operands[0] if self.axes == tuple(range(operands[0].rank)) else None


@dataclass(frozen=True)
class Slice(Op):
    """Every `step`-th element of an axis, from `start` on.

    Shapes: axis size n -> `length`, with 0 <= start and start + (length - 1)*step < n, step >= 1.
    """

    axis: int
    start: Size
    length: Size
    step: int = 1

    def infer(self, ctx: InferContext, x: TensorType) -> TensorType:
        """Replace the size of the axis."""
        check_axis(self.axis, x.rank, "slice axis")
        if self.step < 1:
            raise ShapeError(f"slice step must be at least 1, got {self.step}")
        n = x.shape[self.axis]
        what = f"slice of axis {self.axis} of {format_shape(x.shape)} from {self.start}"
        if self.length != 0:
            end = self.start + (self.length - 1) * self.step + 1
            ctx.require_ge(n, end, f"{what} ends inside")
        ctx.require_ge(self.start, 0, f"{what} starts inside")
        ctx.require_ge(self.length, 0, f"{what} has a length")
        return TensorType(x.dtype, (*x.shape[: self.axis], self.length, *x.shape[self.axis + 1 :]))

    def _slices(self, start: int, length: int) -> tuple[slice, ...]:
        stop = start + (length - 1) * self.step + 1 if length else start
        return (*(slice(None),) * self.axis, slice(start, stop, self.step))

    def eval(self, ctx: EvalContext, x: Array) -> Array:
        """Return a strided view."""
        return x[self._slices(ctx.size(self.start), ctx.size(self.length))]

    def content(self, *operands: Content) -> Content | None:
        """Slice what is known."""
        if isinstance(self.start, Dim) or isinstance(self.length, Dim):
            return None
        return operands[0][self._slices(self.start, self.length)]

    def forward(self, operands: tuple[Value, ...]) -> Value | None:
        """Return the operand when the whole axis is taken."""
        whole = self.start == 0 and self.step == 1
        rank_ok = self.axis < operands[0].rank
        same = whole and rank_ok and operands[0].shape[self.axis] == self.length
        return operands[0] if same else None


@dataclass(frozen=True)
class Flip(Op):
    """Reverse an axis.

    Shapes: unchanged.
    """

    axis: int

    def infer(self, ctx: InferContext, x: TensorType) -> TensorType:
        """Return the operand's type."""
        check_axis(self.axis, x.rank, "flip axis")
        return x

    def eval(self, ctx: EvalContext, x: Array) -> Array:
        """Return a view with a negative stride."""
        return np.flip(x, self.axis)

    def content(self, *operands: Content) -> Content | None:
        """Reverse what is known."""
        return np.flip(operands[0], self.axis)

    def forward(self, operands: tuple[Value, ...]) -> Value | None:
        """Return the operand when the axis has one element."""
        return operands[0] if operands[0].shape[self.axis : self.axis + 1] == (1,) else None


@dataclass(frozen=True)
class Concat(Op):
    """Join tensors along an axis.

    Shapes: [.., n_i, ..] each, equal elsewhere -> [.., sum of n_i, ..].
    """

    axis: int

    def infer(self, ctx: InferContext, *xs: TensorType) -> TensorType:
        """Add the sizes of the axis up."""
        if not xs:
            raise ShapeError("nothing to concatenate")
        first = xs[0]
        check_axis(self.axis, first.rank, "concat axis")
        for i, x in enumerate(xs[1:], 1):
            if x.dtype is not first.dtype:
                raise DTypeError(f"operand {i} is {x.dtype}, operand 0 is {first.dtype}")
            if x.rank != first.rank:
                raise ShapeError(f"operand {i} has rank {x.rank}, operand 0 has {first.rank}")
            for axis, (a, b) in enumerate(zip(first.shape, x.shape, strict=True)):
                if axis != self.axis:
                    ctx.require_eq(a, b, f"concat operands 0 and {i} at axis {axis}")
        total = size_sum(x.shape[self.axis] for x in xs)
        shape = (*first.shape[: self.axis], total, *first.shape[self.axis + 1 :])
        return TensorType(first.dtype, shape)

    def eval(self, ctx: EvalContext, *xs: Array) -> Array:
        """Concatenate."""
        return np.concatenate(xs, self.axis)

    def content(self, *operands: Content) -> Content | None:
        """Concatenate what is known."""
        return np.concatenate(operands, self.axis)

    def forward(self, operands: tuple[Value, ...]) -> Value | None:
        """Return a single operand."""
        single = len(operands) == 1 and 0 <= self.axis < operands[0].rank
        return operands[0] if single else None


@dataclass(frozen=True)
class Pad(Op):
    """Add elements around a tensor.

    Mode `constant` takes them from the second operand, `edge` repeats the border, `reflect` mirrors
    without it, `wrap` continues at the other side. Reflect and wrap need `before` and `after` below
    and up to the size of the axis, respectively; see ONNX Pad.

    Shapes: x [n, ...], value [] (constant mode only) -> [before + n + after, ...].

    Attributes:
        pads: (before, after) for each axis, both >= 0.
        mode: one of constant, edge, reflect, wrap.
    """

    pads: tuple[tuple[Size, Size], ...]
    mode: PadMode = "constant"

    def infer(
        self, ctx: InferContext, x: TensorType, value: TensorType | None = None
    ) -> TensorType:
        """Add the pads to the sizes."""
        if len(self.pads) != x.rank:
            raise ShapeError(f"{len(self.pads)} pads for {x.rank} axes")
        if (value is not None) != (self.mode == "constant"):
            raise ShapeError(f"mode {self.mode} with{'' if value else 'out'} a pad value")
        if value is not None and (value.dtype is not x.dtype or value.rank != 0):
            raise DTypeError(f"the pad value must be {x.dtype}[], got {value}")
        for n, (before, after) in zip(x.shape, self.pads, strict=True):
            for pad in (before, after):
                ctx.require_ge(pad, 0, "a pad is not negative")
                if self.mode == "reflect" and pad != 0:
                    ctx.require_ge(n - 1, pad, "a reflecting pad is narrower than its axis")
                elif self.mode != "constant":
                    ctx.require_ge(n, size_min(1, pad), "a pad repeats something")
        sizes = (n + before + after for n, (before, after) in zip(x.shape, self.pads, strict=True))
        return TensorType(x.dtype, tuple(sizes))

    def eval(self, ctx: EvalContext, x: Array, value: Array | None = None) -> Array:
        """Pad with NumPy."""
        pads = [(ctx.size(b), ctx.size(a)) for b, a in self.pads]
        if value is not None:
            shape = [b + n + a for n, (b, a) in zip(x.shape, pads, strict=True)]
            out = np.full(shape, value, x.dtype)
            out[tuple(slice(b, b + n) for n, (b, _) in zip(x.shape, pads, strict=True))] = x
            return out
        return np.pad(x, pads, mode=self.mode)

    def forward(self, operands: tuple[Value, ...]) -> Value | None:
        """Return the operand when nothing is added."""
        return operands[0] if self.pads == ((0, 0),) * operands[0].rank else None
