"""SiLU: x * sigmoid(x) = silu(x)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from kn_graph.op import Op
from kn_graph.ops.elementwise import Binary
from kn_graph.optimizer.editor import Editor
from kn_graph.optimizer.pattern import Any, Bin, Un, match
from kn_graph.optimizer.rule import Refused, Rule
from kn_graph.optimizer.settings import OptimizerSettings
from kn_graph.value import Node, Value

__all__ = ["RULES", "Silu"]

PATTERN = Bin("mul", Any("x"), Un("sigmoid", Any("x")))


@dataclass(frozen=True)
class Found:
    """The operand of the activation."""

    x: Value


class Silu(Rule[Found]):
    """See the module."""

    name = "silu"
    roots: ClassVar[tuple[type[Op], ...]] = (Binary,)
    setting = "fuse_activation"

    def match(
        self, edit: Editor, node: Node, settings: OptimizerSettings
    ) -> Found | Refused | None:
        """Find the product."""
        found = match(edit, node.results[0], PATTERN)
        return None if found is None else Found(found["x"])

    def rewrite(self, edit: Editor, found: Found) -> Value:
        """Apply the row of the scalar table."""
        return edit.graph.unary("silu", found.x)


RULES = (Silu(),)
