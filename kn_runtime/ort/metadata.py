"""What a session says of its model: inputs and outputs, and the facts of the file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kn_graph.dim import Size
from kn_graph.dtype import DType
from kn_graph.errors import DTypeError
from kn_graph.types import TensorType
from kn_runtime.ort.reporting import Reporting

if TYPE_CHECKING:
    import onnx

    from kn_graph.graph import Graph

__all__ = ["Declared", "ModelMetadata", "NodeArg", "declared", "result_args", "tensor_text"]

Shape = list["int | str | None"]

ELEMENTS = {"float32": "float", "float64": "double"}
"""Element types that onnxruntime calls otherwise."""

NO_VERSION = 2**63 - 1
"""What onnxruntime says is the version of a model without one."""


@dataclass(frozen=True)
class NodeArg(Reporting):
    """An input or an output.

    Attributes:
        name: of the tensor in the file.
        type: such as `tensor(float)`, `seq(map(int64,tensor(float)))`.
        shape: numbers, names of symbolic sizes, and None for sizes without either; empty for a
            scalar, for a tensor without a declared shape, and for what is no tensor.
    """

    name: str
    type: str
    shape: Shape = field(default_factory=list)


@dataclass(frozen=True)
class ModelMetadata(Reporting):
    """The facts of a model file."""

    producer_name: str
    graph_name: str
    domain: str
    description: str
    graph_description: str
    version: int
    custom_metadata_map: Mapping[str, str]

    @classmethod
    def of(cls, proto: onnx.ModelProto) -> ModelMetadata:
        """Return those of a parsed file."""
        return cls(
            producer_name=proto.producer_name,
            graph_name=proto.graph.name,
            domain=proto.domain,
            description=proto.doc_string,
            graph_description=proto.graph.doc_string,
            version=proto.model_version if proto.HasField("model_version") else NO_VERSION,
            custom_metadata_map={p.key: p.value for p in proto.metadata_props},
        )


@dataclass(frozen=True)
class Declared:
    """A declaration of the file.

    Attributes:
        arg: as programs see it.
        kind: tensor, sequence, map, optional.
        dtype: of the elements; of those inside a sequence or an optional, too, and of the values
            of a map.
        key: element type of the keys of a map.
        rank: declared number of axes, None without a shape.
        is_required: whether an input has to be fed.
    """

    arg: NodeArg
    kind: str
    dtype: DType | None
    key: DType | None
    rank: int | None
    is_required: bool

    @property
    def name(self) -> str:
        """Of the tensor."""
        return self.arg.name

    @property
    def is_free(self) -> bool:
        """Whether values may have any number of axes; onnxruntime takes `[]` for that, too."""
        return not self.rank and self.dtype is not None and self.kind != "map"


def tensor_text(dtype: DType) -> str:
    """Return onnxruntime's name of a tensor type, such as `tensor(float)`."""
    return f"tensor({ELEMENTS.get(dtype.text, dtype.text)})"


def declared(
    info: onnx.ValueInfoProto, sizes: Mapping[str, int], denotations: Mapping[str, int]
) -> Declared:
    """Return what a declaration says.

    Args:
        info: from the file.
        sizes: numbers that symbolic sizes are fixed to, by name.
        denotations: numbers that axes with a denotation are fixed to.
    """
    kind, tensor = _tensor_of(info.type)
    shape: Shape = []
    if tensor is not None:
        for dim in tensor.shape.dim:
            if dim.denotation in denotations:
                shape.append(denotations[dim.denotation])
            elif dim.WhichOneof("value") == "dim_value":
                shape.append(dim.dim_value if dim.dim_value >= 0 else None)
            else:
                shape.append(sizes.get(dim.dim_param, dim.dim_param or None))
    return Declared(
        arg=NodeArg(info.name, _type_text(info.type), shape),
        kind=kind,
        dtype=None if tensor is None else _dtype(tensor.elem_type),
        key=_dtype(info.type.map_type.key_type) if kind == "map" else None,
        rank=len(shape) if tensor is not None and tensor.HasField("shape") else None,
        is_required=kind != "optional",
    )


def _tensor_of(type: onnx.TypeProto) -> tuple[str, onnx.TypeProto.Tensor | None]:
    """Return the kind of a type, and the tensor in it; the latter not for what is in a sequence."""
    kind = type.WhichOneof("value") or "tensor_type"
    if kind == "optional_type":
        return "optional", _tensor_of(type.optional_type.elem_type)[1]
    if kind == "sequence_type":
        element = type.sequence_type.elem_type
        if element.WhichOneof("value") == "map_type":
            return "sequence", None
        bare = type.__class__.Tensor(elem_type=element.tensor_type.elem_type)
        return "sequence", bare
    if kind == "map_type":
        elements = type.map_type.value_type.tensor_type.elem_type
        return "map", type.__class__.Tensor(elem_type=elements)
    found: onnx.TypeProto.Tensor = getattr(type, kind)
    return "tensor", found


def _type_text(type: onnx.TypeProto) -> str:
    kind = type.WhichOneof("value") or "tensor_type"
    if kind == "optional_type":
        return f"optional({_type_text(type.optional_type.elem_type)})"
    if kind == "sequence_type":
        return f"seq({_type_text(type.sequence_type.elem_type)})"
    if kind == "map_type":
        key = _dtype(type.map_type.key_type)
        return f"map({key},{_type_text(type.map_type.value_type)})"
    dtype = _dtype(getattr(type, kind).elem_type)
    text = "tensor(undefined)" if dtype is None else tensor_text(dtype)
    return text if kind == "tensor_type" else f"sparse_{text}"


def _dtype(code: int) -> DType | None:
    try:
        return DType.from_onnx(code)
    except DTypeError:
        return None


def result_args(outputs: list[Declared], graph: Graph | None, names: set[str]) -> list[NodeArg]:
    """Return the outputs as programs see them: declared sizes, and those that the graph knows.

    Args:
        outputs: as declared.
        graph: of the model; None where it takes its ranks from the first inputs.
        names: symbolic sizes of the file.
    """
    return [_result_arg(d, graph, names) for d in outputs]


def _result_arg(output: Declared, graph: Graph | None, names: set[str]) -> NodeArg:
    arg = output.arg
    if graph is None or output.kind != "tensor":
        return arg
    type = graph.outputs[output.name].type
    if not isinstance(type, TensorType):
        return arg
    known = [_size(size, names) for size in type.shape]
    if len(arg.shape) == len(known):
        known = [_better(d, k) for d, k in zip(arg.shape, known, strict=True)]
    elif arg.shape:
        known = arg.shape
    text = arg.type if output.dtype is not None else tensor_text(type.dtype)
    return NodeArg(arg.name, text, known)


def _better(declared: int | str | None, known: int | str | None) -> int | str | None:
    """Return the size that says more: a number before a name, a name before none."""
    if isinstance(declared, int) or (known is None and declared is not None):
        return declared
    return known if isinstance(known, int) or declared is None else declared


def _size(size: Size, names: set[str]) -> int | str | None:
    """Return a number, the name of a size of the file, or None for what is computed."""
    if isinstance(size, int):
        return size
    text = str(size)
    return text if text in names else None
