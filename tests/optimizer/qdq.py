"""Models as onnxruntime's `quantize_static` writes them in QDQ format, and how near results are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto, helper, numpy_helper

from kn_graph import Graph
from kn_graph.onnx import load_graph_from_onnx_bytes
from tests.small_models import info, model

__all__ = ["Net", "assert_quantized", "weights"]

RNG = np.random.default_rng(3)


def weights(dtype: str, *shape: int) -> np.ndarray:
    """Return random integers over the range of a type."""
    limits = np.iinfo(dtype)
    return RNG.integers(limits.min, limits.max + 1, shape).astype(dtype)


class Net:
    """Writes nodes; values are names."""

    def __init__(self, *inputs: tuple[str, Sequence[Any]], opset: int = 17) -> None:
        self.inputs = [info(n, s) for n, s in inputs]
        self.opset = opset
        self.nodes: list[NodeProto] = []
        self.arrays: dict[str, Any] = {}
        self.outputs: list[str] = []

    def add(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """Add a node with one output."""
        name = f"{operator}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, list(inputs), [name], name, **attributes))
        return name

    def array(self, a: Any) -> str:
        """Add an initializer."""
        name = f"a{len(self.arrays)}"
        self.arrays[name] = a if isinstance(a, TensorProto) else np.asarray(a)
        return name

    def parameters(self, scale: Any, zero: Any, dtype: str) -> tuple[str, str]:
        """Add a scale and a zero point."""
        return self.array(np.asarray(scale, np.float32)), self.array(np.asarray(zero, dtype))

    def quantize(self, x: str, scale: Any, zero: Any, dtype: str = "uint8") -> str:
        """Quantize and dequantize a tensor."""
        s, z = self.parameters(scale, zero, dtype)
        return self.add("DequantizeLinear", self.add("QuantizeLinear", x, s, z), s, z)

    def stored(self, codes: np.ndarray, scale: Any, zero: Any = None, **attributes: Any) -> str:
        """Add a dequantized initializer; the zero point is 0 unless it is given."""
        zero = np.zeros_like(scale) if zero is None else zero
        s, z = self.parameters(scale, zero, codes.dtype.name)
        return self.add("DequantizeLinear", self.array(codes), s, z, **attributes)

    def output(self, x: str) -> None:
        """Let a value be an output."""
        self.outputs.append(x)

    def graph(self) -> Graph:
        """Load the model."""
        arrays = {
            n: a if isinstance(a, TensorProto) else numpy_helper.from_array(a, n)
            for n, a in self.arrays.items()
        }
        proto = model(self.nodes, self.inputs, self.outputs, arrays, opset=self.opset)
        return load_graph_from_onnx_bytes(proto.SerializeToString())


def assert_quantized(
    got: np.ndarray, exact: np.ndarray, terms: np.ndarray, scale: float, *, ulps: int
) -> np.ndarray:
    """Check that a dequantized result is the exact one, rounded, but where float32 may be wrong.

    Args:
        got: multiples of the scale.
        exact: what is rounded, over the scale and cut to its range, in float64.
        terms: the sum of the absolute values of what is added up to `exact`.
        scale: of the result.
        ulps: how many units of 2**-24 of `terms` the sum may be off.

    Returns:
        How far each integer is from the exact quotient.
    """
    codes = got.astype(np.float64) / scale
    np.testing.assert_allclose(codes, np.rint(codes), atol=1e-4)
    off = np.abs(np.rint(codes) - exact)
    assert (off <= 0.5 + ulps * 2.0**-24 * terms).all(), off.max(initial=0)
    return off
