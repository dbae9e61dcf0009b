"""A graph as an ONNX model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kn_graph.dim import Dim, Let, Size, Symbol, substitute, symbol
from kn_graph.dim.evaluate import ordered_atoms
from kn_graph.dtype import DType
from kn_graph.errors import UnsupportedModelError, UnsupportedOperator, UsageError
from kn_graph.graph import Graph
from kn_graph.liveness import bodies_of, live_nodes
from kn_graph.onnx.proto_types import type_proto
from kn_graph.onnx.write.fitting import check_dtype
from kn_graph.onnx.write.names import Names
from kn_graph.onnx.write.node import NodeWriter
from kn_graph.onnx.write.plan import Plan
from kn_graph.onnx.write.registry import CannotWriteError, find_writer
from kn_graph.onnx.write.scope import Scope
from kn_graph.onnx.write.tensor import DataFile, tensor_proto
from kn_graph.ops.source import Constant, Input
from kn_graph.types import (
    TensorType,
    ValueType,
    map_type_sizes,
)
from kn_graph.value import Node, Value

if TYPE_CHECKING:
    import onnx

__all__ = ["ModelWriter", "model_constants"]

LOWEST_OPSET = 21
ML, ML_OPSET = "ai.onnx.ml", 5
DERIVED = frozenset({"producer", "domain", "description", "ir_version", "opsets"})
"""Facts of a graph that are fields of a model; all others are metadata."""
OPTIONAL_LISTING = 4
"""The version of the format from which on a weight is an input only where it may be fed."""
ASSUMES = "kn.assumes"
"""Key of what holds for the sizes that a written graph is right for."""


def model_constants(graph: Graph) -> list[Constant]:
    """Return the constants of a graph and of its bodies that are needed, each once."""
    found: dict[Constant, None] = {}
    pending = [graph]
    while pending:
        current = pending.pop()
        for node in live_nodes(current, current.outputs.values()):
            if isinstance(node.op, Constant):
                found.setdefault(node.op)
            pending += bodies_of(node)
    return list(found)


class ModelWriter:
    """Writes one graph.

    Attributes:
        names: of the tensors.
        dtypes: element types of the tensors written so far, by name.
    """

    def __init__(self, graph: Graph, opset: int, data: DataFile | None = None) -> None:
        import onnx

        newest = onnx.defs.onnx_opset_version()
        if not LOWEST_OPSET <= opset <= newest:
            raise UsageError(f"opset {opset}: models are written for {LOWEST_OPSET} to {newest}")
        self.graph, self._opset, self._data = graph, opset, data
        self.names = Names([*(v.name for v in graph.inputs), *graph.outputs])
        self.dtypes: dict[str, DType] = {}
        self._node_names = Names(())
        self._tensor_names = set(graph.outputs)
        self._domains: dict[str, int] = {"": opset}
        self._constants: dict[Constant, str] = {}
        self._wanted: dict[Constant, tuple[str, ...]] = {}
        self._fixed: dict[Constant, str] = {}
        self._refused: list[tuple[Node, str]] = []
        self._collect_names()

    def opset(self, domain: str) -> int:
        """Return the version of a domain's operators; the model imports it from then on."""
        return self._domains.setdefault(domain, ML_OPSET)

    # ---- constants ------------------------------------------------------------------------------

    def _collect_names(self) -> None:
        """Know the names of all constants before any is written: equal ones are one."""
        pending = [self.graph]
        while pending:
            graph = pending.pop(0)
            for node in live_nodes(graph, graph.outputs.values()):
                self._tensor_names.update(n for v in node.results for n in v.names)
                if isinstance(node.op, Constant):
                    before = self._wanted.get(node.op, ())
                    self._wanted[node.op] = (*before, *node.results[0].names)
                pending += bodies_of(node)
        # older files list every weight among the inputs, which other engines then would not fold
        old = int(self.graph.metadata.get("ir_version", OPTIONAL_LISTING)) < OPTIONAL_LISTING
        listed = frozenset[str]() if old else self.graph.overridable
        for op, names in self._wanted.items():
            fed = [n for n in dict.fromkeys(names) if n in listed]
            if len(fed) == 1:
                self._fixed[op] = fed[0]
                self.names.prefer(fed)

    def constant(self, op: Constant) -> str:
        """Return the name of the initializer that holds a constant."""
        name = self._constants.get(op)
        if name is None:
            name = self._fixed.get(op) or self.names.prefer(self._wanted.get(op, ()))
            name = name or self.names.invent("const")
            self._constants[op] = name
            dtype = DType.from_numpy(op.array.dtype)
            check_dtype(dtype, self._opset)
            self.dtypes[name] = dtype
        return name

    # ---- graphs ---------------------------------------------------------------------------------

    def write(self) -> onnx.ModelProto:
        """Return the model.

        Raises:
            UnsupportedModelError: ONNX cannot say some nodes; lists all of them.
        """
        import onnx

        self._refuse_assumed()
        scope = Scope(self, self.graph)
        for v in self.graph.inputs:
            self.declare(scope, v, v.name)
        for v in self.graph.inputs:
            scope.sizes.solve(v, scope.names[v])
        self.write_nodes(scope)
        self._name_outputs(scope)
        self._raise_refused()
        proto = onnx.ModelProto(producer_name="kn")
        proto.graph.name = self.graph.name or "graph"
        proto.graph.node.extend(scope.nodes)
        self._add_initializers(proto.graph)
        proto.graph.input.extend(self.value_info(v.name, v.type) for v in self.graph.inputs)
        proto.graph.input.extend(self._overridable())
        proto.graph.output.extend(self.value_info(n, v.type) for n, v in self.graph.outputs.items())
        self._finish(proto)
        return proto

    def _refuse_assumed(self) -> None:
        """Refuse a graph whose structure follows from the elements of an input: it has variants."""
        for name, numbers in self.graph.assumed_values.items():
            raise UnsupportedModelError(
                f"the graph holds for input {name!r} = {list(numbers)} only, since it says which "
                "axes or steps there are: ONNX has no form of it; make it an initializer"
            )

    def declare(self, scope: Scope, value: Value, name: str) -> None:
        """Name a value that a graph gets from outside."""
        scope.names[value] = name
        dtype = getattr(value.type, "dtype", None)
        if dtype is not None:
            self.dtypes[name] = dtype
        scope.sizes.show(value, name)

    def write_nodes(self, scope: Scope) -> None:
        """Write what the outputs of a scope's graph need."""
        plan = Plan(scope.graph)
        scope.plan = plan
        by_value: dict[Value, list[str]] = {}
        if scope.parent is None:
            for name, value in scope.graph.outputs.items():
                by_value.setdefault(plan.resolve(value), []).append(name)
        for node in plan.nodes:
            if isinstance(node.op, (Input, Constant)):
                continue  # constants are written where they are read first
            try:
                self._write_node(scope, plan, node, by_value)
            except CannotWriteError as reason:
                self._refused.append((node, str(reason)))
                for v in node.results:
                    self.declare(scope, v, self.names.invent("refused"))

    def _write_node(
        self, scope: Scope, plan: Plan, node: Node, outputs: dict[Value, list[str]]
    ) -> None:
        function = plan.writers.get(node) or find_writer(type(node.op))
        if function is None:
            raise CannotWriteError("it has no ONNX operator")
        first = len(scope.nodes)
        written = function(NodeWriter(scope, node, plan.reads[node]), node.op)
        names = [written] if isinstance(written, str) else list(written)
        fresh = scope.nodes[first:]
        for value, name in zip(node.results, names, strict=True):
            name = self._renamed(scope, fresh, value, name, outputs.get(value, []))
            self.declare(scope, value, name)
        for proto in fresh:
            # further origins are of nodes that only passed the value on
            self.name_node(proto, node.origins[:1] if proto is fresh[-1] else ())

    def name_node(self, proto: onnx.NodeProto, origins: Sequence[str] = ()) -> None:
        """Name a node as in the file it comes from, else by its output; no two are called alike."""
        output = proto.output[0]
        # one that is the name of another tensor would take it from the node that makes that
        free = [n for n in origins if n == output or n not in self._tensor_names]
        name = self._node_names.prefer([*free, output])
        if name is None:
            name = output if Names.is_invented(output) else self._node_names.invent("node")
        proto.name = name

    def _renamed(
        self, scope: Scope, fresh: list[Any], value: Value, name: str, outputs: list[str]
    ) -> str:
        """Give a result the name that it has in the graph, if it was written just now."""
        made = [n for n in fresh if name in n.output]
        if not made or scope.sizes.shares(name):
            return name
        wanted = outputs[0] if outputs else self.names.prefer(value.names)
        if wanted is None or wanted in self.dtypes:
            return name
        for node in fresh:
            for field in (node.input, node.output):
                for i, old in enumerate(field):
                    if old == name:
                        field[i] = wanted
        if name in self.dtypes:
            self.dtypes[wanted] = self.dtypes.pop(name)
        return wanted

    def _name_outputs(self, scope: Scope) -> None:
        """Give each output of the main graph its own name."""
        for name, value in self.graph.outputs.items():
            have = scope.name(value)
            if have != name:
                scope.append("Identity", [have], 1)
                scope.nodes[-1].output[0] = name
                self.name_node(scope.nodes[-1])

    # ---- the model around the nodes -------------------------------------------------------------

    def _add_initializers(self, graph: onnx.GraphProto) -> None:
        for op, name in self._constants.items():
            graph.initializer.append(tensor_proto(name, op.array, self._data))
        for name, array in self.graph.defaults.items():
            graph.initializer.append(tensor_proto(name, np.asarray(array), self._data))

    def _overridable(self) -> Iterable[onnx.ValueInfoProto]:
        for op, name in self._constants.items():
            if self._fixed.get(op) == name:
                dtype = DType.from_numpy(op.array.dtype)
                yield self.value_info(name, TensorType(dtype, op.array.shape))

    def _finish(self, proto: onnx.ModelProto) -> None:
        import onnx

        for domain, version in sorted(self._domains.items()):
            proto.opset_import.append(onnx.OperatorSetIdProto(domain=domain, version=version))
        proto.ir_version = onnx.helper.find_min_ir_version_for(list(proto.opset_import), True)
        metadata = dict(self.graph.metadata)
        proto.domain = metadata.get("domain", "")
        proto.doc_string = metadata.get("description", "")
        facts = {k: v for k, v in metadata.items() if k not in DERIVED}
        assumed = [
            f"{g.condition} is {g.decided}" for g in (*self.graph.guards, *self.graph.body_guards)
        ]
        if assumed:
            lines = [*facts.get(ASSUMES, "").splitlines(), *assumed]
            facts[ASSUMES] = "\n".join(dict.fromkeys(lines))
        for key, value in facts.items():
            entry = proto.metadata_props.add()
            entry.key, entry.value = key, value

    def _raise_refused(self) -> None:
        if not self._refused:
            return
        groups: dict[tuple[str, str], list[Node]] = {}
        for node, reason in self._refused:
            groups.setdefault((node.op.title, reason), []).append(node)
        operators = [
            UnsupportedOperator(title, self._opset, len(nodes), nodes[0].label, reason)
            for (title, reason), nodes in groups.items()
        ]
        raise UnsupportedModelError(
            f"ONNX opset {self._opset} cannot say {len(operators)} kind(s) of operations of this "
            f"graph: {'; '.join(map(str, operators))}",
            operators,
        )

    def value_info(self, name: str, t: ValueType) -> onnx.ValueInfoProto:
        """Declare a value; sizes that no text can say are left open."""
        import onnx

        info = onnx.ValueInfoProto(name=name)
        info.type.CopyFrom(type_proto(map_type_sizes(t, _said)))
        _leave_open(info.type)
        return info


