"""Graphs of tensor operations: built, loaded from ONNX, optimized, and run on the NumPy reference.

```python
from kn_graph import cpu_eval_graph, load_graph_from_onnx_path

graph = load_graph_from_onnx_path("model.onnx")
outputs = cpu_eval_graph(graph, {"x": x})
```
"""

from kn_graph.dtype import DType
from kn_graph.errors import KnError
from kn_graph.graph import Graph
from kn_graph.onnx import (
    graph_to_onnx_bytes,
    load_graph_from_onnx_bytes,
    load_graph_from_onnx_path,
    save_graph_to_onnx_path,
)
from kn_graph.optimizer import OptimizerSettings, optimize_graph
from kn_graph.reference import Kept, cpu_eval_graph
from kn_graph.types import MapType, OptionalType, SequenceType, TensorType, UnrankedType
from kn_graph.value import Node, Provenance, Value

__all__ = [
    "DType",
    "Graph",
    "Kept",
    "KnError",
    "MapType",
    "Node",
    "OptimizerSettings",
    "OptionalType",
    "Provenance",
    "SequenceType",
    "TensorType",
    "UnrankedType",
    "Value",
    "cpu_eval_graph",
    "graph_to_onnx_bytes",
    "load_graph_from_onnx_bytes",
    "load_graph_from_onnx_path",
    "optimize_graph",
    "save_graph_to_onnx_path",
]
