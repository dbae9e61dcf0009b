"""Operators defined as functions of others: by the model itself, or by the ONNX standard."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kn_graph.errors import UnsupportedModelError
from kn_graph.onnx.attributes import node_name
from kn_graph.onnx.proto_types import type_proto
from kn_graph.onnx.registry import normal_domain
from kn_graph.value import Value

if TYPE_CHECKING:
    import onnx

__all__ = ["Functions", "has_schema_function"]


class Functions:
    """The functions that a model may call."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self._local = {(normal_domain(f.domain), f.name, f.overload): f for f in model.functions}

    def local(self, domain: str, name: str, overload: str = "") -> onnx.FunctionProto | None:
        """Return the model's own function of this name, if there is one."""
        return self._local.get((domain, name, overload))

    def of_schema(
        self, node: onnx.NodeProto, domain: str, opset: int, inputs: Sequence[Value | None]
    ) -> onnx.FunctionProto:
        """Return the function body that the ONNX standard gives an operator.

        Some bodies depend on the types of the inputs.

        Raises:
            UnsupportedModelError: there is none.
        """
        import onnx

        schema = _schema(domain, node.op_type, opset)
        if schema is None:
            raise _unsupported(node, domain, opset)
        function = onnx.FunctionProto()
        if schema.has_context_dependent_function:
            versions = schema.context_dependent_function_opset_versions
            empty = onnx.TypeProto().SerializeToString()
            types = [
                type_proto(v.type).SerializeToString() if v is not None else empty for v in inputs
            ]
            body = schema.get_context_dependent_function_with_opset_version(
                _newest(versions, opset), node.SerializeToString(), types
            )
        elif schema.has_function:
            versions = schema.function_opset_versions
            body = schema.get_function_with_opset_version(_newest(versions, opset))
        else:
            raise _unsupported(node, domain, opset)
        function.ParseFromString(body)
        for name, attribute in schema.attributes.items():
            if attribute.default_value.type:  # what the body refers to when the node is silent
                default = function.attribute_proto.add()
                default.CopyFrom(attribute.default_value)
                default.name = name
        return function


def _newest(versions: Sequence[int], opset: int) -> int:
    """The newest body that the model's opset may use; the oldest where all are newer."""
    usable = [v for v in versions if v <= opset]
    return max(usable) if usable else min(versions)


def _schema(domain: str, operator: str, opset: int) -> Any:  # the stubs lack functions
    import onnx

    try:
        return onnx.defs.get_schema(operator, opset, domain)
    except onnx.defs.SchemaError:
        return None


def has_schema_function(domain: str, operator: str, opset: int) -> bool:
    """Return whether the ONNX standard defines an operator as a function."""
    schema = _schema(domain, operator, opset)
    return schema is not None and bool(schema.has_function or schema.has_context_dependent_function)


def _unsupported(node: onnx.NodeProto, domain: str, opset: int) -> UnsupportedModelError:
    kind = f"{domain}:{node.op_type}" if domain else node.op_type
    return UnsupportedModelError(
        f"node {node_name(node)}: operator {kind}-{opset} is not supported. "
        "Not an error of your file. See docs/supported-operators.md."
    )
