"""Graphs as ONNX models and files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from kn_graph.errors import InternalError, UsageError
from kn_graph.graph import Graph

if TYPE_CHECKING:
    import onnx

__all__ = ["graph_to_model_proto", "graph_to_onnx_bytes", "save_graph_to_onnx_path"]

OPSET = 21
EXTERNAL_BYTES = 1 << 30
"""From this size of all weights on they go into a file of their own."""


def save_graph_to_onnx_path(
    graph: Graph,
    path: str | os.PathLike[str],
    opset: int = OPSET,
    *,
    check: bool = True,
    external_data: str | bool | None = None,
) -> None:
    """Write a graph as an ONNX file of standard operators.

    Inputs and outputs keep their names, symbolic sizes become dim_params. What the graph assumes
    about sizes (its guards) holds in the file, and is listed in its metadata as `kn.assumes`.

    Args:
        graph: what to write.
        path: the file; one that exists is replaced when the new one is complete.
        opset: of the standard operators, 21 or newer.
        check: whether `onnx.checker` must accept the file.
        external_data: whether large weights go into a file beside it, or the name of that file; by
            default where they take 1 GiB or more.

    Raises:
        UnsupportedModelError: the opset has no operators for some nodes; lists all of them.
        UsageError: the path cannot be written, or the opset does not exist.
    """
    from kn_graph.onnx.write.file import save_model

    target = Path(path)
    location = _location(graph, target, external_data)
    try:
        save_model(graph, target, opset, location, check)
    except OSError as error:
        raise UsageError(f"cannot write {target}: {error.strerror or error}") from None


def graph_to_onnx_bytes(graph: Graph, opset: int = OPSET, *, check: bool = True) -> bytes:
    """Return a graph as the bytes of an ONNX file; see `save_graph_to_onnx_path`."""
    data: bytes = graph_to_model_proto(graph, opset, check=check).SerializeToString(
        deterministic=True
    )
    return data


def graph_to_model_proto(
    graph: Graph, opset: int = OPSET, *, check: bool = True
) -> onnx.ModelProto:
    """Return a graph as an ONNX model in memory; see `save_graph_to_onnx_path`."""
    from kn_graph.onnx.write.model import ModelWriter

    proto = ModelWriter(graph, opset).write()
    if check:
        check_model(proto)
    return proto


def check_model(model: onnx.ModelProto | str) -> None:
    """Raise InternalError where `onnx.checker` refuses a model that was written."""
    import onnx

    try:
        onnx.checker.check_model(model, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise InternalError(
            f"the model that was written is not valid ONNX: {error}. Please report this."
        ) from None


def _location(graph: Graph, path: Path, external_data: str | bool | None) -> str | None:
    from kn_graph.onnx.write.model import model_constants
    from kn_graph.onnx.write.tensor import stored_bytes

    if external_data is None:
        total = sum(stored_bytes(c.array) for c in model_constants(graph))
        external_data = total >= EXTERNAL_BYTES
    if external_data is True:
        return f"{path.name}.data"
    if external_data is False:
        return None
    if not external_data or external_data != os.path.basename(external_data):
        raise UsageError(f"external_data is the name of a file beside {path}: {external_data!r}")
    return external_data
