"""The precision of types, and the same graph in another precision."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import ml_dtypes

from kn_graph.cast import cast_array
from kn_graph.dtype import DType
from kn_graph.errors import DTypeError
from kn_graph.graph import Graph
from kn_graph.liveness import live_nodes
from kn_graph.op import Op, field_names
from kn_graph.ops.elementwise import BitCast, Cast
from kn_graph.ops.host import HostCall
from kn_graph.ops.random import Random
from kn_graph.ops.source import Constant, Input, ReadSizes
from kn_graph.transform import GraphCopier
from kn_graph.types import TensorType, ValueType
from kn_graph.value import Node, Value

__all__ = [
    "WIDENED",
    "accumulator_roundoff",
    "recast_values",
    "smallest",
    "to_float64",
    "unit_roundoff",
]

WIDENED = dict.fromkeys((DType.FLOAT16, DType.BFLOAT16, DType.FLOAT32), DType.FLOAT64)
"""Types that arithmetic is done in. The narrower ones are formats of quantized numbers: rounding to
them is what a model means, not an error."""

AS_THEY_ARE = (BitCast, Random, HostCall)
"""Operations whose result depends on the type itself."""


def unit_roundoff(dtype: DType) -> float:
    """Return the largest relative error of rounding to a float type, such as 2**-24."""
    return float(ml_dtypes.finfo(dtype.numpy).eps) / 2  # type: ignore[no-untyped-call]


def smallest(dtype: DType) -> float:
    """Return the smallest normal number of a float type."""
    return float(ml_dtypes.finfo(dtype.numpy).smallest_normal)  # type: ignore[no-untyped-call]


def accumulator_roundoff(dtype: DType) -> float:
    """Return the unit roundoff of the type that sums of a type are computed in."""
    return unit_roundoff(DType.FLOAT64 if dtype is DType.FLOAT64 else DType.FLOAT32)


def to_float64(graph: Graph) -> Graph:
    """Return the graph with all arithmetic in float64, for the same inputs.

    Inputs keep their types and are converted; outputs are float64 where they were float16, bfloat16
    or float32. Float8 and narrower types, bit casts, random numbers, host functions and what is
    inside of sequences stay as they are.

    Raises:
        ShapeError, DTypeError: the graph does not exist in float64.
    """
    return recast_values(graph, WIDENED)[0]


def recast_values(
    graph: Graph, table: Mapping[DType, DType]
) -> tuple[Graph, Mapping[Value, Value]]:
    """Replace float types; also return what each value became."""
    target = Graph(graph.name)
    target.symbols = dict(graph.symbols)
    copier = _Recaster(target, table, around=True)
    copier.copy_all(graph)
    return target, copier.values


class _Recaster(GraphCopier):
    """Copies a graph; every tensor of a type in the table gets the type that stands there.

    Args:
        target: receives the nodes.
        table: what becomes of which type.
        around: whether it is the outermost graph, whose inputs keep their types.
    """

    def __init__(self, target: Graph, table: Mapping[DType, DType], *, around: bool) -> None:
        super().__init__(target)
        self.table, self.around = table, around

    def copy_all(self, graph: Graph) -> None:
        """Copy everything that the outputs need, and the outputs."""
        inputs: list[Value] = []
        for node in live_nodes(graph, graph.outputs.values()):
            if isinstance(node.op, Input):
                inputs.append(self._copy_input(node, node.op))
            else:
                self.copy(node)
        self.target.inputs = inputs
        for name, v in graph.outputs.items():
            self.target.output(name, self.values[v])
        self.constrain(graph.constraints)
        self.target.guards, self.target.body_guards = [*graph.guards], [*graph.body_guards]
        self.target.defaults = dict(graph.defaults)

    def _copy_input(self, node: Node, given: Input) -> Value:
        (old,), op = node.results, self._op(given)
        assert isinstance(op, Input)
        wanted = op.type if self.around else self._type(op.type)
        new = self.target.push(Input(op.name, wanted))
        new.names = (op.name,)
        self.values[old] = self._cast(new, self._type(old.type))
        return new

    def copy(self, node: Node) -> None:
        """Copy one node, in the types of the table where the operation allows it."""
        if isinstance(node.op, ReadSizes):
            super().copy(node)
            return
        results = self._recast(node)
        for old, new in zip(node.results, results, strict=True):
            self._meet_sizes(old, new)
            new = self._cast(new, self._type(old.type))
            self.values[old] = new
            self._unite(old, new)

    def _recast(self, node: Node) -> tuple[Value, ...]:
        operands = [self.values[v] for v in node.operands]
        op = node.op
        if isinstance(op, Constant):
            dtype = DType.from_numpy(op.array.dtype)
            if dtype not in self.table:
                return self.target.push_all(op)
            return (self.target.constant(cast_array(op.array, self.table[dtype])),)
        if not isinstance(op, AS_THEY_ARE) and not _prints(op):
            try:
                return self.target.push_all(self._in_types(self._op(op)), *operands)
            except DTypeError:
                pass  # it takes these types only
        as_before = [self._cast(v, w.type) for v, w in zip(operands, node.operands, strict=True)]
        return self.target.push_all(self._op(op), *as_before)

    def _in_types(self, op: Op) -> Op:
        changed = {
            name: self.table[x]
            for name in field_names(type(op))
            if isinstance(x := getattr(op, name), DType) and x in self.table
        }
        return replace(op, **changed) if changed else op

    def _body(self, body: Graph) -> Graph:
        copy = Graph(body.name, parent=self.target)
        inner = _Recaster(copy, self.table, around=False)
        inner.symbols = dict(self.symbols)
        inner.copy_all(body)
        return copy.seal()

    def _type(self, t: ValueType) -> ValueType:
        if isinstance(t, TensorType) and t.dtype in self.table:
            return TensorType(self.table[t.dtype], t.shape)
        return t

    def _cast(self, v: Value, wanted: ValueType) -> Value:
        known = isinstance(v.type, TensorType) and isinstance(wanted, TensorType)
        if not known or v.dtype not in (*self.table, *self.table.values()):
            return v
        assert isinstance(wanted, TensorType)
        return self.target.cast(v, wanted.dtype)


def _prints(op: Op) -> Any:
    """Return whether an operation writes numbers out."""
    return isinstance(op, Cast) and op.dtype is DType.STRING
