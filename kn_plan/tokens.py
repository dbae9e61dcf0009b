"""Stand-ins for elements: numbers of 64 bits that are equal where the same is computed.

A graph over tokens says what a plan has to compute, without computing it: an element of an input is
a token of its own, an elementwise operation mixes the tokens of its operands, and a node of any
other kind gives new ones that depend on all tokens it reads, in their order. Two different
computations meet in one token with a probability of 2^-64.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kn_graph.context import RunContext
from kn_graph.dim import Symbol
from kn_graph.dtype import DType
from kn_graph.graph import Graph
from kn_graph.liveness import last_uses, live_nodes
from kn_graph.op import Op
from kn_graph.ops.source import Constant, Input
from kn_graph.random_bits import RandomStreams
from kn_graph.types import TensorType
from kn_graph.value import Node, Value
from kn_plan.access import HOST_KINDS, is_layout
from kn_plan.program import ScalarProgram, is_scalar

__all__ = [
    "GraphTokens",
    "Tokens",
    "applied",
    "constant_base",
    "constant_token",
    "digest",
    "fresh",
    "key",
    "run_program",
]

Tokens = np.ndarray[Any, np.dtype[np.uint64]]

ODD = np.uint64(0x9E3779B97F4A7C15)
SCRAMBLE = np.uint64(0xBF58476D1CE4E5B9)
HALF = np.uint64(32)


def key(*parts: Any) -> np.uint64:
    """Return the token of what has this text."""
    data = hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()
    return np.uint64(int.from_bytes(data, "little"))


def fresh(base: np.uint64, places: Any) -> Tokens:
    """Return tokens of the elements at some places of one source."""
    return np.asarray(places, np.uint64) * ODD + base


def constant_token(array: Any, dtype: DType) -> np.uint64:
    """Return the token of a number."""
    return key("number", dtype.name, np.asarray(array, dtype.numpy).tobytes())


def constant_base(array: Any) -> np.uint64:
    """Return the base of the elements of a constant: one for all views of a dense array."""
    address: int = array.__array_interface__["data"][0]
    name = (address, array.dtype.str) if _is_dense(array) else (id(array),)
    return key("constant", *name)


def _in_memory(array: Any) -> Any:
    """Return an array with its axes as they lie in memory."""
    return array.transpose(sorted(range(array.ndim), key=lambda a: -array.strides[a]))


def _is_dense(array: Any) -> bool:
    return bool(_in_memory(array).flags.c_contiguous)


def _memory_places(array: Any) -> Any:
    """Return where each element is stored: behind the first one, or in row-major order."""
    if not _is_dense(array):
        return np.arange(array.size).reshape(array.shape)
    places: Any = np.zeros(array.shape, np.int64)
    for axis, (n, step) in enumerate(zip(array.shape, array.strides, strict=True)):
        along = np.arange(n) * (step // array.itemsize)
        places = places + along.reshape([-1 if a == axis else 1 for a in range(array.ndim)])
    return places


def applied(op: Op, dtype: DType, operands: Sequence[Tokens]) -> Tokens:
    """Return the tokens behind an elementwise operation."""
    mixed: Any = key(op.title, repr(op), dtype.name)
    for place, x in enumerate(operands):
        mixed = mixed + x * (ODD + np.uint64(2 * place))
    mixed = np.asarray(mixed)
    return np.asarray((mixed ^ (mixed >> HALF)) * SCRAMBLE)


def run_program(program: ScalarProgram, inputs: Sequence[Tokens]) -> list[Tokens]:
    """Return the tokens of a program's outputs."""
    registers = list(inputs)
    for step in program.instructions:
        if step.op is None:
            registers.append(np.asarray(constant_token(step.number, step.dtype)))
        else:
            registers.append(applied(step.op, step.dtype, [registers[r] for r in step.operands]))
    return [registers[r] for r in program.outputs]


def digest(x: Tokens) -> int:
    """Return one number that depends on all tokens and their order."""
    flat = x.reshape(-1)
    return int((flat * _weights(flat.size)).sum(dtype=np.uint64))


_known_weights: Tokens = np.zeros(0, np.uint64)


def _weights(count: int) -> Tokens:
    """Return as many odd numbers without a pattern."""
    global _known_weights
    known = _known_weights
    if known.size < count:
        mixed = np.arange(max(count, 2 * known.size), dtype=np.uint64) * ODD
        known = _known_weights = ((mixed ^ (mixed >> HALF)) * SCRAMBLE) | np.uint64(1)
    return known[:count]


class GraphTokens(RunContext):
    """What the nodes of a graph read and give, at some sizes.

    Attributes:
        graph: which one.
        reads: the digest of each operand of each node that is no elementwise or layout operation.
        outputs: the digest of each output, by name.
    """

    def __init__(self, graph: Graph, env: Mapping[Symbol, int]) -> None:
        super().__init__(dict(env), RandomStreams(0))
        self.graph = graph
        self.reads: dict[Node, tuple[int, ...]] = {}
        values: dict[Value, Tokens] = {}
        nodes = live_nodes(graph, graph.outputs.values())
        frees = last_uses(nodes, graph.outputs.values())
        for node in nodes:
            values.update(zip(node.results, self._results(node, values), strict=True))
            for v in frees.get(node, ()):
                del values[v]
        self.outputs = {name: digest(values[v]) for name, v in graph.outputs.items()}

    def _results(self, node: Node, values: Mapping[Value, Tokens]) -> list[Tokens]:
        operands = [values[v] for v in node.operands]
        if isinstance(node.op, Constant):
            return [self.constant(node.op.array, node.results[0])]
        if isinstance(node.op, Input):
            return [self.source(self.graph.inputs.index(node.results[0]), node.results[0])]
        if is_layout(node):
            return [np.asarray(node.op.eval(self, *operands))]
        types = [v.type for v in (*node.operands, *node.results)]
        tensors = [t for t in types if isinstance(t, TensorType)]
        if len(tensors) == len(types) and is_scalar(node.op, [t.dtype for t in tensors]):
            return [applied(node.op, node.results[0].dtype, operands)]
        self.reads[node] = tuple(map(digest, operands))
        return self.results(node)

    def results(self, node: Node) -> list[Tokens]:
        """Return the tokens that a node gives."""
        read = self.reads[node]
        return [
            self.elements(key("node", node.index, place, read), v)
            for place, v in enumerate(node.results)
        ]

    def source(self, number: int, v: Value) -> Tokens:
        """Return the tokens of an input of the graph."""
        return self.elements(key("input", number), v)

    def constant(self, array: Any, v: Value) -> Tokens:
        """Return the tokens of a constant; a single number has the one that programs know."""
        if array.size == 1 and not self.is_object(v):
            return np.full(array.shape, constant_token(array, v.dtype))
        if self.is_object(v):
            return np.asarray(constant_base(array))
        return fresh(constant_base(array), _memory_places(array))

    def elements(self, base: np.uint64, v: Value) -> Tokens:
        """Return new tokens, one for each element of a value; one in all for what is no tensor."""
        if self.is_object(v):
            return np.asarray(base)
        shape = self.sizes(v.shape)
        return fresh(base, np.arange(int(np.prod(shape, dtype=np.int64)))).reshape(shape)

    def is_object(self, v: Value) -> bool:
        """Return whether only the host handles a value."""
        return not isinstance(v.type, TensorType) or v.dtype.kind in HOST_KINDS
