"""Inputs that only have the right sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kn_graph.dtype import DType
from kn_graph.errors import ShapeError, UsageError
from kn_graph.types import TensorType
from kn_runtime.assume import concrete_shape

if TYPE_CHECKING:
    from kn_graph.graph import Graph

__all__ = ["declared_shapes", "filled"]


def declared_shapes(graph: Graph, dims: Mapping[str, int]) -> dict[str, Any]:
    """Return the shapes of all inputs.

    Args:
        graph: whose inputs are meant.
        dims: numbers of its symbolic sizes.

    Raises:
        UsageError: a size has no number, or an input is no tensor; the text says which.
    """
    found: dict[str, Any] = {}
    for v in graph.inputs:
        try:
            found[v.name] = concrete_shape(v.type, dims)  # type: ignore[arg-type]
        except (KeyError, ShapeError, AttributeError):
            raise UsageError(
                f"input {v.name!r} ({v.type}) does not say what to warm up with; give inputs or "
                "their shapes, such as warmup({'x': (1, 3)}), or dims"
            ) from None
    return found


def filled(graph: Graph, call: Mapping[str, Any] | Sequence[Any]) -> dict[str, Any] | list[Any]:
    """Return inputs in which a tuple of sizes has become zeros of that shape.

    Args:
        graph: whose inputs are meant.
        call: inputs by name, or in the graph's order.
    """
    if isinstance(call, Mapping):
        types = {v.name: v.type for v in graph.inputs}
        return {n: _value(types.get(n), x) for n, x in call.items()}
    return [_value(v.type, x) for v, x in zip(graph.inputs, call, strict=False)]


def _value(type: Any, x: Any) -> Any:
    if not isinstance(type, TensorType) or not isinstance(x, tuple):
        return x
    if type.dtype is DType.STRING:
        return np.full(x, "", object)
    return np.zeros(x, type.dtype.numpy)
