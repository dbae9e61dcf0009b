"""The graph: append-only nodes in topological order, in single static assignment form."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from kn_graph.builder import (
    ControlBuilder,
    ElementwiseBuilder,
    ImageBuilder,
    IndexBuilder,
    LayoutBuilder,
    NnBuilder,
    QuantizeBuilder,
    RecurrentBuilder,
    SignalBuilder,
)
from kn_graph.condition import Condition, Guard
from kn_graph.contents import content_of
from kn_graph.decisions import Decisions
from kn_graph.dim import Dim, Size, Symbol, SymbolKind, symbol
from kn_graph.dim_facts import Constraints, SizeError
from kn_graph.dtype import DType, DTypeLike
from kn_graph.errors import GraphError, KnError, ShapeError
from kn_graph.joined import known_sizes
from kn_graph.known import Exact
from kn_graph.op import Content, Op, op_symbols
from kn_graph.ops.source import Constant, Input, ReadSizes, Sizes, constant_array, scalar_array
from kn_graph.origin import Origin
from kn_graph.sizes import as_size
from kn_graph.types import TensorType, ValueType, tensor_types_of
from kn_graph.value import Node, Value
from kn_graph.variants import Assumptions, VariantSource, variant_for

__all__ = ["Graph"]

MAX_RANK = 64
"""NumPy's limit."""


