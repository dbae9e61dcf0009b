"""What a trap is, and arrays in few letters.

A trap is an ONNX graph in the textual syntax of the `onnx` package, inputs, and outputs worked out
by hand. Comments say what the text says where that is not plain.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

__all__ = ["INF", "LARGEST", "NAN", "SMALLEST", "X4", "Trap", "b", "f", "i", "line", "ramp", "s"]

NAN, INF = float("nan"), float("inf")
LARGEST, SMALLEST = 2**63 - 1, -(2**63)


@dataclass(frozen=True)
class Trap:
    """One model.

    Attributes:
        name: what is wrong elsewhere.
        body: the nodes of the graph, as text.
        inputs: by name; they are fed, or all but the first are initializers.
        outputs: by name; an exception type and a part of its text, where the model is refused.
        opset: of ai.onnx.
        fed: whether the inputs may be fed; otherwise all but the first are initializers only.
    """

    name: str
    body: str
    inputs: dict[str, Any]
    outputs: dict[str, Any]
    opset: int = 21
    fed: bool = True
    value_info: dict[str, tuple[int, ...]] = field(default_factory=dict)


def f(*numbers: Any) -> Any:
    return np.array(numbers, np.float32)


def i(*numbers: int) -> Any:
    return np.array(numbers, np.int64)


def b(*truths: int) -> Any:
    return np.array(truths, np.bool_)


def s(number: Any, dtype: Any = np.float32) -> Any:
    return np.array(number, dtype)


def ramp(*shape: int) -> Any:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def line(*numbers: float) -> Any:
    """Return a batch of one image of one row."""
    return f(*numbers).reshape(1, 1, -1)


X4 = f(1, 2, 3, 4)
