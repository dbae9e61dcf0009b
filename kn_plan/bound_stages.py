"""Stages of plans for concrete sizes, those that were used last."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from threading import Lock
from typing import Any, Generic, Protocol, TypeVar

from kn_graph.dim import Symbol
from kn_graph.errors import OutOfMemoryError, SymbolError
from kn_plan.recent import Recent

__all__ = ["BoundStages"]


class _Staged(Protocol):
    """A plan made ready, over symbolic sizes; each of its stages has `symbols`."""

    @property
    def stages(self) -> Sequence[Any]: ...


Skeleton = TypeVar("Skeleton", bound=_Staged)
Bound = TypeVar("Bound")


class BoundStages(Recent[Bound], Generic[Skeleton, Bound]):
    """Stages bound to sizes; they are made one at a time, since they share places in memory."""

    def __init__(self, bind: Callable[[Skeleton, int, Mapping[Symbol, int]], Bound]) -> None:
        """Begin with none.

        Args:
            bind: makes the stage with a number for numbers of its symbols; it may raise an
                OverflowError where these are too large.
        """
        super().__init__()
        self._bind, self._binding = bind, Lock()

    def at(self, skeleton: Skeleton, index: int, env: Mapping[Symbol, int]) -> Bound:
        """Return a stage for numbers of its symbols, kept for the next time.

        Raises:
            SymbolError: a symbol has no number.
            OutOfMemoryError: the sizes are too large.
        """
        symbols = skeleton.stages[index].symbols
        try:
            key = (skeleton, index, *[env[s] for s in symbols])
        except KeyError as error:
            raise SymbolError(
                f"the symbolic size {error.args[0].name!r} has no number, since no input shows "
                "it; give it in dims",
                name=error.args[0].name,
            ) from None
        found = self.get(key)
        if found is None:
            found = self._made(skeleton, index, env)
            self.keep(key, found)
        return found

    def _made(self, skeleton: Skeleton, index: int, env: Mapping[Symbol, int]) -> Bound:
        try:
            with self._binding:
                return self._bind(skeleton, index, env)
        except OverflowError:
            raise OutOfMemoryError(
                "the sizes of this call are too large for any memory: a tensor has more than "
                "2^63 bytes"
            ) from None
