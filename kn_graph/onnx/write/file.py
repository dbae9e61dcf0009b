"""Model files: complete before they take the place of what was there."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from kn_graph.graph import Graph
from kn_graph.onnx.write import check_model
from kn_graph.onnx.write.model import ModelWriter
from kn_graph.onnx.write.tensor import DataFile

__all__ = ["save_model"]


def save_model(graph: Graph, path: Path, opset: int, location: str | None, check: bool) -> None:
    """Write a graph to a path, its large weights to `location` beside it if given.

    Weights of the graph may be mapped from the very files that are replaced.
    """
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".kn-") as name:
        folder = Path(name)
        model = folder / path.name
        if location is None:
            proto = ModelWriter(graph, opset).write()
        else:
            with open(folder / location, "wb") as data:
                proto = ModelWriter(graph, opset, DataFile(data, location)).write()
        model.write_bytes(proto.SerializeToString(deterministic=True))
        if check:
            check_model(str(model))
        if location is not None:
            os.replace(folder / location, path.with_name(location))
        os.replace(model, path)
