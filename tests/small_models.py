"""Small models, built by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

__all__ = ["info", "model", "node"]


def node(operator: str, inputs: str, outputs: str, name: str = "", **attributes: Any) -> NodeProto:
    """Return a node; names of tensors are separated by spaces."""
    return helper.make_node(operator, inputs.split(), outputs.split(), name, **attributes)


def info(name: str, shape: Sequence[Any] | None = ("n",), dtype: int = TensorProto.FLOAT) -> Any:
    """Return the declaration of an input or output; None declares no shape."""
    return helper.make_tensor_value_info(name, dtype, shape)


def model(
    nodes: Sequence[NodeProto],
    inputs: Sequence[Any] | None = None,
    outputs: Sequence[Any] = ("y",),
    weights: Mapping[str, Any] | None = None,
    *,
    opset: int = 21,
    ir_version: int = 10,
    opsets: Mapping[str, int] | None = None,
    functions: Sequence[Any] = (),
) -> ModelProto:
    """Return a model.

    Args:
        nodes: its nodes.
        inputs: declarations; by default `x: float32[n]`.
        outputs: declarations, or names.
        weights: arrays, or TensorProtos.
        opset: version of ai.onnx, unless `opsets` has versions by domain.
        ir_version: version of the file format.
        opsets: versions by domain.
        functions: the model's own.
    """
    tensors = [
        w if isinstance(w, TensorProto) else numpy_helper.from_array(np.asarray(w), n)
        for n, w in (weights or {}).items()
    ]
    ends = [info(o, None) if isinstance(o, str) else o for o in outputs]
    starts = [info("x")] if inputs is None else list(inputs)
    graph = helper.make_graph(list(nodes), "small", starts, ends, tensors)
    imports = [helper.make_opsetid(d, v) for d, v in (opsets or {"": opset}).items()]
    return helper.make_model(
        graph, opset_imports=imports, ir_version=ir_version, functions=list(functions)
    )
