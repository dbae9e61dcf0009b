"""ONNX type protos and our types, both ways."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kn_graph.dim import Size, SymbolKind, symbol
from kn_graph.dtype import DType
from kn_graph.errors import DTypeError, MalformedModelError
from kn_graph.types import (
    MapType,
    OptionalType,
    SequenceType,
    Shape,
    TensorType,
    UnrankedType,
    ValueType,
)

if TYPE_CHECKING:
    import onnx

__all__ = ["free_shape", "type_proto", "value_type"]

ANONYMOUS = frozenset({"", "?", "-1", "None"})
"""Names of sizes by which exporters mean that any size will do: equal ones are not equal sizes."""


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
        element = value_type(proto.sequence_type.elem_type, name, lambda text: 0)
        return SequenceType(_element(element, name))
    if kind == "optional_type":
        return OptionalType(value_type(proto.optional_type.elem_type, name, resolve))
    if kind == "map_type":
        key = _dtype(proto.map_type.key_type, name)
        value = value_type(proto.map_type.value_type, name, resolve)
        # each value is one number or text, which some writers declare without a shape
        return MapType(
            key, TensorType(value.dtype, ()) if isinstance(value, UnrankedType) else value
        )
    raise MalformedModelError(f"{name!r} is declared without a type")


def _element(t: ValueType, name: str) -> ValueType:
    """Keep the rank of a sequence's elements only: their sizes may differ from one to the next.

    Rank 0 says nothing, since writers (ONNX's own tests, too) put it where they mean any rank.
    """
    if not isinstance(t, TensorType):
        return t
    if not t.shape:
        return UnrankedType(t.dtype)
    return TensorType(t.dtype, free_shape(name, t.rank))


def free_shape(name: str, rank: int) -> Shape:
    """Return a shape whose sizes differ from one element of a sequence to the next."""
    kind = SymbolKind.DATA
    return tuple(symbol(f"{name}_{axis}", lo=0, kind=kind) for axis in range(rank))


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
            named = dim.dim_param not in ANONYMOUS
            sizes.append(resolve(dim.dim_param if named else f"{name}_{axis}"))
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
