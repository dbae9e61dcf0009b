"""Models with subgraphs in ONNX text form."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx.parser

from kn_graph.graph import Graph
from kn_graph.onnx import load_graph_from_onnx_bytes
from kn_graph.reference import cpu_eval_graph
from tests.ops.single_node import assert_same, run_onnxruntime

__all__ = ["X", "flag", "integer", "load", "nodes_of", "same_as_onnxruntime"]

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def _parse(text: str, opset: int) -> bytes:
    header = f'<ir_version: 8, opset_import: ["" : {opset}]>\n'
    return onnx.parser.parse_model(header + text).SerializeToString()


def load(text: str, opset: int = 16, **options: Any) -> Graph:
    """Load a graph written in ONNX text form, and verify it."""
    graph = load_graph_from_onnx_bytes(_parse(text, opset), **options)
    graph.verify()
    return graph


def same_as_onnxruntime(text: str, feeds: dict[str, Any], opset: int = 16) -> list[Any]:
    """Run a graph here and on onnxruntime, compare, and return the results."""
    got = list(cpu_eval_graph(load(text, opset), feeds).values())
    assert_same(got, run_onnxruntime(_parse(text, opset), feeds), rtol=1e-6, atol=1e-6)
    return got


def nodes_of(graph: Graph, kind: type) -> list[Any]:
    """Return the nodes with an operation of a class."""
    return [n for n in graph.nodes if isinstance(n.op, kind)]


def flag(truth: bool) -> Any:
    """Return a boolean scalar."""
    return np.array(truth)


def integer(n: int) -> Any:
    """Return an int64 scalar."""
    return np.array(n, np.int64)
