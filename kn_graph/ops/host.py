"""Calls of functions that only run on the host."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kn_graph.errors import UsageError
from kn_graph.hosted import FUNCTIONS, HostFunction
from kn_graph.op import EvalContext, InferContext, Op, Result
from kn_graph.types import ValueType

__all__ = ["HostCall"]


@dataclass(frozen=True)
class HostCall(Op):
    """A function of the fixed table `kn_graph.hosted.FUNCTIONS`, applied to values.

    Shapes: see the function.

    Attributes:
        name: of the function.
        attributes: (name, value) pairs of plain hashable values.
    """

    name: str
    attributes: tuple[tuple[str, Any], ...] = ()

    @property
    def function(self) -> HostFunction:
        """The function named.

        Raises:
            UsageError: the table has none of this name.
        """
        try:
            return FUNCTIONS[self.name]
        except KeyError:
            known = ", ".join(sorted(FUNCTIONS))
            raise UsageError(f"no host function {self.name!r}; there are {known}") from None

    def infer(self, ctx: InferContext, *types: Any) -> ValueType | tuple[ValueType, ...]:
        """Apply the function's type rule."""
        result: ValueType | tuple[ValueType, ...]
        result = self.function.infer(ctx, dict(self.attributes), *types)
        return result

    def eval(self, ctx: EvalContext, *operands: Any) -> Result | tuple[Result, ...]:
        """Call the function."""
        return self.function.eval(dict(self.attributes), *operands)

    @property
    def title(self) -> str:
        """Return the function's name."""
        return self.name

    def describe(self) -> str:
        """Return the name with the attributes, long ones cut."""
        shown = ", ".join(f"{name}={_short(value)}" for name, value in self.attributes)
        return f"{self.name}({shown})"


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
