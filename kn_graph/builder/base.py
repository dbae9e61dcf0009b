"""What the building methods need of the graph they are part of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kn_graph.dim import Dim, Size
    from kn_graph.dtype import DTypeLike
    from kn_graph.op import Op
    from kn_graph.ops.layout import PadMode
    from kn_graph.ops.reduce import ReduceFn
    from kn_graph.value import Value

    class Builder:
        """The methods of `Graph` that building methods call; see there."""

        # ruff: noqa: D102
        nodes: list[Any]
        parent: Any

        def push(self, op: Op, *operands: Value) -> Value: ...
        def push_all(self, op: Op, *operands: Value) -> tuple[Value, ...]: ...
        def constant(self, array: Any) -> Value: ...
        def scalar(self, number: Any, dtype: DTypeLike) -> Value: ...
        def size_tensor(self, content: Any, dtype: DTypeLike = ...) -> Value: ...
        def require_eq(self, a: Size, b: Size, why: str) -> None: ...
        def require_ge(self, a: Size, b: Size, why: str) -> None: ...
        def decide_ge(self, a: Size, b: Size, why: str) -> bool | None: ...
        def decide_equal(self, a: Size, b: Size, why: str) -> bool | None: ...
        def data_symbol(self, name: str, *, lo: int = 0, hi: int | None = None) -> Dim: ...
        def read_sizes(self, value: Value, *, name: str = "n", lo: int = 0) -> tuple[Size, ...]: ...

        # of the layout builder, which every other one uses
        def view(self, x: Value, shape: Sequence[Size]) -> Value: ...
        def broadcast(self, x: Value, shape: Sequence[Size]) -> Value: ...
        def permute(self, x: Value, axes: Sequence[int]) -> Value: ...
        def slice(self, x: Value, axis: int, start: Size, length: Size, step: int = 1) -> Value: ...
        def flip(self, x: Value, axis: int) -> Value: ...
        def concat(self, xs: Sequence[Value], axis: int) -> Value: ...
        def pad(
            self,
            x: Value,
            pads: Sequence[tuple[Size, Size]],
            mode: PadMode = "constant",
            value: Value | None = None,
        ) -> Value: ...
        def squeeze(self, x: Value, axes: Sequence[int]) -> Value: ...
        def unsqueeze(self, x: Value, axes: Sequence[int]) -> Value: ...
        def broadcast_together(self, *xs: Value) -> tuple[Value, ...]: ...

        # of the elementwise builder
        def unary(self, fn: str, x: Value, **params: float) -> Value: ...
        def binary(self, fn: str, x: Value, y: Value, **params: float) -> Value: ...
        def compare(self, fn: str, x: Value, y: Value) -> Value: ...
        def select(self, condition: Value, x: Value, y: Value) -> Value: ...
        def cast(self, x: Value, dtype: DTypeLike, *, saturate: bool = True) -> Value: ...

        # of the builders of neural networks and of indexing
        def channels(self, x: Value, rank: int) -> Value: ...
        def conv(
            self,
            x: Value,
            w: Value,
            bias: Value | None = None,
            *,
            strides: Sequence[int] | None = None,
            dilations: Sequence[int] | None = None,
            pads: Sequence[tuple[Size, Size]] | None = None,
            groups: int = 1,
            out_dtype: DTypeLike | None = None,
        ) -> Value: ...
        def matmul(self, x: Value, y: Value, *, out_dtype: DTypeLike | None = None) -> Value: ...
        def reduce(
            self, fn: ReduceFn, x: Value, axes: Sequence[int] | None = None, *, keep: bool = False
        ) -> Value: ...
        def gather(self, x: Value, indices: Value, axis: int = 0) -> Value: ...
        def iota(self, length: Size, dtype: DTypeLike = ...) -> Value: ...
else:

    class Builder:
        """Base of the building classes at run time: empty."""


__all__ = ["Builder", "normalize_axes", "normalize_axis"]


def normalize_axis(axis: int, rank: int) -> int:
    """Return an axis counted from 0.

    Raises:
        ShapeError: it does not exist.
    """
    from kn_graph.errors import ShapeError

    if not -rank <= axis < rank:
        raise ShapeError(f"axis {axis} does not exist in a tensor of rank {rank}")
    return axis % rank


def normalize_axes(axes: Sequence[int], rank: int) -> tuple[int, ...]:
    """Return axes counted from 0, in the given order.

    Raises:
        ShapeError: one does not exist or appears twice.
    """
    from kn_graph.errors import ShapeError

    out = tuple(normalize_axis(int(a), rank) for a in axes)
    if len(set(out)) != len(out):
        raise ShapeError(f"axes {tuple(axes)} name an axis twice")
    return out
