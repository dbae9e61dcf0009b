"""Models of one ai.onnx.ml node, run here and by onnxruntime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import onnx

from tests.ops.single_node import assert_same, node_model, run_here, run_onnxruntime

__all__ = ["assert_like_onnxruntime", "ml_model", "run_here", "run_onnxruntime"]


def ml_model(
    operator: str,
    inputs: Mapping[str, Any],
    outputs: Sequence[str] = ("y",),
    *,
    version: int = 3,
    **attributes: Any,
) -> bytes:
    """Return a serialized model of one node of ai.onnx.ml at a version."""
    model = onnx.ModelProto.FromString(
        node_model(operator, inputs, outputs, domain="ai.onnx.ml", **attributes)
    )
    model.opset_import[1].version = version
    return model.SerializeToString()


def assert_like_onnxruntime(
    operator: str, inputs: Mapping[str, Any], outputs: Sequence[str] = ("y",), **options: Any
) -> None:
    """Check one node against onnxruntime; options of `ml_model`, and rtol and atol."""
    tolerance = {k: options.pop(k) for k in ("rtol", "atol") if k in options}
    model = ml_model(operator, inputs, outputs, **options)
    got, expected = run_here(model, inputs), run_onnxruntime(model, inputs)
    for a, b in zip(got, expected, strict=True):
        assert_same([a], [b], **({} if a.dtype == object else tolerance))
