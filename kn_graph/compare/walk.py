"""The reference run node by node, so that each one can be looked at or changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kn_graph.binding import bind_symbols
from kn_graph.dim import Size, Symbol, evaluate
from kn_graph.graph import Graph
from kn_graph.liveness import last_uses, live_nodes
from kn_graph.ops.source import Input
from kn_graph.random_bits import random_bits
from kn_graph.types import TensorType
from kn_graph.value import Node, Value

__all__ = ["Context", "Step", "run_changed", "walk"]

Change = Callable[[Node, Any], Any]
"""Takes a node and one of its results, and returns what takes the place of the result."""


@dataclass(frozen=True)
class Step:
    """A node that has just run.

    Attributes:
        node: the node.
        operands: what it read.
        results: what it made.
        env: numbers of all sizes known by then.
    """

    node: Node
    operands: tuple[Any, ...]
    results: tuple[Any, ...]
    env: dict[Symbol, int]


class Context:
    """What operations ask for while they run; see `EvalContext`.

    Args:
        env: numbers of sizes.
        seed: of random operations.
        change: applied to all results, inside of bodies too.
    """

    def __init__(
        self, env: dict[Symbol, int] | None = None, seed: int = 0, change: Change | None = None
    ) -> None:
        self.env: dict[Symbol, int] = {} if env is None else env
        self.seed, self.change = seed, change

    def size(self, size: Size) -> int:
        """Return the number that a size stands for."""
        return size if isinstance(size, int) else evaluate(size, self.env)

    def sizes(self, shape: Sequence[Size]) -> tuple[int, ...]:
        """Return the numbers of several sizes."""
        return tuple(map(self.size, shape))

    def bind(self, symbol: Symbol, number: int) -> None:
        """Give a data symbol its number."""
        self.env[symbol] = number

    def run(self, body: Graph, inputs: Sequence[Any]) -> list[Any]:
        """Run a control-flow body."""
        env = bind_symbols(body.inputs, list(inputs), self.env)
        return run_changed(body, inputs, Context(env, self.seed, self.change))

    def random_bits(self, stream: int, count: int) -> Any:
        """Return random bits of this run."""
        return random_bits(self.seed, stream, count)


def walk(graph: Graph, inputs: Sequence[Any], context: Context) -> Iterator[Step]:
    """Run the nodes that the outputs need, in order, and yield each one with what it read and made.

    Values are dropped after their last use.
    """
    for step, _ in _walk(graph, inputs, context):
        yield step


def run_changed(graph: Graph, inputs: Sequence[Any], context: Context) -> list[Any]:
    """Run a graph and return its outputs in order."""
    values: dict[Value, Any] = {}
    for _, values in _walk(graph, inputs, context):
        pass
    return [values[v] for v in graph.outputs.values()]


def _walk(
    graph: Graph, inputs: Sequence[Any], context: Context
) -> Iterator[tuple[Step, dict[Value, Any]]]:
    outputs = list(graph.outputs.values())
    nodes = live_nodes(graph, outputs)
    frees = last_uses(nodes, outputs)
    values: dict[Value, Any] = dict(zip(graph.inputs, inputs, strict=True))
    for node in nodes:
        operands = tuple(values[v] for v in node.operands)
        if not isinstance(node.op, Input):
            out = node.op.eval(context, *operands)
            for v, x in zip(node.results, out if isinstance(out, tuple) else (out,), strict=True):
                x = np.asarray(x) if isinstance(v.type, TensorType) else x
                values[v] = x if context.change is None else context.change(node, x)
                _bind(v, values[v], context)
        results = tuple(values[v] for v in node.results)
        yield Step(node, operands, results, context.env), values
        for v in frees.get(node, ()):
            del values[v]


def _bind(v: Value, x: Any, context: Context) -> None:
    """Bind the data symbols that a result shows."""
    if isinstance(v.type, TensorType):
        for declared, actual in zip(v.type.shape, x.shape, strict=True):
            symbol = None if isinstance(declared, int) else declared.as_symbol
            if symbol is not None:
                context.env.setdefault(symbol, actual)
