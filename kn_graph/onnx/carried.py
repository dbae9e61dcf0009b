"""Types of values that a loop carries from one iteration to the next."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias, TypeGuard

from kn_graph.dim import Dim, Size, symbol
from kn_graph.dim_facts import bounds, provably_ge
from kn_graph.errors import DTypeError, MalformedModelError, ShapeError, UnsupportedModelError
from kn_graph.type_join import TypeJoin
from kn_graph.types import TensorType, UnrankedType, ValueType

if TYPE_CHECKING:
    from kn_graph.graph import Graph
    from kn_graph.onnx.context import NodeContext
    from kn_graph.value import Value

__all__ = ["RankChangeError", "settle"]

Body: TypeAlias = "tuple[Graph, list[Value]]"


class RankChangeError(UnsupportedModelError):
    """What a loop carries changes its rank, and the body needs to know it."""


def settle(
    ctx: NodeContext,
    initial: Sequence[Value],
    convert: Callable[[Sequence[ValueType]], Body],
    first_output: int,
) -> Body:
    """Convert the body of a loop for types that hold in every iteration.

    It starts with the types of the initial values. A size that the body changes becomes a symbol
    of the body, a rank that it changes an unknown one, and the body is converted again.

    Args:
        ctx: the node.
        initial: what is carried, before the first iteration.
        convert: converts the body for given types of what is carried.
        first_output: where the carried values start among the outputs of the body.

    Returns:
        The body and what it captures.

    Raises:
        RankChangeError: the body needs a rank that changes.
    """
    carried = _Carried(ctx, [v.type for v in initial])
    guards = ctx.graph.root.body_guards
    before = list(guards)
    while True:
        try:
            body, captured = convert(carried.types)
        except ShapeError as error:
            if carried.unranked is not None:
                text = f"{ctx.where}: {carried.unranked} ({error.args[0]}). "
                raise RankChangeError(f"{text}Not an error of your file.") from None
            raise
        outputs = [v.type for v in body.outputs.values()][first_output:]
        if len(outputs) < len(initial):
            ctx.fail(f"the body gives {len(outputs)} values for {len(initial)} that it carries")
        if carried.hold_for(outputs):
            return body, captured
        guards[:] = before  # what a body assumed that is not used


class _Carried:
    """The types tried, and what is known of their sizes.

    Sizes that are equal before the first iteration, and after each one if they were before it,
    share a symbol: caches that grow together.
    """

    def __init__(self, ctx: NodeContext, types: Sequence[ValueType]) -> None:
        self._ctx = ctx
        self.types = list(types)
        self.unranked: str | None = None
        self._own: dict[Size, int] = {}

    def hold_for(self, outputs: Sequence[ValueType]) -> bool:
        """Return whether the body keeps the types; if not, widen them."""
        renamed: dict[tuple[Size, Size], Size] = {}
        wider = [
            self._wider(i, before, after, renamed)
            for i, (before, after) in enumerate(zip(self.types, outputs, strict=False))
        ]
        settled, self.types = wider == self.types, wider
        return settled

    def _wider(
        self,
        index: int,
        before: ValueType,
        after: ValueType,
        renamed: dict[tuple[Size, Size], Size],
    ) -> ValueType:
        if isinstance(before, TensorType) and _alike(after, before):
            pairs = zip(before.shape, after.shape, strict=True)
            return TensorType(before.dtype, tuple(self._size(*p, renamed) for p in pairs))
        try:
            joined = TypeJoin(self._ctx.graph, "carried").join(before, after)
        except DTypeError as error:
            raise MalformedModelError(
                f"{self._ctx.where}: carried value {index}: {error.args[0]}"
            ) from None
        if isinstance(joined, UnrankedType) and isinstance(before, TensorType):
            self.unranked = (
                f"carried value {index} is {before} before the first iteration and {after} after "
                "it: a rank that changes from iteration to iteration is not supported here"
            )
        return joined

    def _size(self, before: Size, after: Size, renamed: dict[tuple[Size, Size], Size]) -> Size:
        key = (before, after)
        if key in renamed:
            return renamed[key]
        own = isinstance(before, Dim) and before in self._own
        if not own and before == after:
            return before
        others = [k for k in renamed if k[0] == before]
        if own and not others and (not self._own[before] or provably_ge(after, 1)):
            renamed[key] = before  # the first of those that share the symbol keeps it
            return before
        lo = int(max(0, min(1, bounds(before)[0], bounds(after)[0])))
        new = symbol(f"{self._ctx.name}_{len(self._own)}", lo=lo)
        self._own[new] = lo
        renamed[key] = new
        return new


def _alike(t: ValueType, like: TensorType) -> TypeGuard[TensorType]:
    """Return whether a type has the rank and the element type of another."""
    return isinstance(t, TensorType) and (t.dtype, t.rank) == (like.dtype, like.rank)
