"""Constants behind views and broadcasts, and new ones in their place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kn_graph.dim import Size
from kn_graph.dtype import DType
from kn_graph.op import Op
from kn_graph.ops.layout import Broadcast, View
from kn_graph.optimizer.editor import Editor
from kn_graph.types import TensorType
from kn_graph.value import Value

__all__ = [
    "FREE_BYTES",
    "constant_behind",
    "filled",
    "known_array",
    "known_bytes",
    "known_shape",
    "map_constant",
]

Array = np.ndarray[Any, Any]

FREE_BYTES = 4 << 20
"""Results up to this size may be larger than the constants they are computed from."""


def known_shape(shape: Sequence[Size]) -> tuple[int, ...] | None:
    """Return a shape that consists of numbers, else None."""
    numbers = tuple(s for s in shape if isinstance(s, int))
    return numbers if len(numbers) == len(shape) else None


def known_bytes(t: object) -> int | None:
    """Return how many bytes an array of a type takes, where that is known."""
    if not isinstance(t, TensorType):
        return None
    numel = t.numel
    return numel * t.dtype.itemsize if isinstance(numel, int) else None


def known_array(edit: Editor, v: Value) -> Array | None:
    """Return the array of a constant or of a broadcast one, which stays a view."""
    v = edit.resolve(v)
    if not isinstance(v.node.op, Broadcast):
        return v.constant
    (source,) = edit.operands(v.node)
    a, shape = source.constant, known_shape(v.shape)
    return None if a is None or shape is None else np.broadcast_to(a, shape)


def constant_behind(edit: Editor, v: Value) -> Array | None:
    """Return the constant that a value repeats and views."""
    v = edit.resolve(v)
    while isinstance(v.node.op, (View, Broadcast)):
        (v,) = edit.operands(v.node)
    return v.constant


def map_constant(edit: Editor, v: Value, f: Callable[[Array], Array]) -> Value:
    """Build the value anew on `f` of the constant behind it; `f` keeps the shape."""
    chain: list[Op] = []
    v = edit.resolve(v)
    while isinstance(v.node.op, (View, Broadcast)):
        chain.append(v.node.op)
        (v,) = edit.operands(v.node)
    a = v.constant
    assert a is not None
    out = edit.graph.constant(f(a))
    for op in reversed(chain):
        out = edit.graph.push(op, out)
    return out


def filled(edit: Editor, shape: Sequence[Size], number: Any, dtype: DType) -> Value:
    """Build a tensor with equal elements: a broadcast scalar."""
    one = np.asarray(number).astype(dtype.numpy).reshape((1,) * len(shape))
    return edit.graph.push(Broadcast(tuple(shape)), edit.graph.constant(one))
