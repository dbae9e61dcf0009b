"""One node of a graph as the functions that write it see it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kn_graph.dim_facts import provably_ge
from kn_graph.dtype import DType

if TYPE_CHECKING:
    from kn_graph.dim import Size
    from kn_graph.onnx.write.scope import Scope
    from kn_graph.types import Shape
    from kn_graph.value import Node, Value

__all__ = ["NodeWriter"]


class NodeWriter:
    """A node while it is written.

    Attributes:
        scope: the ONNX graph that it is written into.
        node: what is written; where several nodes become one operator, the last of them.
        values: what it reads; broadcasts that operators do by themselves are left out.
        inputs: their names.
    """

    def __init__(self, scope: Scope, node: Node, values: Sequence[Value]) -> None:
        self.scope, self.node, self.values = scope, node, tuple(values)
        self.inputs = [scope.name(v) for v in values]

    @property
    def x(self) -> str:
        """Name of the first operand."""
        return self.inputs[0]

    @property
    def shape(self) -> Shape:
        """Shape of the first result."""
        return self.node.results[0].shape

    @property
    def dtype(self) -> DType:
        """Element type of the first result."""
        return self.node.results[0].dtype

    def emit(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """Write an operator with one output."""
        return self.scope.emit(operator, *inputs, **attributes)

    def emit_all(self, operator: str, *inputs: str, outputs: int, **attributes: Any) -> list[str]:
        """Write an operator with several outputs."""
        return self.scope.emit_all(operator, *inputs, outputs=outputs, **attributes)

    def cast(self, x: str, dtype: DType) -> str:
        """Convert, where the type differs."""
        return x if self.scope.dtype(x) is dtype else self.emit("Cast", x, to=dtype)

    def const(self, array: Any) -> str:
        """Return a constant."""
        return self.scope.const(array)

    def scalar(self, number: Any, like: str | DType) -> str:
        """Return a constant of rank 0, of the type of a tensor."""
        return self.scope.scalar(number, like)

    def ints(self, *numbers: int) -> str:
        """Return an int64 vector."""
        return self.scope.sizes.vector(numbers)

    def sizes(self, sizes: Sequence[Size]) -> str:
        """Return sizes as an int64 vector."""
        return self.scope.sizes.vector(sizes)

    def reshape(self, x: str, sizes: Sequence[Size]) -> str:
        """View a tensor in a shape given in full."""
        some_empty = any(provably_ge(s, 1) is not True for s in sizes)
        return self.emit("Reshape", x, self.sizes(sizes), allowzero=1 if some_empty else None)
