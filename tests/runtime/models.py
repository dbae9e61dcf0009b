"""Small models for tests of the Python API."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

__all__ = ["info", "make", "node"]


def node(operator: str, inputs: str, outputs: str, **attributes: Any) -> Any:
    """Return a node; names are separated by spaces."""
    return helper.make_node(operator, inputs.split(), outputs.split(), **attributes)


def info(name: str, shape: Sequence[Any] | None = None, dtype: int = TensorProto.FLOAT) -> Any:
    """Return the declaration of an input or output."""
    return helper.make_tensor_value_info(name, dtype, shape)


def make(
    nodes: Sequence[Any],
    inputs: Sequence[Any],
    outputs: Sequence[str | Any] = ("y",),
    weights: dict[str, Any] | None = None,
    *,
    ir_version: int = 10,
    opset: int = 21,
) -> ModelProto:
    """Return a model."""
    tensors = [numpy_helper.from_array(np.asarray(w), n) for n, w in (weights or {}).items()]
    declared = [info(o) if isinstance(o, str) else o for o in outputs]
    graph = helper.make_graph(list(nodes), "small", list(inputs), declared, tensors)
    opsets = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=ir_version)
