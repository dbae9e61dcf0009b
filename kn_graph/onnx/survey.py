"""Finds every operator of a model that is not supported, before anything is converted."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from kn_graph.errors import (
    KnWarning,
    MalformedModelError,
    UnsupportedModelError,
    UnsupportedOperator,
)
from kn_graph.onnx.attributes import node_name
from kn_graph.onnx.file import ModelFile
from kn_graph.onnx.functions import Functions, has_schema_function
from kn_graph.onnx.order import nested_nodes
from kn_graph.onnx.registry import find_converter, normal_domain

if TYPE_CHECKING:
    import onnx

__all__ = ["all_nodes", "check_supported", "unsupported_operators", "warn_of_unknown_versions"]

_Key = tuple[str, str, int]


def all_nodes(nodes: Iterator[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """Return nodes and those of the subgraphs in them, depth first."""
    return (node for node, _ in nested_nodes(nodes))


def unsupported_operators(
    model: onnx.ModelProto, opsets: Mapping[str, int], functions: Functions
) -> list[UnsupportedOperator]:
    """Return every kind of operator that cannot be converted, with counts and first nodes."""
    counts: dict[_Key, int] = {}
    first: dict[_Key, str] = {}
    pending = [(iter(model.graph.node), opsets)]
    visited = set()
    while pending:
        nodes, versions = pending.pop()
        called: dict[tuple[str, str, str], list[onnx.NodeProto]] = {}
        for node in all_nodes(nodes):
            called.setdefault((node.domain, node.op_type, node.overload), []).append(node)
        for (name, operator, overload), users in called.items():
            domain = normal_domain(name)
            local = functions.local(domain, operator, overload)
            if local is not None:
                key = (domain, operator, overload)
                if key not in visited:
                    visited.add(key)
                    own = {normal_domain(o.domain): o.version for o in local.opset_import}
                    pending.append((iter(local.node), own or opsets))
                continue
            kind = (domain, operator, versions.get(domain, 0))
            counts[kind] = counts.get(kind, 0) + len(users)
            first.setdefault(kind, node_name(users[0]))
    return [
        UnsupportedOperator(
            f"{d}:{op}" if d else op,
            version,
            counts[d, op, version],
            first[d, op, version],
            _misnomer(d, op, version),
        )
        for d, op, version in counts
        if find_converter(d, op, version) is None and not has_schema_function(d, op, version)
    ]


def _misnomer(domain: str, operator: str, version: int) -> str:
    """Return why the standard itself does not have an operator; '' where it does."""
    import onnx

    if domain or version == 0:
        return ""
    if not onnx.defs.has(operator):
        return "ONNX has no operator of this name"
    try:
        schema = onnx.defs.get_schema(operator, version)
    except onnx.defs.SchemaError:
        return f"ONNX has it in other opsets than {version}"
    return f"ONNX removed it in opset {schema.since_version}" if schema.deprecated else ""


def check_supported(file: ModelFile, opsets: Mapping[str, int], functions: Functions) -> None:
    """Raise where the model contains operators that are not supported, naming all of them.

    Raises:
        UnsupportedModelError: with the list in `operators`.
        MalformedModelError: an operator set is used that the model does not import.
    """
    found = unsupported_operators(file.proto, opsets, functions)
    if not found:
        return
    undeclared = [f for f in found if f.opset == 0 and _known_domain(f)]
    if undeclared:
        raise MalformedModelError(
            f"{file.label}: operator {undeclared[0].operator} (node {undeclared[0].first_node}) "
            "belongs to an operator set that the model does not import (opset_import)"
        )
    count = sum(f.count for f in found)
    kinds = f"{len(found)} operator{'s are' if len(found) > 1 else ' is'} unsupported"
    text = (
        f"{file.label}: {kinds} ({count} node{'s' if count > 1 else ''}): "
        f"{', '.join(map(str, found))}."
    )
    if not all(f.reason for f in found):
        text += " Not an error of your file. See docs/supported-operators.md."
    raise UnsupportedModelError(text, found)


def warn_of_unknown_versions(file: ModelFile) -> None:
    """Warn where a model uses newer versions of the format than are known here."""
    import onnx

    newest = {
        "" if d == "ai.onnx" else d: v[1] for d, v in onnx.defs.C.schema_version_map().items()
    }
    for domain, version in file.opsets.items():
        if version > newest.get(domain, version):
            warnings.warn(
                f"{file.label}: opset {version} of {domain or 'ai.onnx'} is newer than "
                f"{newest[domain]}, the newest that onnx {onnx.__version__} knows; operators are "
                "taken to be as they were there",
                KnWarning,
                stacklevel=4,
            )


def _known_domain(found: UnsupportedOperator) -> bool:
    domain, _, operator = found.operator.rpartition(":")
    return domain == "" or find_converter(domain, operator, 1) is not None
