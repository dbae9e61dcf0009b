"""Writing graphs and loading them again, as the tests of the writer do it."""

from __future__ import annotations

from typing import Any

import onnx
import onnxruntime

from kn_graph import (
    Graph,
    graph_to_onnx_bytes,
    load_graph_from_onnx_bytes,
)
from kn_graph.compare import compare_outputs, model_band

__all__ = ["assert_agree", "onnxruntime_outputs", "reloaded", "written"]


def written(graph: Graph, opset: int = 21) -> bytes:
    """Return a graph as bytes that onnx.checker accepts."""
    data = graph_to_onnx_bytes(graph, opset, check=False)
    onnx.checker.check_model(onnx.load_from_string(data), full_check=True)
    return data


def reloaded(graph: Graph, opset: int = 21) -> Graph:
    """Return what loading a written graph gives."""
    return load_graph_from_onnx_bytes(written(graph, opset))


def assert_agree(graph: Graph, feeds: dict[str, Any], outputs: dict[str, Any]) -> None:
    """Fail where outputs are not those of a graph, inside of the model band."""
    report = compare_outputs(outputs, model_band(graph, feeds))
    assert report.ok, report.describe()


def onnxruntime_outputs(data: bytes, feeds: dict[str, Any]) -> dict[str, Any] | None:
    """Return what onnxruntime computes, or None where it lacks an operator for a type."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        if "NOT_IMPLEMENTED" in str(error):
            return None
        raise
    names = [o.name for o in session.get_outputs()]
    return dict(zip(names, session.run(None, feeds), strict=True))
