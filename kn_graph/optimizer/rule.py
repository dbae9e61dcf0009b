"""What a rewrite rule is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

from kn_graph.op import Op
from kn_graph.optimizer.editor import Editor
from kn_graph.optimizer.settings import OptimizerSettings
from kn_graph.value import Node, Value

__all__ = ["SHARED", "Refused", "Rule"]

F = TypeVar("F")


@dataclass(frozen=True)
class Refused:
    """A rule recognised its pattern, but may not rewrite it.

    Attributes:
        reason: why, for the report.
    """

    reason: str


SHARED = Refused("an intermediate result has other readers")


class Rule(ABC, Generic[F]):
    """Recognises a piece of a graph and rewrites it into an equal, better one.

    One rule a file; the module's docstring states the algebra. A rule is tried at every living node
    whose operation is one of `roots`, with operands that were simplified before.
    """

    name: ClassVar[str]
    roots: ClassVar[tuple[type[Op], ...]]
    functions: ClassVar[frozenset[str] | None] = None
    """Which scalar functions a root applies, where it is one; None for any."""
    setting: ClassVar[str | None] = None
    """The flag of `OptimizerSettings` that switches it off; None where no number changes."""

    looks_far: ClassVar[bool] = False
    """Whether it may match although nothing near a node has changed: where it asks who else reads
    a value, or for the best of a region. It is tried again at all nodes until nothing changes."""

    @abstractmethod
    def match(self, edit: Editor, node: Node, settings: OptimizerSettings) -> F | Refused | None:
        """Return what was found at a node: a small dataclass; or why not; or nothing."""

    @abstractmethod
    def rewrite(self, edit: Editor, found: F) -> Value | tuple[Value, ...]:
        """Build what takes the place of the node's results, in `edit.graph`, and return it."""


AnyRule = Rule[Any]