class Graph(
    LayoutBuilder,
    ElementwiseBuilder,
    NnBuilder,
    IndexBuilder,
    RecurrentBuilder,
    QuantizeBuilder,
    ControlBuilder,
    ImageBuilder,
    SignalBuilder,
    Decisions,
):
    """A program over tensors.

    Nodes are appended and never changed; their order is topological. Equal pure nodes are merged
    as they are built, so common subexpressions exist once. Building methods such as `add` or
    `permute` check their operands and return values of this graph.

    Not thread-safe while it is being built; any number of threads may read a sealed graph.

    Attributes:
        name: what texts call it.
        parent: the graph around a control-flow body, else None.
        nodes: all nodes, dead ones too.
        inputs: the values that the caller gives, in order.
        outputs: the results, by name, in order.
        defaults: inputs that may be left out, with the array that is used then.
        overridable: initializers that a caller may feed; they are constants until somebody does.
        symbols: the symbolic sizes that inputs bind, by name.
        constraints: what must hold for sizes, checked when they are known.
        guards: what was assumed about sizes; where one is broken, `variant` gives another graph.
        body_guards: those of all control-flow bodies inside; they matter where the body runs.
        assumed_values: elements of small integer inputs that the structure follows from, such as
            axes; for others, `variant_source` builds another graph.
        assumed: what open conditions on sizes are decided by while the graph is loaded.
        variant_source: builds the graph again under other assumptions.
        metadata: facts about the model file, as text.
        size_sources: the node that binds each data symbol.
    """

    def __init__(self, name: str = "", *, parent: Graph | None = None) -> None:
        self.name = name
        self.parent = parent
        self.nodes: list[Node] = []
        self.inputs: list[Value] = []
        self.outputs: dict[str, Value] = {}
        self.defaults: dict[str, np.ndarray[Any, Any]] = {}
        self.overridable: frozenset[str] = frozenset()
        self.symbols: dict[str, Dim] = {} if parent is None else parent.symbols
        self.constraints = Constraints()
        self.guards: list[Guard] = []
        self.body_guards: list[Guard] = []
        self.assumed_values: dict[str, tuple[int, ...]] = {}
        self.assumed: Assumptions | None = None
        self.variant_source: VariantSource | None = None
        self.metadata: dict[str, str] = {}
        self.size_sources: dict[Symbol, Node] = {}
        self._known: dict[tuple[Op, tuple[Value, ...]], Node] = {}
        self._inferred: dict[tuple[Op, tuple[ValueType, ...]], tuple[ValueType, ...]] = {}
        self._read: dict[Value, tuple[Dim, ...]] = {}
        self._origin: str | None = None
        self._sealed = False

    # ---- building ---------------------------------------------------------------------------

    def input(
        self,
        name: str,
        dtype: DTypeLike,
        shape: Sequence[int | str | Dim | None],
        *,
        default: np.ndarray[Any, Any] | None = None,
    ) -> Value:
        """Declare a tensor that the caller gives.

        Args:
            name: its name; no two inputs share one.
            dtype: element type, such as 'float32'.
            shape: one size an axis: a number, the name of a symbol (equal names are equal sizes),
                None for a size of its own, or an expression of symbols.
            default: used when the caller gives nothing.
        """
        sizes = tuple(self._declared_size(name, axis, s) for axis, s in enumerate(shape))
        value = self.input_of_type(name, TensorType(DType.of(dtype), sizes))
        if default is not None:
            self.defaults[name] = default
        return value

    def _declared_size(self, name: str, axis: int, size: int | str | Dim | None) -> Size:
        if size is None:
            return self.symbol(f"{name}_{axis}")
        if isinstance(size, str):
            if not size:
                raise ShapeError(f"the size of axis {axis} of input {name!r} has an empty name")
            return self.symbol(size)
        self.require_ge(as_size(size), 0, f"size of axis {axis} of input {name!r} is not negative")
        return as_size(size)

    def input_of_type(self, name: str, type: ValueType) -> Value:
        """Declare an input of any type, such as a sequence."""
        if any(v.name == name for v in self.inputs):
            raise GraphError(f"two inputs are called {name!r}")
        value = self.push(Input(name, type))
        value.names = (name,)
        self.inputs.append(value)
        return value

    def symbol(self, name: str, *, lo: int = 1) -> Dim:
        """Return the symbolic size of this name, making it when it is new."""
        found = self.symbols.get(name)
        if found is None:
            found = self.symbols[name] = symbol(name, lo=lo)
        return found

    def constant(self, array: Any, *, origin: tuple[str, int, int] | None = None) -> Value:
        """Add an array. It must not be changed afterwards."""
        return self.push(Constant(constant_array(array), origin))

    def scalar(self, number: Any, dtype: DTypeLike) -> Value:
        """Add a constant of rank 0; integer types take no other number than the one given."""
        return self.constant(scalar_array(number, DType.of(dtype)))

    def size_tensor(self, content: Any, dtype: DTypeLike = DType.INT64) -> Value:
        """Add an integer tensor whose elements are sizes: a constant where all are numbers."""
        dtype, content = DType.of(dtype), np.asarray(content, object)
        values = tuple(content.ravel().tolist())
        if all(isinstance(v, int) for v in values):
            return self.constant(content.astype(dtype.numpy))
        return self.push(Sizes(values, content.shape, dtype))

    def output(self, name: str, value: Value) -> None:
        """Name a result of the graph."""
        self._check_open()
        if name in self.outputs:
            raise GraphError(f"two outputs are called {name!r}")
        self._check_owned((value,))
        self.outputs[name] = value

    def push(self, op: Op, *operands: Value) -> Value:
        """Apply an operation that has one result, and return that."""
        (value,) = self.push_all(op, *operands)
        return value

    def push_all(self, op: Op, *operands: Value) -> tuple[Value, ...]:
        """Apply an operation and return all its results.

        An equal pure node is used again; an operation that changes nothing returns its operand;
        small integer results that follow from sizes alone become constants or `Sizes`.

        Raises:
            ShapeError, DTypeError: the operands do not fit.
            GraphError: an operand belongs to another graph, or this one is sealed.
        """
        self._check_open()
        self._check_owned(operands)
        same = op.forward(operands)
        if same is not None:
            self._note(same.node)
            return (same,)
        key = (op, operands)
        node = self._known.get(key) if op.pure else None
        if node is None:
            types, binds = self._infer(op, operands)
            content = content_of(self, op, operands, types)
            if content is not None and not (isinstance(op, Sizes) and op_symbols(op)):
                folded = self._folded(content, types[0])
                if folded is not None:
                    return (folded,)
            node = self._append(op, operands, types)
            if binds:
                self._note_symbols(node)
            if content is not None:
                node.results[0]._content = content
            if op.pure:
                self._known[key] = node
        self._note(node)
        return node.results

    def adopt(
        self, node: Node, operands: tuple[Value, ...], op: Op | None = None
    ) -> tuple[Value, ...]:
        """Repeat a node of another graph onto operands of this one, with the types it has.

        For copies of whole graphs: nothing is inferred, checked or folded again.

        Args:
            node: of the other graph.
            operands: of this one.
            op: takes the place of the node's operation.
        """
        op = op or node.op
        key = (op, operands)
        mine = self._known.get(key) if op.pure else None
        if mine is None:
            mine = self._append(op, operands, [v.type for v in node.results])
            if node.graph.size_sources:
                self._note_symbols(mine)
            mine.origins = node.origins
            for old, new in zip(node.results, mine.results, strict=True):
                new._content, new.names = old._content, old.names
            if op.pure:
                self._known[key] = mine
            if isinstance(op, ReadSizes):
                self._read[operands[0]] = op.symbols
            return mine.results
        for old, new in zip(node.results, mine.results, strict=True):
            new.names = _united(new.names, old.names)
        mine.origins = _united(mine.origins, node.origins)
        return mine.results

    def forget(self, node: Node) -> None:
        """Build an equal node anew the next time, instead of using this one again."""
        key = (node.op, node.operands)
        if node.op.pure and self._known.get(key) is node:
            del self._known[key]

    def _infer(self, op: Op, operands: tuple[Value, ...]) -> tuple[tuple[ValueType, ...], bool]:
        """Apply the type rule; return also whether the node may be the one that binds symbols.

        Layers repeat, so what it said is kept; not with data symbols, of which each node has its
        own.
        """
        key = (op, tuple([v.type for v in operands]))
        types = self._inferred.get(key)
        if types is not None:
            return types, False
        types = self._type_rule(op, operands)
        if isinstance(op, ReadSizes) or any(map(_is_data, _open_sizes(types))):
            return types, True
        self._inferred[key] = types
        return types, False

    def _type_rule(self, op: Op, operands: tuple[Value, ...]) -> tuple[ValueType, ...]:
        try:
            types = op.infer(self, *[v.type for v in operands])
            types = types if isinstance(types, tuple) else (types,)
            for t in types:
                if isinstance(t, TensorType) and len(t.shape) > MAX_RANK:
                    raise ShapeError(f"the result has rank {t.rank}, the limit is {MAX_RANK}")
        except KnError as error:
            given = ", ".join(f"{v.name}: {v.type}" for v in operands)
            error.add_context(f"{op.title}({given})")
            raise
        return types

    def _append(self, op: Op, operands: tuple[Value, ...], types: Sequence[ValueType]) -> Node:
        node = Node(self, len(self.nodes), op, operands)
        node.results = tuple([Value(node, i, t) for i, t in enumerate(types)])
        self.nodes.append(node)
        return node

    def _note_symbols(self, node: Node) -> None:
        """Take note of the data symbols that a node binds."""
        op = node.op
        types = [v.type for v in node.results]
        for size in op.symbols if isinstance(op, ReadSizes) else _open_sizes(types):
            symbol = size.as_symbol
            if symbol is not None and symbol.kind is SymbolKind.DATA:
                self.size_sources.setdefault(symbol, node)

    def _folded(self, content: Content, t: ValueType) -> Value | None:
        assert isinstance(t, TensorType)
        if any(isinstance(e, (Condition, Exact)) for e in content.flat):
            return None
        return self.size_tensor(content, t.dtype)

    def _check_open(self) -> None:
        if self._sealed:
            raise GraphError(f"graph {self.name!r} is sealed: it can no longer be changed")

    def _check_owned(self, values: Iterable[Value]) -> None:
        """Raise GraphError where a value belongs to another graph."""
        for v in values:
            if v.node.graph is not self:
                raise GraphError(
                    f"value {v.name} belongs to graph {v.graph.name!r}, not to {self.name!r}"
                )

    def _note(self, node: Node) -> None:
        origin = self._origin
        if origin is not None and origin not in node.origins:
            node.origins = (*node.origins, origin)

    def origin(self, name: str) -> AbstractContextManager[None]:
        """Within the context, every node built or used again stands for the ONNX node `name`."""
        return Origin(self, name)

    def seal(self) -> Graph:
        """Forbid further changes, and return the graph."""
        self._sealed = True
        self._known.clear()
        self._inferred.clear()
        return self

    @property
    def root(self) -> Graph:
        """The outermost graph: itself, unless it is a control-flow body."""
        graph = self
        while graph.parent is not None:
            graph = graph.parent
        return graph

    @property
    def sealed(self) -> bool:
        """Whether the graph can no longer be changed."""
        return self._sealed

    # ---- sizes ------------------------------------------------------------------------------

    def require_eq(self, a: Size, b: Size, why: str) -> None:
        """Record that two sizes are equal; raise ShapeError where they cannot be."""
        if a is b or (isinstance(a, int) and isinstance(b, int) and a == b):
            return
        try:
            self.constraints.require_eq(a, b, why)
        except SizeError as error:
            raise ShapeError(str(error)) from None

    def require_ge(self, a: Size, b: Size, why: str) -> None:
        """Record that a >= b; raise ShapeError where that is impossible."""
        if isinstance(a, int) and isinstance(b, int) and a >= b:
            return
        try:
            self.constraints.require_ge(a, b, why)
        except SizeError as error:
            raise ShapeError(str(error)) from None

    def data_symbol(self, name: str, *, lo: int = 0, hi: int | None = None) -> Dim:
        """Return a new size that is bound when a node has run."""
        return symbol(name, lo=lo, hi=hi, kind=SymbolKind.DATA)

    def read_sizes(self, value: Value, *, name: str = "n", lo: int = 0) -> tuple[Size, ...]:
        """Return the elements of an integer tensor of rank 0 or 1 as sizes.

        Elements that follow from sizes are returned as such; others become data symbols, bound when
        the graph runs.

        Raises:
            ShapeError: the number of elements is only known at run time.
        """
        content = value.content
        if content is not None:
            return tuple(content.ravel().tolist())
        if value.rank == 0:
            value = self.view(value, (1,))
        (count,) = value.shape
        if not isinstance(count, int):
            raise ShapeError(f"{value.name} holds sizes, but how many is only known at run time")
        if value not in self._read:
            base = value.names[0] if value.names else f"{name}{value.node.index}"
            symbols = tuple(
                self.data_symbol(f"{base}_{i}" if count > 1 else base, lo=lo) for i in range(count)
            )
            self.push(ReadSizes(symbols), value)
            self._read[value] = symbols
        pairs = zip(known_sizes(value), self._read[value], strict=True)
        return tuple(s if k is None else k for k, s in pairs)

    def input_symbols(self) -> frozenset[Symbol]:
        """Return the symbols that inputs bind."""
        found = (d.as_symbol for d in self.symbols.values())
        return frozenset(s for s in found if s is not None)

    # ---- looking ----------------------------------------------------------------------------

    def find(self, name: str) -> Value:
        """Return the value that holds the ONNX tensor `name`, or that is `%number`.

        Raises:
            GraphError: there is none; the text lists names that are close.
        """
        by_name = {n: v for node in self.nodes for v in node.results for n in v.names}
        by_name |= self.outputs
        if name in by_name:
            return by_name[name]
        index, _, result = name.removeprefix("%").partition(".")
        if name.startswith("%") and index.isdecimal() and (result or "0").isdecimal():
            results = self.nodes[int(index)].results if int(index) < len(self.nodes) else ()
            if int(result or 0) < len(results):
                return results[int(result or 0)]
        from difflib import get_close_matches

        close = ", ".join(get_close_matches(name, by_name, n=3)) or "none close"
        raise GraphError(f"graph {self.name!r} has no value {name!r} (similar names: {close})")

    def variant(self, env: Mapping[Symbol, int]) -> Graph:
        """Return the graph that is valid for these sizes: this one, or one built for them."""
        return variant_for(self, env)

    def specialize(self, dims: Mapping[str, int]) -> Graph:
        """Return a copy with symbols replaced by numbers, folded again."""
        from kn_graph.transform import specialize

        return specialize(self, dims)

    def extract(self, inputs: Sequence[str | Value], outputs: Sequence[str | Value]) -> Graph:
        """Return the part of the graph between some values and others, as a graph of its own."""
        from kn_graph.splice import extract

        return extract(self, inputs, outputs)

    def inline(self, other: Graph, inputs: Mapping[str, Value]) -> dict[str, Value]:
        """Copy another graph into this one, values in place of its inputs; return its outputs."""
        from kn_graph.splice import inline

        return inline(self, other, inputs)

    def verify(self) -> None:
        """Check every invariant of the graph and of the bodies in it.

        Raises:
            VerifyError: one is broken, which is a bug of whoever built the graph.
        """
        from kn_graph.verify import verify

        verify(self)

    def __str__(self) -> str:
        """Return the whole graph as text, one node a line."""
        from kn_graph.text import graph_text

        return graph_text(self)

    def __repr__(self) -> str:
        """Return name and counts."""
        return (
            f"<Graph {self.name!r}: {len(self.nodes)} nodes, "
            f"{len(self.inputs)} inputs, {len(self.outputs)} outputs>"
        )

    def _repr_svg_(self) -> str | None:
        from kn_graph.render.svg import notebook_svg  # pictures are made of graphs

        return notebook_svg(self)


def _is_data(size: Dim) -> bool:
    return any(s.kind is SymbolKind.DATA for s in size.symbols)


def _open_sizes(types: Iterable[ValueType]) -> list[Dim]:
    """Return the sizes in types that are no numbers."""
    return [
        size
        for t in types
        for tensor in ((t,) if isinstance(t, TensorType) else tensor_types_of(t))
        for size in tensor.shape
        if not isinstance(size, int)
    ]


def _united(a: tuple[str, ...], b: tuple[str, ...]) -> tuple[str, ...]:
    return (*a, *(x for x in b if x not in a)) if a else b
