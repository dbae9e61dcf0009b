"""ONNX type protos and our types, both ways."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kn_graph.dim import Size
from kn_graph.dtype import DType
from kn_graph.errors import DTypeError, MalformedModelError
from kn_graph.types import (
    MapType,
    OptionalType,
    SequenceType,
    TensorType,
    UnrankedType,
    ValueType,
)

if TYPE_CHECKING:
    import onnx

__all__ = ["type_proto", "value_type"]


def value_type(proto: onnx.TypeProto, name: str, resolve: Callable[[str], Size]) -> ValueType:
    """Return the type that a proto declares.

    Args:
        proto: the declaration.
        name: whose type it is; names anonymous axes `<name>_<axis>`.
        resolve: turns the text of a dim_param into a size.

    Raises:
        MalformedModelError: the declaration is empty or has an unknown element type.
    """
    kind = proto.WhichOneof("value")
    if kind == "tensor_type" or kind == "sparse_tensor_type":
        return _tensor_type(getattr(proto, kind), name, resolve)
    if kind == "sequence_type":
        return SequenceType(_element(value_type(proto.sequence_type.elem_type, name, resolve)))
    if kind == "optional_type":
        return OptionalType(value_type(proto.optional_type.elem_type, name, resolve))
    if kind == "map_type":
        key = _dtype(proto.map_type.key_type, name)
        return MapType(key, value_type(proto.map_type.value_type, name, resolve))
    raise MalformedModelError(f"{name!r} is declared without a type")


def _element(t: ValueType) -> ValueType:
    """Forget the shape of a sequence's elements: it may differ from one to the next."""
    return UnrankedType(t.dtype) if isinstance(t, TensorType) else t


def _dtype(code: int, name: str) -> DType:
    try:
        return DType.from_onnx(code)
    except DTypeError as error:
        raise MalformedModelError(f"{name!r}: {error}") from None


def _tensor_type(
    proto: onnx.TypeProto.Tensor, name: str, resolve: Callable[[str], Size]
) -> TensorType | UnrankedType:
    dtype = _dtype(proto.elem_type, name)
    if not proto.HasField("shape"):
        return UnrankedType(dtype)
    sizes: list[Size] = []
    for axis, dim in enumerate(proto.shape.dim):
        if dim.WhichOneof("value") == "dim_value" and dim.dim_value >= 0:
            sizes.append(dim.dim_value)
        else:  # some exporters write -1 for "any"
            sizes.append(resolve(dim.dim_param or f"{name}_{axis}"))
    return TensorType(dtype, tuple(sizes))


def type_proto(t: ValueType) -> onnx.TypeProto:
    """Return the proto that declares a type; symbolic sizes become dim_params."""
    import onnx

    proto = onnx.TypeProto()
    if isinstance(t, SequenceType):
        proto.sequence_type.elem_type.CopyFrom(type_proto(t.elem))
    elif isinstance(t, OptionalType):
        proto.optional_type.elem_type.CopyFrom(type_proto(t.elem))
    elif isinstance(t, MapType):
        proto.map_type.key_type = t.key.onnx_code
        proto.map_type.value_type.CopyFrom(type_proto(t.value))
    else:
        proto.tensor_type.elem_type = t.dtype.onnx_code
        if isinstance(t, TensorType):
            proto.tensor_type.shape.SetInParent()
            for size in t.shape:
                dim = proto.tensor_type.shape.dim.add()
                if isinstance(size, int):
                    dim.dim_value = size
                else:
                    dim.dim_param = str(size)
    return proto
