"""A small pencil for writing ONNX graphs the way exporters write them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

__all__ = ["Architecture", "Array", "Sketch", "normal", "pictures", "random_weight"]

Array = npt.NDArray[np.generic]
Shape = Sequence[int | str]

IR_VERSIONS = {11: 6, 17: 8, 20: 9}
"""IR version that goes with each opset used here."""

INT64_MAX = 2**63 - 1


@dataclass(frozen=True)
class Architecture:
    """One generated model and how to feed it.

    Attributes:
        name: file name without `.onnx`.
        dims: the symbols of its inputs with the sizes that `inputs` takes unless told otherwise.
        build: writes the model.
        feeds: draws one set of inputs from a generator, for given sizes.
    """

    name: str
    dims: Mapping[str, int]
    build: Callable[[], onnx.ModelProto]
    feeds: Callable[[np.random.Generator, Mapping[str, int]], dict[str, Array]]


def normal(rng: np.random.Generator, *shape: int) -> npt.NDArray[np.float32]:
    """Return float32 numbers of the normal distribution."""
    return rng.standard_normal(shape, dtype=np.float32)


def pictures(rng: np.random.Generator, *shape: int) -> Array:
    """Return noise `[batch, channel, height, width]`, each picture and channel of its own tint."""
    return normal(rng, *shape[:2], 1, 1) + normal(rng, *shape)


def random_weight(
    rng: np.random.Generator, shape: Sequence[int], fan_in: int
) -> npt.NDArray[np.float32]:
    """Return uniform float32 weights that keep the variance of what they are applied to.

    Only additions and multiplications of the raw generator output are used, so that every machine
    draws the same bits.
    """
    bound = math.sqrt(3.0 / fan_in)
    return ((2.0 * rng.random(tuple(shape)) - 1.0) * bound).astype(np.float32)


class Sketch:
    """A graph under construction; names nodes and tensors as the PyTorch exporter does.

    Attributes:
        rng: where the weights come from.
    """

    def __init__(self, name: str, doc: str, *, opset: int, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self._name, self._doc, self._opset = name, doc, opset
        self._scope = ""
        self._taken: set[str] = set()
        self._nodes: list[onnx.NodeProto] = []
        self._weights: list[onnx.TensorProto] = []
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outputs: list[onnx.ValueInfoProto] = []

    @contextmanager
    def scope(self, name: str) -> Iterator[None]:
        """Put `name` in front of the names of all nodes and weights added inside."""
        outer = self._scope
        self._scope = f"{outer}/{name}"
        try:
            yield
        finally:
            self._scope = outer

    def nodes(self, op: str, *inputs: str, results: int, **attributes: Any) -> list[str]:
        """Add a node with several results and return their names; `""` is an absent input."""
        name = self._unique(f"{self._scope}/{op}")
        outputs = [f"{name}_output_{i}" for i in range(results)]
        self._nodes.append(helper.make_node(op, inputs, outputs, name=name, **attributes))
        return outputs

    def node(self, op: str, *inputs: str, **attributes: Any) -> str:
        """Add a node with one result and return its name."""
        return self.nodes(op, *inputs, results=1, **attributes)[0]

    def constant(self, value: npt.ArrayLike, dtype: npt.DTypeLike) -> str:
        """Add a Constant node, which is where exporters put small numbers."""
        return self.node("Constant", value=numpy_helper.from_array(np.array(value, dtype)))

    def ints(self, *values: int) -> str:
        """Add an int64 vector as a Constant node."""
        return self.constant(values, np.int64)

    def weight(self, name: str, value: npt.ArrayLike) -> str:
        """Add an initializer; the name starts with the scope, joined by dots."""
        path = self._unique(".".join([*self._scope.strip("/").split("/"), name]).lstrip("."))
        self._weights.append(numpy_helper.from_array(np.asarray(value), path))
        return path

    def random(self, name: str, *shape: int, fan_in: int) -> str:
        """Add an initializer of random float32 weights."""
        return self.weight(name, random_weight(self.rng, shape, fan_in))

    def input(self, name: str, dtype: int, shape: Shape) -> str:
        """Declare a graph input; sizes that are text become `dim_param`."""
        self._inputs.append(helper.make_tensor_value_info(name, dtype, shape))
        return name

    def float_input(self, name: str, *shape: int | str) -> str:
        """Declare a float32 graph input."""
        return self.input(name, TensorProto.FLOAT, shape)

    def output(self, value: str, name: str, dtype: int, shape: Shape) -> None:
        """Declare a graph output: the result `value` is renamed to `name`.

        Bodies of If and Loop are out of reach: they may not capture a value that becomes an output.
        """
        for node in self._nodes:
            node.input[:] = [name if used == value else used for used in node.input]
            node.output[:] = [name if made == value else made for made in node.output]
        self._outputs.append(helper.make_tensor_value_info(name, dtype, shape))

    def float_output(self, value: str, name: str, *shape: int | str) -> None:
        """Declare a float32 graph output."""
        self.output(value, name, TensorProto.FLOAT, shape)

    def graph(self) -> onnx.GraphProto:
        """Return what was written so far as a graph, for a model or as the body of If or Loop."""
        return helper.make_graph(
            self._nodes,
            self._name,
            self._inputs,
            self._outputs,
            initializer=self._weights,
            doc_string=self._doc,
        )

    def model(self) -> onnx.ModelProto:
        """Return what was written as a model."""
        return helper.make_model(
            self.graph(),
            producer_name="kn-engine models/generate.py",
            ir_version=IR_VERSIONS[self._opset],
            opset_imports=[helper.make_opsetid("", self._opset)],
        )

    def body(self, name: str) -> Sketch:
        """Start the body of an If or Loop: names stay unique across the model, weights go on."""
        inner = Sketch(name, "", opset=self._opset, seed=0)
        inner.rng, inner._taken = self.rng, self._taken
        inner._scope = f"{self._scope}/{name}"
        return inner

    def _unique(self, name: str) -> str:
        candidate, n = name, 0
        while candidate in self._taken:
            n += 1
            candidate = f"{name}_{n}"
        self._taken.add(candidate)
        return candidate
