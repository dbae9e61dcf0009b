"""One ONNX node as converters see it: what they do not take is an error."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import numpy as np

from kn_graph.builder.base import normalize_axes
from kn_graph.condition import size_eq
from kn_graph.dim import Size, size_prod
from kn_graph.dtype import DType
from kn_graph.errors import MalformedModelError, UnsupportedModelError
from kn_graph.onnx.attributes import attribute_kind
from kn_graph.onnx.subgraph import convert_bodies, convert_inline
from kn_graph.value import CONTENT_ELEMS

if TYPE_CHECKING:
    import onnx

    from kn_graph.graph import Graph
    from kn_graph.onnx.loader import Loader, Scope
    from kn_graph.value import Value

__all__ = ["REQUIRED", "NodeContext"]

REQUIRED: Any = object()
"""As a default: the attribute must be there."""

_T = TypeVar("_T")


class NodeContext:
    """An ONNX node while it is converted.

    Attributes:
        graph: where the converter builds.
        op: the operator's name.
        opset: version of the operator's domain that the model imports.
        name: the node's name, or one made of its operator and first output.
        output_names: names of its outputs; '' for those that nobody wants.
    """

    def __init__(
        self, loader: Loader, scope: Scope, node: onnx.NodeProto, opset: int, name: str
    ) -> None:
        self.loader, self.scope, self.node = loader, scope, node
        self.graph: Graph = scope.graph
        self.op, self.opset, self.name = node.op_type, opset, name
        self.output_names: list[str] = list(node.output)
        self._inputs = list(node.input)
        self._taken: set[int] = set()
        self._attributes = loader.attributes(node, scope)
        self._read: set[str] = set()

    # ---- inputs -----------------------------------------------------------------------------

    @property
    def input_count(self) -> int:
        """Number of inputs, missing ones in front of others included."""
        return len(self._inputs)

    @property
    def output_count(self) -> int:
        """Number of outputs named, '' included."""
        return len(self.output_names)

    def wants(self, index: int) -> bool:
        """Return whether somebody may read output `index`."""
        return index < len(self.output_names) and self.output_names[index] != ""

    def input(self, index: int) -> Value:
        """Take a required input.

        Raises:
            MalformedModelError: the node does not have it.
        """
        value = self.optional(index)
        if value is None:
            self.fail(f"input {index} is required, and the node has {len(self._inputs)}")
        return value

    def optional(self, index: int) -> Value | None:
        """Take an optional input: None where the node does not have it."""
        self._taken.add(index)
        if index >= len(self._inputs) or self._inputs[index] == "":
            return None
        found = self.scope.find(self._inputs[index])
        return self.scope.lookup(self._inputs[index], self.where) if found is None else found

    def inputs(self, start: int = 0) -> list[Value]:
        """Take all inputs from `start` on; none of them may be missing."""
        return [self.input(i) for i in range(start, len(self._inputs))]

    def array(self, index: int) -> np.ndarray[Any, Any] | None:
        """Take an optional input that must be a constant, and return its array.

        Raises:
            UnsupportedModelError: it is only known at run time.
        """
        value = self.optional(index)
        if value is None:
            return None
        if value.constant is None:
            self.unsupported(f"input {index} ({value.name}) must be a constant")
        return value.constant

    def sizes(self, index: int, *, lo: int = 0) -> tuple[Size, ...] | None:
        """Take an optional integer input of rank 0 or 1 and return its elements as sizes.

        Elements only known at run time become data symbols of at least `lo`.
        """
        value = self.optional(index)
        return None if value is None else self.graph.read_sizes(value, lo=lo)

    def axes(
        self, value: Value, name: str = "axes", *, guess: Callable[[int], Sequence[int]] = range
    ) -> tuple[int, ...]:
        """Return the elements of a value as axis numbers, not normalised.

        An input of the model is taken to be `guess(count)` until its value is given: another graph
        serves other values (see `kn_graph.variants`).

        Raises:
            UnsupportedModelError: they are only known at run time.
        """
        content = value.content if value.constant is None else value.constant
        if content is not None:
            return tuple(int(a) for a in np.asarray(content).ravel())
        count = size_prod(value.shape)
        decided = None
        if isinstance(count, int) and count <= CONTENT_ELEMS:
            decided = self.graph.decide_value(value, tuple(guess(count)))
        if decided is None:
            self.unsupported(f"{name} ({value.name}) must be known when the model is loaded")
        return decided

    # ---- attributes -------------------------------------------------------------------------

    def has(self, name: str) -> bool:
        """Return whether an attribute is given; this does not take it."""
        return name in self._attributes

    def ignore(self, *names: str) -> None:
        """Take attributes that change no result, such as hints of old opsets."""
        self._read.update(names)

    def _take(self, name: str, kind: str, default: _T) -> Any | _T:
        self._read.add(name)
        attribute = self._attributes.get(name)
        if attribute is None:
            if default is REQUIRED:
                self.fail(f"attribute {name!r} is required")
            return default
        have = attribute_kind(attribute)
        if have != kind:
            self.fail(f"attribute {name!r} must be of kind {kind}, got {have}")
        return self.loader.attribute_value(attribute, have)

    def integer(self, name: str, default: _T = REQUIRED) -> Any:
        """Take an integer attribute."""
        return self._take(name, "INT", default)

    def flag(self, name: str, default: _T = REQUIRED) -> Any:
        """Take an integer attribute that is 0 or 1."""
        value = self._take(name, "INT", default)
        if value not in (0, 1, None):
            self.fail(f"attribute {name!r} must be 0 or 1, got {value}")
        return value if value is None else value == 1

    def real(self, name: str, default: _T = REQUIRED) -> Any:
        """Take a float attribute (float32 in the file)."""
        return self._take(name, "FLOAT", default)

    def text(self, name: str, default: _T = REQUIRED) -> Any:
        """Take a string attribute."""
        return self._take(name, "STRING", default)

    def integers(self, name: str, default: _T = REQUIRED) -> Any:
        """Take a list of integers, as a tuple."""
        return self._take(name, "INTS", default)

    def reals(self, name: str, default: _T = REQUIRED) -> Any:
        """Take a list of floats, as a tuple."""
        return self._take(name, "FLOATS", default)

    def texts(self, name: str, default: _T = REQUIRED) -> Any:
        """Take a list of strings, as a tuple."""
        return self._take(name, "STRINGS", default)

    def tensor(self, name: str, default: _T = REQUIRED) -> Any:
        """Take a tensor attribute as a `LoadedTensor`."""
        return self._take(name, "TENSOR", default)

    def sparse_tensor(self, name: str, default: _T = REQUIRED) -> Any:
        """Take a sparse tensor attribute as a dense `LoadedTensor`."""
        return self._take(name, "SPARSE_TENSOR", default)

    def graph_attribute(self, name: str) -> onnx.GraphProto:
        """Take a subgraph attribute."""
        return self._take(name, "GRAPH", REQUIRED)

    def type_attribute(self, name: str, default: _T = REQUIRED) -> Any:
        """Take a type attribute as a `ValueType`."""
        return self._take(name, "TYPE_PROTO", default)

    def choice(self, name: str, default: str, allowed: Sequence[str]) -> str:
        """Take a string attribute that is one of a few words."""
        value = self.text(name, default)
        if value not in allowed:
            self.fail(f"attribute {name!r} must be one of {', '.join(allowed)}, got {value!r}")
        assert isinstance(value, str)
        return value

    def dtype(self, name: str, default: DType | None = REQUIRED) -> Any:
        """Take an attribute that holds an element type code."""
        code = self.integer(name, default)
        return code if code is default and not isinstance(code, int) else DType.from_onnx(code)

    # ---- outcomes ---------------------------------------------------------------------------

    def fail(self, message: str) -> NoReturn:
        """Raise: the node contradicts the ONNX text."""
        raise MalformedModelError(f"{self.where}: {message}")

    def unsupported(self, message: str) -> NoReturn:
        """Raise: the node is valid, but this library cannot run it."""
        raise UnsupportedModelError(f"{self.where}: {message}. Not an error of your file.")

    @property
    def where(self) -> str:
        """The node in words."""
        return f"node {self.name} ({self.op}-{self.opset})"

    def body(self, name: str, types: Sequence[Any]) -> tuple[Graph, list[Value]]:
        """Take a subgraph attribute and convert it.

        Args:
            name: the attribute.
            types: types of its declared inputs.

        Returns:
            The body, sealed, and the values of this graph that it captures: its further inputs.
        """
        return self.body_of(self.graph_attribute(name), types)

    def body_of(
        self, proto: onnx.GraphProto, types: Sequence[Any], scope: Scope | None = None
    ) -> tuple[Graph, list[Value]]:
        """Convert a subgraph that was taken before, in another scope than the node's if given."""
        (body,), captured = convert_bodies([proto], types, scope or self.scope, self.name)
        return body, captured

    def bodies(self, *names: str) -> tuple[list[Graph], list[Value]]:
        """Take subgraph attributes without declared inputs and convert them.

        Returns:
            The bodies, sealed, and the values that any of them captures: the inputs of each.
        """
        protos = [self.graph_attribute(name) for name in names]
        return convert_bodies(protos, (), self.scope, self.name)

    def inline(self, name: str) -> list[Value]:
        """Take a subgraph attribute without inputs, convert it here, and return its outputs."""
        return convert_inline(self.graph_attribute(name), self.scope)

    def inline_of(self, proto: onnx.GraphProto, inputs: Sequence[Value]) -> list[Value]:
        """Convert a subgraph that was taken before here, and return its outputs."""
        return convert_inline(proto, self.scope, inputs)

    def decide(self, value: Value) -> bool | None:
        """Return the truth of a boolean scalar where it is known, or follows from input sizes.

        The latter is recorded as a guard of the graph; see `kn_graph.variants`.
        """
        return self.loader.decide(value, self.name, self.graph)

    def decide_equal(self, a: Size, b: Size) -> bool | None:
        """Return whether two sizes are equal, recorded as a guard where input sizes decide it.

        None where it only shows at run time.
        """
        return self.loader.decide_truth(size_eq(a, b), self.name, self.graph)

    def normal_axes(self, axes: Sequence[int], rank: int) -> tuple[int, ...]:
        """Return axes counted from 0; raises ShapeError naming a wrong one."""
        return normalize_axes(axes, rank)

    def check_nothing_left(self) -> None:
        """Raise where the converter did not take an attribute or an input."""
        attributes = self._attributes.keys() - self._read
        if attributes:
            self.unsupported(
                f"attribute {min(attributes)!r} is not known for this operator version"
            )
        inputs = [i for i, n in enumerate(self._inputs) if n and i not in self._taken]
        if inputs:
            self.unsupported(f"input {inputs[0]} is not known for this operator version")
