"""One ONNX graph while it is written: nodes, names of values, constants."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from kn_graph.dtype import DType
from kn_graph.onnx.write.fitting import check_dtype, fit, schema_of
from kn_graph.onnx.write.sizes import SizeWriter
from kn_graph.ops.source import Constant, constant_array

if TYPE_CHECKING:
    import onnx

    from kn_graph.graph import Graph
    from kn_graph.onnx.write.model import ModelWriter
    from kn_graph.onnx.write.plan import Plan
    from kn_graph.value import Value

__all__ = ["Scope"]

ML = "ai.onnx.ml"


class Scope:
    """The main graph or a body.

    Attributes:
        model: the model it belongs to.
        graph: what is written.
        parent: the scope around a body.
        nodes: what was written so far.
        sizes: writes sizes here.
        names: of the values written so far.
        plan: which nodes of the graph are written.
    """

    plan: Plan

    def __init__(self, model: ModelWriter, graph: Graph, parent: Scope | None = None) -> None:
        self.model, self.graph, self.parent = model, graph, parent
        self.nodes: list[onnx.NodeProto] = []
        self.names: dict[Value, str] = {}
        self.sizes = SizeWriter(self)
        self._splits: dict[tuple[str, str, int], list[str]] = {}

    def name(self, value: Value) -> str:
        """Return the name of a value that was written, or of a constant."""
        value = self.plan.resolve(value)
        op = value.node.op
        if isinstance(op, Constant):
            return self.model.constant(op)
        return self.names[value]

    def dtype(self, name: str) -> DType | None:
        """Return the element type of a tensor; None for what is no tensor."""
        return self.model.dtypes.get(name)

    def const(self, array: Any) -> str:
        """Return the name of an initializer of the model."""
        return self.model.constant(Constant(constant_array(array)))

    def scalar(self, number: Any, like: str | DType) -> str:
        """Return the name of a constant of rank 0, of the type of a tensor."""
        dtype = self.dtype(like) if isinstance(like, str) else like
        assert dtype is not None
        return self.const(np.array(number).astype(dtype.numpy))

    def emit(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """Append a node with one output, and return its name."""
        return self.emit_all(operator, *inputs, outputs=1, **attributes)[0]

    def emit_all(
        self,
        operator: str,
        *inputs: str,
        outputs: int,
        domain: str = "",
        dtype: DType | None = None,
        **attributes: Any,
    ) -> list[str]:
        """Append a node, with casts around it where the operator does not take a type.

        Args:
            operator: its name.
            inputs: names; '' for what is missing.
            outputs: how many there are.
            domain: of the operator.
            dtype: element type of the outputs, where the operator does not say it.
            attributes: of the node; None for none, a DType for its code.
        """
        opset = self.model.opset(domain)
        types = tuple(self.dtype(name) for name in inputs)
        for t in types:
            if t is not None:
                check_dtype(t, self.model.opset(""))
        plan = fit(operator, opset, domain, types, outputs)
        given = [
            name if to is None else self.emit("Cast", name, to=to)
            for name, to in zip(inputs, plan.inputs, strict=True)
        ]
        names = self.append(operator, given, outputs, domain, attributes)
        to = attributes.get("to") if operator == "Cast" else dtype
        out = []
        for name, have, back in zip(names, plan.outputs, plan.results, strict=True):
            have = to if to is not None else have
            if have is not None:
                check_dtype(have, self.model.opset(""))
                self.model.dtypes[name] = have
            out.append(name if back is None else self.emit("Cast", name, to=back))
        return out

    def split(self, x: str, lengths: str, count: int, axis: int) -> list[str]:
        """Cut an axis, once for all parts."""
        key = (x, lengths, axis)
        if key not in self._splits:
            parts = self.emit_all("Split", x, lengths, outputs=count, axis=axis)
            self._splits[key] = parts
            self.sizes.share(parts)
        return self._splits[key]

    def append(
        self,
        operator: str,
        inputs: list[str],
        outputs: int,
        domain: str = "",
        attributes: dict[str, Any] | None = None,
    ) -> list[str]:
        """Append a node as it is."""
        import onnx

        least = schema_of(operator, self.model.opset(domain), domain).min_input
        while len(inputs) > least and not inputs[-1]:
            inputs = inputs[:-1]
        names = [self.model.names.invent(operator) for _ in range(outputs)]
        node = onnx.NodeProto(op_type=operator, domain=domain, name=names[0])
        node.input.extend(inputs)
        node.output.extend(names)
        for key, value in (attributes or {}).items():
            if value is not None:
                node.attribute.append(_attribute(key, value))
        self.nodes.append(node)
        return names


def _attribute(key: str, value: Any) -> onnx.AttributeProto:
    import onnx

    if isinstance(value, DType):
        value = value.onnx_code
    elif isinstance(value, bool):
        value = int(value)
    elif isinstance(value, tuple):
        value = [int(v) if isinstance(v, bool) else v for v in value]
    return onnx.helper.make_attribute(key, value)
