"""From an ONNX model to a graph: scopes, nodes, bodies and functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from kn_graph.condition import Condition, Truth
from kn_graph.dim import Size, parse_size, symbol
from kn_graph.dtype import DType
from kn_graph.errors import InternalError, KnError, MalformedModelError, SymbolError
from kn_graph.graph import Graph
from kn_graph.known import Exact
from kn_graph.onnx.attributes import node_name, plain_attribute
from kn_graph.onnx.context import NodeContext
from kn_graph.onnx.file import ModelFile
from kn_graph.onnx.functions import Functions
from kn_graph.onnx.order import check_extent, differentiated, in_order
from kn_graph.onnx.proto_types import free_shape, value_type
from kn_graph.onnx.registry import find_converter, normal_domain
from kn_graph.onnx.subgraph import branch_off
from kn_graph.onnx.survey import check_supported
from kn_graph.onnx.tensor import TensorReader
from kn_graph.types import (
    OptionalType,
    SequenceType,
    TensorType,
    UnknownRankError,
    UnrankedType,
    ValueType,
)
from kn_graph.value import Value
from kn_graph.variants import Assumptions

if TYPE_CHECKING:
    import onnx

    from kn_graph.op import Content

__all__ = ["LoadOptions", "Loader", "Scope"]

DYNAMIC_LENGTHS = ("past", "cache")
"""Symbols with one of these in their name may be 0 without a variant of its own."""

GRADIENT_DOMAIN = "ai.onnx.preview.training"


@dataclass(frozen=True)
class LoadOptions:
    """How a model is loaded; see `load_graph_from_onnx_path`."""

    input_shapes: Mapping[str, Sequence[int | str | None]] = field(default_factory=dict)
    dims: Mapping[str, int] = field(default_factory=dict)
    external_data: bool | Literal["dummy"] = True
    assumed: Assumptions = field(default_factory=Assumptions)


class Scope:
    """The names that nodes of one ONNX graph (or function) can read.

    Attributes:
        graph: where its nodes are built.
        captures: values of the graph around, by the inputs of this one that stand for them.
        bindings: attributes that a function's caller gave.
    """

    def __init__(
        self,
        loader: Loader,
        graph: Graph,
        opsets: Mapping[str, int],
        outer: Scope | None = None,
        prefix: str = "",
    ) -> None:
        self.loader, self.graph, self.opsets, self.outer = loader, graph, opsets, outer
        self.prefix = prefix
        self.values: dict[str, Value] = {}
        self.initializers: dict[str, onnx.TensorProto | onnx.SparseTensorProto] = {}
        self.captures: dict[Value, Value] = {}
        self.bindings: Mapping[str, onnx.AttributeProto] = {}

    def inside(self, graph: Graph, proto: onnx.GraphProto | None = None) -> Scope:
        """Return a scope of a subgraph, from which the names here can be read."""
        scope = Scope(self.loader, graph, self.opsets, self, prefix=self.prefix)
        scope.bindings = self.bindings
        scope.initializers = {} if proto is None else self.loader.initializers(proto)
        return scope

    def define(self, name: str, value: Value, node: str) -> None:
        """Name a result of a node; ONNX names are defined once."""
        if name in self.values or name in self.initializers:
            raise MalformedModelError(f"node {node}: tensor {name!r} is defined twice")
        self._name(name, value)

    def _name(self, name: str, value: Value) -> None:
        self.values[name] = value
        if name not in value.names:
            value.names = (*value.names, name)

    def lookup(self, name: str, where: str) -> Value:
        """Return the value of a name: defined here, an initializer, or captured from around.

        Raises:
            MalformedModelError: nobody defines it before.
        """
        found = self.find(name)
        if found is None:
            raise MalformedModelError(
                f"{where}: reads tensor {name!r}, which nothing before it defines"
            )
        return found

    def find(self, name: str) -> Value | None:
        """Return the value of a name, or None."""
        own = self.values.get(name)
        if own is not None:
            return own
        scopes: list[Scope] = []
        scope: Scope | None = self
        while scope is not None and name not in scope.values and name not in scope.initializers:
            scopes.append(scope)
            scope = scope.outer
        if scope is None:
            return None
        value = scope.values.get(name)
        if value is None:
            value = scope.load_initializer(name)
        for inner in reversed(scopes):
            value = inner.capture(name, value)
        return value

    def load_initializer(self, name: str) -> Value:
        """Make a constant of an initializer when it is first read."""
        proto = self.initializers[name]
        reader = self.loader.reader
        dense = hasattr(proto, "data_type")
        loaded = reader.array(proto) if dense else reader.sparse(proto)
        value = self.graph.constant(loaded.array, origin=loaded.origin)
        self._name(name, value)
        return value

    def capture(self, name: str, value: Value) -> Value:
        """Make a value of the graph around readable here: as a copy, or as one more input."""
        inner = value if value.graph is self.graph else self._copied(value)
        if inner is None:
            inner = self.captured(value, name)
        self.values[name] = inner
        return inner

    def captured(self, value: Value, name: str) -> Value:
        """Return the input that stands for a value of the graph around, making it when needed."""
        inner = self.captures.get(value)
        if inner is None:
            inner = self.graph.input_of_type(self._free_name(name), value.type)
            inner.know(value.content)
            self.captures[value] = inner
        return inner

    def _copied(self, value: Value) -> Value | None:
        """Copy constants and sizes, so that they fold inside of a body as they do outside."""
        if value.constant is not None:
            op: Any = value.node.op
            return self.graph.constant(op.array, origin=op.origin)
        content = value.content
        if content is None or any(isinstance(e, (Condition, Exact)) for e in content.ravel()):
            return None
        return self.graph.size_tensor(content, value.dtype)

    def _free_name(self, name: str) -> str:
        taken = {v.name for v in self.graph.inputs}
        while name in taken:
            name += "'"
        return name


class Loader:
    """Converts one model file."""

    def __init__(self, file: ModelFile, options: LoadOptions) -> None:
        self.file, self.options = file, options
        self.reader = TensorReader(file, options.external_data)
        self.functions = Functions(file.proto)
        self.opsets = file.opsets
        self.graph = Graph()
        self._pinned: set[str] = set()
        self.branched = 0

    # ---- the whole --------------------------------------------------------------------------

    def load(self) -> Graph:
        """Return the graph of the model.

        Raises:
            ModelError: the file is broken, or needs what is not supported.
        """
        proto = self.file.proto.graph
        check_supported(self.file, self.opsets, self.functions)
        graph = self.graph = Graph(proto.name or self.file.label)
        graph.assumed = self.options.assumed
        scope = Scope(self, graph, self.opsets)
        try:
            check_extent(self.file.proto)
            self._declare(proto, scope)
            self.convert_nodes(proto.node, scope, [o.name for o in proto.output])
            self._name_outputs(proto, scope)
        except KnError as error:
            error.add_context(self.file.label)
            raise
        graph.metadata = self._metadata()
        return graph

    def _declare(self, proto: onnx.GraphProto, scope: Scope) -> None:
        for name, number in self.options.dims.items():
            if number < 0:
                raise SymbolError(f"size {name!r} cannot be {number}", name=name)
        scope.initializers = self.initializers(proto)
        weights = differentiated(proto.node) if GRADIENT_DOMAIN in self.opsets else frozenset[str]()
        overridable = set()
        for info in proto.input:
            if not info.name or info.name in scope.values or info.name in overridable:
                raise MalformedModelError(f"two inputs are called {info.name!r}")
            if info.name not in scope.initializers:
                self._declare_input(info, scope)
            elif info.name in self.options.assumed.fed or info.name in weights:
                self._declare_default(info, scope)
            else:
                overridable.add(info.name)
        for name in sorted(weights & scope.initializers.keys()):
            self._declare_weight(name, scope)
        unknown = self.options.input_shapes.keys() - {i.name for i in proto.input}
        if unknown:
            names = ", ".join(repr(i.name) for i in proto.input)
            raise SymbolError(f"input_shapes names {min(unknown)!r}; the inputs are {names}")
        scope.graph.overridable = frozenset(overridable)
        self._check_dims(scope.graph)

    def _check_dims(self, graph: Graph) -> None:
        """Refuse numbers for sizes that no input has, which would change nothing."""
        for name in self.options.dims:
            if name not in self._pinned:
                known = ", ".join(map(repr, [*graph.symbols, *self._pinned])) or "none"
                raise SymbolError(
                    f"the inputs have no symbolic size {name!r}; they have {known}", name=name
                )

    def _name_outputs(self, proto: onnx.GraphProto, scope: Scope) -> None:
        if not proto.output:
            raise MalformedModelError("the graph has no outputs, so there is nothing to run")
        for output in proto.output:
            if output.name not in scope.graph.outputs:  # named twice, it is the same result
                scope.graph.output(output.name, scope.lookup(output.name, "graph outputs"))

    def initializers(self, proto: onnx.GraphProto) -> dict[str, Any]:
        """Return the initializers of a graph by name."""
        found: dict[str, Any] = {t.name: t for t in proto.initializer}
        found |= {t.values.name: t for t in proto.sparse_initializer}
        names = [t.name for t in proto.initializer if t.name]
        names += [t.values.name for t in proto.sparse_initializer]
        if len(set(names)) < len(names):
            twice = next(n for i, n in enumerate(names) if n in names[:i])
            raise MalformedModelError(f"two initializers are called {twice!r}")
        return found

    def _declare_default(self, info: onnx.ValueInfoProto, scope: Scope) -> None:
        proto: Any = scope.initializers.pop(info.name)
        array = self.reader.array(proto).array
        self._declare_input(info, scope)
        scope.graph.defaults[info.name] = array

    def _declare_weight(self, name: str, scope: Scope) -> None:
        """Make an input with a default of an initializer, which as a constant might be merged."""
        proto: Any = scope.initializers.pop(name)
        array = self.reader.array(proto).array
        dtype = DType.from_numpy(array.dtype)
        scope.values[name] = scope.graph.input(name, dtype, array.shape, default=array)

    def _declare_input(self, info: onnx.ValueInfoProto, scope: Scope) -> None:
        type = value_type(info.type, info.name, lambda text: self._symbol(scope.graph, text))
        given = self.options.input_shapes.get(info.name)
        if given is not None:
            type = self._shaped(type, scope.graph, info.name, given)
        value = scope.values[info.name] = scope.graph.input_of_type(info.name, type)
        elements = self.options.assumed.values.get(info.name)
        if elements is not None and isinstance(type, TensorType):
            known = _known(type, elements)
            value.know(known)
            scope.graph.assumed_values[info.name] = tuple(known.ravel().tolist())

    def _shaped(
        self, type: ValueType, graph: Graph, name: str, given: Sequence[int | str | None]
    ) -> ValueType:
        """Return the type of an input with the shape that the user gives; of a sequence, its rank.

        Raises:
            SymbolError: it has no shape.
        """
        if isinstance(type, OptionalType):
            return OptionalType(self._shaped(type.elem, graph, name, given))
        if isinstance(type, SequenceType) and isinstance(type.elem, (TensorType, UnrankedType)):
            return SequenceType(TensorType(type.elem.dtype, free_shape(name, len(given))))
        if isinstance(type, (TensorType, UnrankedType)):
            sizes = (self._given_size(graph, name, a, s) for a, s in enumerate(given))
            return TensorType(type.dtype, tuple(sizes))
        raise SymbolError(f"input_shapes gives {name!r} a shape, but it is a {type}", name=name)

    def _given_size(self, graph: Graph, name: str, axis: int, size: int | str | None) -> Size:
        if isinstance(size, int):
            return size
        return self._symbol(graph, f"{name}_{axis}" if size is None else size)

    def _symbol(self, graph: Graph, text: str) -> Size:
        """Return the size that a dim_param stands for: a symbol, or an expression of symbols."""

        def named(name: str) -> Size:
            for pinned in (self.options.dims, self.options.assumed.sizes):
                if name in pinned:
                    self._pinned.add(name)
                    return pinned[name]
            lo = 0 if any(word in name.lower() for word in DYNAMIC_LENGTHS) else 1
            return graph.symbol(name, lo=lo)

        try:
            parse_size(text, symbol)  # before any of its names becomes a symbol of the graph
        except ValueError:
            return named(text)
        try:
            size = parse_size(text, named)
        except (ValueError, ZeroDivisionError):
            size = -1
        if isinstance(size, int) and size < 0:
            raise SymbolError(f"the numbers given for sizes leave none for {text!r}")
        return size

    def _metadata(self) -> dict[str, str]:
        proto = self.file.proto
        facts = {
            "producer": " ".join(filter(None, (proto.producer_name, proto.producer_version))),
            "domain": proto.domain,
            "description": proto.doc_string,
            "ir_version": str(proto.ir_version),
            "opsets": ", ".join(f"{d or 'ai.onnx'} {v}" for d, v in self.opsets.items()),
        }
        facts |= {p.key: p.value for p in proto.metadata_props}
        return {k: v for k, v in facts.items() if v}

    # ---- nodes ------------------------------------------------------------------------------

    def convert_nodes(
        self, nodes: Sequence[onnx.NodeProto], scope: Scope, wanted: Sequence[str]
    ) -> None:
        """Convert nodes in order; `wanted` are the names that are read afterwards."""
        ordered = in_order(nodes)
        for done, node in enumerate(ordered):
            try:
                self.convert_node(node, scope)
            except UnknownRankError:
                if not branch_off(ordered, done, wanted, scope):
                    raise
                return

    def convert_node(self, node: onnx.NodeProto, scope: Scope) -> None:
        """Convert one node and define its outputs."""
        domain = normal_domain(node.domain)
        opset = scope.opsets.get(domain, 0)
        name = scope.prefix + node_name(node)
        # nodes that a function's body is made of stand for the node that called it
        naming = nullcontext() if scope.prefix else scope.graph.origin(name)
        with naming:
            try:
                results = self._results(node, domain, opset, name, scope)
            except KnError as error:
                if not str(error).startswith("node "):
                    error.add_context(f"node {name} ({node.op_type}-{opset})")
                raise
            except Exception as error:
                raise InternalError(
                    f"node {name} ({node.op_type}-{opset}): the converter failed with "
                    f"{type(error).__name__}: {error}. Please report this."
                ) from error
        outputs = list(node.output)
        if len(results) < len(outputs) - outputs.count(""):
            raise MalformedModelError(
                f"node {name} ({node.op_type}-{opset}): has {len(outputs)} outputs, "
                f"the operator gives {len(results)}"
            )
        for output, value in zip(outputs, results, strict=False):
            if output and value is not None:
                scope.define(output, value, name)

    def _results(
        self, node: onnx.NodeProto, domain: str, opset: int, name: str, scope: Scope
    ) -> Sequence[Value | None]:
        local = self.functions.local(domain, node.op_type, node.overload)
        found = None if local is not None else find_converter(domain, node.op_type, opset)
        if found is None:
            inputs = [scope.lookup(i, f"node {name}") if i else None for i in node.input]
            node = self._resolved_node(node, scope)
            function = local or self.functions.of_schema(node, domain, opset, inputs)
            return self._call(function, node, inputs, scope, name)
        context = NodeContext(self, scope, node, opset, name)
        out = found.function(context)
        context.check_nothing_left()
        return [out] if out is None or isinstance(out, Value) else out

    def _call(
        self,
        function: onnx.FunctionProto,
        node: onnx.NodeProto,
        inputs: Sequence[Value | None],
        scope: Scope,
        name: str,
    ) -> list[Value | None]:
        """Convert the body of a function in place of the node that calls it."""
        own = {normal_domain(o.domain): o.version for o in function.opset_import}
        # bodies of preview operators use ai.onnx without importing it
        inner = Scope(self, scope.graph, {**scope.opsets, **own}, prefix=f"{name}/")
        given = {a.name: a for a in node.attribute}
        defaults = {a.name: a for a in function.attribute_proto}
        inner.bindings = {**defaults, **given}
        for parameter, value in zip(function.input, inputs, strict=False):
            if value is not None:
                inner.values[parameter] = value
        self.convert_nodes(function.node, inner, function.output)
        # optional outputs that the body leaves out may be missing where nobody wants them
        wanted = [o for o, _ in zip(function.output, node.output, strict=False)]
        return [inner.find(o) for o in wanted]

    def _resolved_node(self, node: onnx.NodeProto, scope: Scope) -> onnx.NodeProto:
        """Return a node whose attributes refer to no parameter of a function around it."""
        if not any(a.ref_attr_name for a in node.attribute):
            return node
        import onnx

        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        del copy.attribute[:]
        copy.attribute.extend(self.attributes(node, scope).values())
        return copy

    def _resolved(self, attribute: onnx.AttributeProto, scope: Scope) -> onnx.AttributeProto:
        if not attribute.ref_attr_name:
            return attribute
        import onnx

        bound = scope.bindings.get(attribute.ref_attr_name)
        if bound is None:
            return attribute
        copy = onnx.AttributeProto()
        copy.CopyFrom(bound)
        copy.name = attribute.name
        return copy

    # ---- what converters ask ----------------------------------------------------------------

    def attributes(self, node: onnx.NodeProto, scope: Scope) -> dict[str, onnx.AttributeProto]:
        """Return the attributes of a node, references to a function's parameters resolved."""
        given = node.attribute
        if scope.bindings:
            given = [self._resolved(a, scope) for a in given]
        return {a.name: a for a in given if not a.ref_attr_name}

    def attribute_value(self, attribute: onnx.AttributeProto, kind: str) -> Any:
        """Return the value of an attribute of a kind as a Python object."""
        if kind == "TENSOR":
            return self.reader.array(attribute.t)
        if kind == "SPARSE_TENSOR":
            return self.reader.sparse(attribute.sparse_tensor)
        if kind == "TYPE_PROTO":
            return value_type(attribute.tp, attribute.name, lambda text: -1)
        return plain_attribute(attribute, kind)

    def decide(self, value: Value, why: str, graph: Graph) -> bool | None:
        """See `NodeContext.decide`."""
        content = value.content
        if content is None or content.size != 1:
            return None
        return self.decide_truth(content.ravel()[0], why, graph)

    def decide_truth(self, truth: Truth, why: str, graph: Graph) -> bool | None:
        """See `NodeContext.decide_equal`."""
        if not isinstance(truth, Condition):
            return bool(truth)
        return graph.decide(truth, why)


def _known(type: TensorType, elements: Sequence[int]) -> Content:
    """Return elements of an input as the graph holds what it knows."""
    known = np.empty(len(elements), object)
    known[:] = [bool(e) if type.dtype is DType.BOOL else int(e) for e in elements]
    return known.reshape([int(s) for s in type.shape if isinstance(s, int)])
