"""The reference run node by node, so that each one can be looked at or changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kn_graph.binding import bind_symbols
from kn_graph.dim import Size, Symbol, evaluate
from kn_graph.graph import Graph
from kn_graph.liveness import last_uses, live_nodes
from kn_graph.ops.source import Input
from kn_graph.random_bits import RandomStreams
from kn_graph.types import TensorType
from kn_graph.value import Node, Value

__all__ = ["Context", "Step", "bind_result", "run_changed", "walk"]

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
        streams: random numbers, the same object in all bodies; of seed 0 by default.
        change: applied to all results, inside of bodies too.
    """

    def __init__(
        self,
        env: dict[Symbol, int] | None = None,
        streams: RandomStreams | None = None,
        change: Change | None = None,
    ) -> None:
        self.env: dict[Symbol, int] = {} if env is None else env
        self.streams, self.change = streams or RandomStreams(0), change

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
        return run_changed(body, inputs, Context(env, self.streams, self.change))

    def random_bits(self, stream: int, count: int, key: int | None) -> Any:
        """Return random bits of this run."""
        return self.streams.bits(stream, count, key)


def walk(
    graph: Graph, inputs: Sequence[Any], context: Context, kept: Iterable[Value] = ()
) -> Iterator[Step]:
    """Run the nodes that the outputs need, in order, and yield each one with what it read and made.

    Values are dropped after their last use.

    Args:
        graph: what to run.
        inputs: in order.
        context: what the operations ask.
        kept: values that are needed beside the outputs.
    """
    ends = [*graph.outputs.values(), *kept]
    nodes = live_nodes(graph, ends)
    frees = last_uses(nodes, ends)
    values: dict[Value, Any] = dict(zip(graph.inputs, inputs, strict=True))
    for node in nodes:
        operands = tuple(values[v] for v in node.operands)
        if not isinstance(node.op, Input):
            out = node.op.eval(context, *operands)
            for v, x in zip(node.results, out if isinstance(out, tuple) else (out,), strict=True):
                x = np.asarray(x) if isinstance(v.type, TensorType) else x
                values[v] = x if context.change is None else context.change(node, x)
                bind_result(v, values[v], context)
        yield Step(node, operands, tuple(values[v] for v in node.results), context.env)
        for v in frees.get(node, ()):
            del values[v]


def run_changed(
    graph: Graph, inputs: Sequence[Any], context: Context, kept: Sequence[Value] = ()
) -> list[Any]:
    """Run a graph and return its outputs in order, then the values asked for."""
    ends = [*graph.outputs.values(), *kept]
    wanted: set[Value] = set(ends)
    found: dict[Value, Any] = {}
    for step in walk(graph, inputs, context, kept):
        found |= {v: x for v, x in zip(step.node.results, step.results, strict=True) if v in wanted}
    return [found[v] for v in ends]


def bind_result(v: Value, x: Any, context: Context) -> None:
    """Bind the data symbols that a result shows."""
    if isinstance(v.type, TensorType):
        for declared, actual in zip(v.type.shape, x.shape, strict=True):
            symbol = None if isinstance(declared, int) else declared.as_symbol
            if symbol is not None:
                context.env.setdefault(symbol, actual)
