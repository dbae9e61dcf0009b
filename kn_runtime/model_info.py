"""Facts about a model file, read without converting it."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kn_graph.dim import Dim, Size, parse_size, symbol
from kn_graph.dtype import DType
from kn_graph.errors import KnError
from kn_graph.types import TensorType

if TYPE_CHECKING:
    import onnx

__all__ = ["ModelEnd", "ModelInfo", "model_info"]


@dataclass(frozen=True)
class ModelEnd:
    """An input or output of a model.

    Attributes:
        name: its name.
        type: its type as text, such as `float32[batch, 10]`.
        dtype: element type of a tensor.
        shape: sizes of a tensor of known rank: numbers, and symbolic ones as text.
        optional: whether a caller may leave it out.
    """

    name: str
    type: str
    dtype: str | None = None
    shape: list[int | str] | None = None
    optional: bool = False


@dataclass(frozen=True)
class ModelInfo:
    """What a model file contains.

    Attributes:
        path: the file.
        file_bytes: its size.
        ir_version: version of the file format.
        opsets: {domain: version}.
        inputs: in order; initializers that may be fed are among them.
        outputs: in order.
        symbols: names of symbolic sizes.
        nodes: number of nodes; those of subgraphs and functions count, too.
        operators: {operator: count}, the most frequent first.
        functions: names of functions that the model defines.
        unsupported: operators that this library lacks, as text.
        parameters: number of weights, elements of Constant nodes among them.
        weight_bytes: their size in memory.
        weight_dtypes: {element type: number of weights}.
        external_files: names of files that hold weights.
        metadata: producer, description and so on.
    """

    path: str
    file_bytes: int
    ir_version: int
    opsets: dict[str, int]
    inputs: list[ModelEnd]
    outputs: list[ModelEnd]
    symbols: list[str]
    nodes: int
    operators: dict[str, int]
    functions: list[str]
    unsupported: list[str]
    parameters: int
    weight_bytes: int
    weight_dtypes: dict[str, int]
    external_files: list[str]
    metadata: dict[str, str]


def model_info(path: str | os.PathLike[str]) -> ModelInfo:
    """Read the facts of a model without converting it, so that any ONNX file can be looked at.

    Raises:
        MalformedModelError: the file is not ONNX.
    """
    from kn_graph.onnx.file import read_model
    from kn_graph.onnx.functions import Functions
    from kn_graph.onnx.survey import unsupported_operators

    file = read_model(path)
    proto, graph = file.proto, file.proto.graph
    weights = list(_weights(proto))
    dtypes: Counter[str] = Counter()
    for tensor in weights:
        dtypes[_dtype_text(tensor)] += math.prod(tensor.dims)
    operators = Counter(_qualified(n.domain, n.op_type) for n in _nodes(proto))
    given = {t.name for t in graph.initializer} | {t.values.name for t in graph.sparse_initializer}
    inputs = [i for i in graph.input if proto.ir_version >= 4 or i.name not in given]
    symbols: dict[str, Dim] = {}
    return ModelInfo(
        path=os.fsdecode(path),
        file_bytes=os.stat(path).st_size,
        ir_version=proto.ir_version,
        opsets={d or "ai.onnx": v for d, v in file.opsets.items()},
        inputs=[_end(i, symbols, i.name in given) for i in inputs],
        outputs=[_end(o, symbols) for o in graph.output],
        symbols=list(symbols),
        nodes=sum(operators.values()),
        operators=dict(sorted(operators.items(), key=lambda item: (-item[1], item[0]))),
        functions=[_qualified(f.domain, f.name) for f in proto.functions],
        unsupported=[str(o) for o in unsupported_operators(proto, file.opsets, Functions(proto))],
        parameters=sum(dtypes.values()),
        weight_bytes=sum(map(_bytes, weights)),
        weight_dtypes=dict(dtypes.most_common()),
        external_files=sorted({e.value for t in weights for e in _locations(t)}),
        metadata=_metadata(proto),
    )


def _end(
    info: onnx.ValueInfoProto, symbols: dict[str, Dim], is_initializer: bool = False
) -> ModelEnd:
    from kn_graph.onnx.proto_types import value_type

    def named(text: str) -> Size:
        return symbols.setdefault(text, symbol(text))

    def resolve(text: str) -> Size:
        try:
            return parse_size(text, named)
        except ValueError:
            return named(text)

    try:
        t = value_type(info.type, info.name, resolve)
    except KnError as error:
        return ModelEnd(info.name, f"unusable: {error}")
    optional = is_initializer or info.type.WhichOneof("value") == "optional_type"
    if not isinstance(t, TensorType):
        return ModelEnd(info.name, str(t), optional=optional)
    shape = [s if isinstance(s, int) else str(s) for s in t.shape]
    return ModelEnd(info.name, str(t), str(t.dtype), shape, optional)


def _nodes(proto: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """Yield all nodes, those of subgraphs and functions, too."""
    from kn_graph.onnx.survey import all_nodes

    for nodes in (proto.graph.node, *(f.node for f in proto.functions)):
        yield from all_nodes(iter(nodes))


def _weights(proto: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Yield all initializers, and the tensors of Constant nodes."""
    graphs = [proto.graph]
    for node in _nodes(proto):
        for attribute in node.attribute:
            if attribute.HasField("g"):
                graphs.append(attribute.g)
            elif attribute.HasField("t") and node.op_type == "Constant":
                yield attribute.t
            graphs.extend(attribute.graphs)
    for graph in graphs:
        yield from graph.initializer
        yield from (t.values for t in graph.sparse_initializer)


def _qualified(domain: str, name: str) -> str:
    from kn_graph.onnx.registry import normal_domain

    domain = normal_domain(domain)
    return f"{domain}:{name}" if domain else name


def _dtype(tensor: onnx.TensorProto) -> DType | None:
    try:
        return DType.from_onnx(tensor.data_type)
    except KnError:
        return None


def _dtype_text(tensor: onnx.TensorProto) -> str:
    dtype = _dtype(tensor)
    return f"type {tensor.data_type}" if dtype is None else dtype.text


def _bytes(tensor: onnx.TensorProto) -> int:
    dtype = _dtype(tensor)
    return 0 if dtype is None else math.prod(tensor.dims) * dtype.bits // 8


def _locations(tensor: onnx.TensorProto) -> list[onnx.StringStringEntryProto]:
    return [e for e in tensor.external_data if e.key == "location"]


def _metadata(proto: onnx.ModelProto) -> dict[str, str]:
    facts = {
        "producer": f"{proto.producer_name} {proto.producer_version}".strip(),
        "domain": proto.domain,
        "description": proto.doc_string,
        **{p.key: p.value for p in proto.metadata_props},
    }
    return {k: v for k, v in facts.items() if v}