OPEN = "?"


def _said(size: Size) -> Size:
    """Return a size as a dim_param can say it: input symbols only, by names that can be read."""
    if isinstance(size, int) or (size.as_symbol is not None and _is_input(size.as_symbol)):
        return size
    if not all(map(_is_input, size.symbols)) or _has_let(size):
        return symbol(OPEN)
    # symbols print newest first: made anew, the text depends on their names alone
    table: dict[Symbol, Size] = {
        s: symbol("".join(c if c.isalnum() else "_" for c in s.name), lo=s.lo, hi=s.hi)
        for s in sorted(size.symbols, key=lambda s: s.name, reverse=True)
    }
    return substitute(size, table)


def _is_input(s: Symbol) -> bool:
    return s.kind is s.kind.INPUT


def _has_let(size: Dim) -> bool:
    return any(isinstance(a, Let) for a in ordered_atoms(size))


def _leave_open(proto: onnx.TypeProto) -> None:
    pending = [proto]
    while pending:
        t = pending.pop()
        kind = t.WhichOneof("value")
        if kind == "tensor_type":
            for dim in t.tensor_type.shape.dim:
                if dim.dim_param == OPEN:
                    dim.ClearField("dim_param")
        elif kind == "map_type":
            pending.append(t.map_type.value_type)
        elif kind is not None:
            pending.append(getattr(t, kind).elem_type)
