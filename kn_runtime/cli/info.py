"""`kn info`: what a model file contains."""

from __future__ import annotations

import argparse
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from kn_graph.dim import Dim, Size, parse_size, symbol
from kn_graph.dtype import DType
from kn_graph.types import ValueType
from kn_runtime.cli.common import console, emit_json, table

if TYPE_CHECKING:
    import onnx

    from kn_graph.onnx.file import ModelFile

__all__ = ["EXAMPLES", "ModelInfo", "add_arguments", "execute", "model_info"]

EXAMPLES = """examples:
  kn info model.onnx
  kn info model.onnx --json
"""


@dataclass(frozen=True)
class ModelInfo:
    """What `kn info` prints.

    Attributes:
        inputs: {name: type}, without initializers.
        outputs: {name: type}.
        symbols: names of symbolic sizes.
        opsets: {domain: version}.
        operators: {operator: count}, subgraphs and called functions included.
        unsupported: operators that cannot be converted, as text.
        parameters: number of weights.
        weight_bytes: their size in memory.
        external_files: names of files that hold weights.
        metadata: producer, description and so on.
    """

    path: str
    inputs: dict[str, str]
    outputs: dict[str, str]
    symbols: list[str]
    opsets: dict[str, int]
    ir_version: int
    operators: dict[str, int]
    unsupported: list[str]
    parameters: int
    weight_bytes: int
    external_files: list[str]
    metadata: dict[str, str]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    parser.add_argument("model", help="an ONNX file")


def execute(args: argparse.Namespace) -> int:
    """Print the facts."""
    info = model_info(args.model)
    if args.json:
        emit_json(asdict(info))
    else:
        _print(info)
    return 0


def model_info(path: str) -> ModelInfo:
    """Read the facts of a model without converting it, so that any ONNX file can be looked at.

    Raises:
        MalformedModelError: the file is not ONNX.
    """
    from kn_graph.onnx.file import read_model
    from kn_graph.onnx.functions import Functions
    from kn_graph.onnx.survey import unsupported_operators

    file = read_model(path)
    graph = file.proto.graph
    weights = list(graph.initializer)
    given = {t.name for t in weights}
    symbols: dict[str, Dim] = {}
    lacking = unsupported_operators(file.proto, file.opsets, Functions(file.proto))
    return ModelInfo(
        path=str(path),
        inputs={v.name: str(_type(v, symbols)) for v in graph.input if v.name not in given},
        outputs={v.name: str(_type(v, symbols)) for v in graph.output},
        symbols=list(symbols),
        opsets={d or "ai.onnx": v for d, v in file.opsets.items()},
        ir_version=file.proto.ir_version,
        operators=_operators(file),
        unsupported=[str(o) for o in lacking],
        parameters=sum(math.prod(t.dims) for t in weights),
        weight_bytes=sum(_bytes(t) for t in weights),
        external_files=sorted({e.value for t in weights for e in _locations(t)}),
        metadata=_metadata(file.proto),
    )


def _type(info: onnx.ValueInfoProto, symbols: dict[str, Dim]) -> ValueType | str:
    from kn_graph.onnx.proto_types import value_type

    def named(text: str) -> Size:
        return symbols.setdefault(text, symbol(text))

    def resolve(text: str) -> Size:
        try:
            return parse_size(text, named)
        except ValueError:
            return named(text)

    return value_type(info.type, info.name, resolve) if info.type.WhichOneof("value") else "?"


def _operators(file: ModelFile) -> dict[str, int]:
    from kn_graph.onnx.registry import normal_domain
    from kn_graph.onnx.survey import all_nodes

    counts: Counter[str] = Counter()
    for nodes in (file.proto.graph.node, *(f.node for f in file.proto.functions)):
        for node in all_nodes(iter(nodes)):
            domain = normal_domain(node.domain)
            counts[f"{domain}:{node.op_type}" if domain else node.op_type] += 1
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def _bytes(tensor: onnx.TensorProto) -> int:
    bits = DType.from_onnx(tensor.data_type).bits if tensor.data_type else 0
    return math.prod(tensor.dims) * bits // 8


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


def _print(info: ModelInfo) -> None:
    out = console()
    opsets = ", ".join(f"{d} {v}" for d, v in info.opsets.items())
    out.print(f"[bold]{info.path}[/]  opset {opsets}  (IR {info.ir_version})")
    out.print(
        f"{sum(info.operators.values()):,} nodes, {info.parameters:,} parameters, "
        f"{human_bytes(info.weight_bytes)} of weights"
        + (f" in {', '.join(info.external_files)}" if info.external_files else "")
    )
    ends = [("input", n, t) for n, t in info.inputs.items()]
    ends += [("output", n, t) for n, t in info.outputs.items()]
    out.print(table(("", "name", "type"), ends))
    if info.symbols:
        out.print("symbolic sizes: " + ", ".join(info.symbols))
    out.print(table(("operator", "#count"), info.operators.items()))
    for operator in info.unsupported:
        out.print(f"[red]unsupported:[/] {operator}")
    if info.metadata:
        out.print(table(("metadata", ""), _shortened(info.metadata).items()))


def _shortened(metadata: Mapping[str, str], width: int = 200) -> dict[str, str]:
    return {k: v if len(v) <= width else v[: width - 3] + "..." for k, v in metadata.items()}


def human_bytes(count: float) -> str:
    """Return a number of bytes as text with a unit, such as `1.5 MiB`."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"
