"""ONNX files: loading them into graphs, and writing graphs as files."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from kn_graph.garbage import uncollected
from kn_graph.graph import Graph
from kn_graph.onnx.write import (
    graph_to_model_proto,
    graph_to_onnx_bytes,
    save_graph_to_onnx_path,
)
from kn_graph.variants import Assumptions

if TYPE_CHECKING:
    from kn_graph.onnx.file import ModelFile, Source

__all__ = [
    "graph_to_model_proto",
    "graph_to_onnx_bytes",
    "load_graph",
    "load_graph_from_onnx_bytes",
    "load_graph_from_onnx_path",
    "save_graph_to_onnx_path",
]

Shapes = Mapping[str, Sequence["int | str | None"]]
ExternalData = bool | Literal["dummy"]


def load_graph_from_onnx_path(
    path: str | os.PathLike[str],
    *,
    input_shapes: Shapes | None = None,
    dims: Mapping[str, int] | None = None,
    external_data: ExternalData = True,
) -> Graph:
    """Load an ONNX file. Weights stay in the file and are memory-mapped.

    Args:
        path: the file.
        input_shapes: shapes of inputs, by name, instead of those declared: numbers, names of
            symbols, or None for a size of its own.
        dims: numbers for symbolic sizes, by name.
        external_data: read weights stored beside the file (True), refuse them (False), or invent
            seeded ones of the right size without reading ("dummy": to draw and plan without them).

    Returns:
        A sealed graph. Its inputs and outputs have the names of the file.

    Raises:
        MalformedModelError: the file is broken or not ONNX.
        UnsupportedModelError: it needs operators that are not supported; lists all of them.
        ExternalDataError: weights beside the file are missing or leave its folder.
    """
    return load_graph(path, input_shapes=input_shapes, dims=dims, external_data=external_data)


def load_graph_from_onnx_bytes(
    data: bytes | bytearray | memoryview,
    *,
    input_shapes: Shapes | None = None,
    dims: Mapping[str, int] | None = None,
    external_data: ExternalData = True,
) -> Graph:
    """Load an ONNX model held in memory; see `load_graph_from_onnx_path`."""
    return load_graph(data, input_shapes=input_shapes, dims=dims, external_data=external_data)


@uncollected
def load_graph(
    source: Source | ModelFile,
    *,
    input_shapes: Shapes | None = None,
    dims: Mapping[str, int] | None = None,
    external_data: ExternalData = True,
) -> Graph:
    """Load a model from a path, bytes, a binary file object, a ModelProto or an open model.

    See `load_graph_from_onnx_path`.
    """
    from kn_graph.onnx.file import read_model
    from kn_graph.onnx.loader import LoadOptions
    from kn_graph.onnx.search import load_under_assumptions
    from kn_graph.onnx.survey import warn_of_unknown_versions

    file = read_model(source)
    warn_of_unknown_versions(file)
    options = LoadOptions(dict(input_shapes or {}), dict(dims or {}), external_data)

    def build(assumed: Assumptions) -> Graph:
        graph = load_under_assumptions(file, replace(options, assumed=assumed))
        graph.variant_source = build
        return graph.seal()

    return build(Assumptions())
