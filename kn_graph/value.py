"""Nodes and the handles on their results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from kn_graph.dtype import DType
from kn_graph.errors import DTypeError
from kn_graph.known import DIGITS, exact_number
from kn_graph.ops.source import Constant
from kn_graph.types import Shape, TensorType, ValueType

if TYPE_CHECKING:
    from kn_graph.graph import Graph
    from kn_graph.op import Content, Op

__all__ = ["Node", "Provenance", "Value"]

CONTENT_ELEMS = 64
"""Tensors of at most this many elements are tracked before running."""

CONTENT_DTYPES = frozenset({DType.INT64, DType.INT32, DType.BOOL, *DIGITS})


class Provenance:
    """Where something came from in the model file.

    Attributes:
        nodes: names of the ONNX nodes that it was converted from.
        tensors: names of the ONNX tensors that it holds.
    """

    __slots__ = ("nodes", "tensors")

    def __init__(self, nodes: tuple[str, ...], tensors: tuple[str, ...]) -> None:
        self.nodes, self.tensors = nodes, tensors

    def __repr__(self) -> str:
        """Return the names."""
        return f"Provenance(nodes={self.nodes}, tensors={self.tensors})"


class Node:
    """One operation of a graph, applied to values of the same graph.

    Attributes:
        graph: the graph it belongs to.
        index: its position there; operands have smaller ones.
        op: the operation and its attributes.
        operands: the values it reads.
        results: the values it makes.
        origins: names of the ONNX nodes it stands for.
    """

    __slots__ = ("graph", "index", "op", "operands", "origins", "results")

    def __init__(self, graph: Graph, index: int, op: Op, operands: tuple[Value, ...]) -> None:
        self.graph, self.index, self.op, self.operands = graph, index, op, operands
        self.results: tuple[Value, ...] = ()
        self.origins: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """How errors and profiles call the node: its ONNX name, else number and operation."""
        return self.origins[0] if self.origins else f"%{self.index} {self.op.title}"

    def __repr__(self) -> str:
        """Return number and operation."""
        return f"<Node %{self.index} {self.op.title}>"


class Value:
    """A handle on one result of a node. Arithmetic operators and slicing build more nodes.

    Attributes:
        node: the node that makes it.
        result: which of the node's results it is.
        type: its type.
        names: names of the ONNX tensors it holds.
    """

    __slots__ = ("_content", "names", "node", "result", "type")
    __iter__ = None
    """Indexing alone would make a value iterable, without end where the size is symbolic."""
    __array_ufunc__ = None
    """Arrays leave `array + value` to the value."""

    def __init__(self, node: Node, result: int, type: ValueType) -> None:
        self.node, self.result, self.type = node, result, type
        self.names: tuple[str, ...] = ()
        self._content: Content | bool | None = False  # False: not looked at yet

    @property
    def graph(self) -> Graph:
        """The graph it belongs to."""
        return self.node.graph

    @property
    def shape(self) -> Shape:
        """Shape of a tensor value.

        Raises:
            ShapeError: the rank is unknown.
            DTypeError: not a tensor.
        """
        if isinstance(self.type, TensorType):
            return self.type.shape
        shape = getattr(self.type, "shape", None)  # raises for an unranked tensor
        raise DTypeError(f"{self} is not a tensor but {self.type} {shape or ''}")

    @property
    def rank(self) -> int:
        """Number of axes of a tensor value."""
        return len(self.shape)

    @property
    def dtype(self) -> DType:
        """Element type of a tensor value."""
        dtype = getattr(self.type, "dtype", None)
        if dtype is None:
            raise DTypeError(f"{self} is not a tensor but {self.type}")
        assert isinstance(dtype, DType)
        return dtype

    @property
    def constant(self) -> np.ndarray[Any, Any] | None:
        """The array, where the value is a constant."""
        op = self.node.op
        return op.array if isinstance(op, Constant) else None

    @property
    def content(self) -> Content | None:
        """What is known of a small tensor: an object array of sizes, truths or `Exact` floats."""
        if self._content is False:
            self._content = self._constant_content()
        assert not isinstance(self._content, bool)
        return self._content

    def know(self, content: Content | None) -> None:
        """Take note of what is known of the elements."""
        if content is not None:
            self._content = content

    def _constant_content(self) -> Content | None:
        a = self.constant
        if a is None or a.size > CONTENT_ELEMS or self.dtype not in CONTENT_DTYPES:
            return None
        elements: list[Any] = a.ravel().tolist()
        if self.dtype.is_float:
            elements = [exact_number(e) for e in elements]
            if None in elements:
                return None
        out = np.empty(a.shape, object)
        out.reshape(-1)[:] = elements
        return out

    @property
    def provenance(self) -> Provenance:
        """ONNX node and tensor names that the value stands for."""
        return Provenance(self.node.origins, self.names)

    @property
    def name(self) -> str:
        """A short name for texts: the ONNX tensor name, else the node number."""
        if self.names:
            return self.names[0]
        suffix = f".{self.result}" if len(self.node.results) > 1 else ""
        return f"%{self.node.index}{suffix}"

    def __repr__(self) -> str:
        """Return name and type."""
        return f"<Value {self.name}: {self.type}>"

    def __str__(self) -> str:
        """Return the name."""
        return self.name

    # Operators: scalars take the dtype of the value.

    def __add__(self, other: Any) -> Value:
        """Add with broadcasting."""
        return self.graph.binary("add", self, self._like(other))

    def __radd__(self, other: Any) -> Value:
        """Add with broadcasting."""
        return self.graph.binary("add", self._like(other), self)

    def __sub__(self, other: Any) -> Value:
        """Subtract with broadcasting."""
        return self.graph.binary("sub", self, self._like(other))

    def __rsub__(self, other: Any) -> Value:
        """Subtract with broadcasting."""
        return self.graph.binary("sub", self._like(other), self)

    def __mul__(self, other: Any) -> Value:
        """Multiply with broadcasting."""
        return self.graph.binary("mul", self, self._like(other))

    def __rmul__(self, other: Any) -> Value:
        """Multiply with broadcasting."""
        return self.graph.binary("mul", self._like(other), self)

    def __truediv__(self, other: Any) -> Value:
        """Divide with broadcasting; integers truncate as in ONNX."""
        return self.graph.binary("div", self, self._like(other))

    def __rtruediv__(self, other: Any) -> Value:
        """Divide with broadcasting; integers truncate as in ONNX."""
        return self.graph.binary("div", self._like(other), self)

    def __pow__(self, other: Any) -> Value:
        """Raise to a power with broadcasting."""
        return self.graph.binary("pow", self, self._like(other))

    def __matmul__(self, other: Value) -> Value:
        """Multiply matrices as NumPy does."""
        return self.graph.matmul(self, other)

    def __neg__(self) -> Value:
        """Negate."""
        return self.graph.unary("neg", self)

    def __getitem__(self, index: Any) -> Value:
        """Slice as NumPy does, with integers, slices, None and an ellipsis."""
        return self.graph.index(self, index)

    def _like(self, other: Any) -> Value:
        if isinstance(other, Value):
            return other
        return self.graph.scalar(other, self.dtype)
