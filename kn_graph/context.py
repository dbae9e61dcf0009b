"""What operations ask while they run: one graph (or body) with the numbers of its sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kn_graph.dim import Size, Symbol, SymbolKind, evaluate
from kn_graph.errors import ExecutionError
from kn_graph.random_bits import RandomStreams
from kn_graph.types import TensorType

if TYPE_CHECKING:
    from kn_graph.graph import Graph
    from kn_graph.value import Node

__all__ = ["RunContext", "bind_size"]


def bind_size(env: dict[Symbol, int], symbol: Symbol, number: int) -> None:
    """Give a data symbol the number that a node found.

    Raises:
        ExecutionError: it has another one, or may not have this one.
    """
    known = env.setdefault(symbol, number)
    if known != number:
        raise ExecutionError(f"size {symbol.name!r} is {known}, but a node gives {number}")
    if number < symbol.lo:
        raise ExecutionError(f"size {symbol.name!r} is {number}, expected at least {symbol.lo}")


class RunContext:
    """What is the same for all executors; they say how bodies run.

    Attributes:
        env: numbers of the symbols known so far.
        streams: random numbers, the same object in all bodies of a run.
    """

    def __init__(self, env: dict[Symbol, int], streams: RandomStreams) -> None:
        self.env, self.streams = env, streams

    def size(self, size: Size) -> int:
        """Return a size's number."""
        return size if isinstance(size, int) else evaluate(size, self.env)

    def sizes(self, shape: Sequence[Size]) -> tuple[int, ...]:
        """Return the numbers of several sizes."""
        return tuple([s if isinstance(s, int) else evaluate(s, self.env) for s in shape])

    def bind(self, symbol: Symbol, number: int) -> None:
        """Give a data symbol its number."""
        bind_size(self.env, symbol, number)

    def bind_shapes(self, node: Node, results: Sequence[Any]) -> None:
        """Give numbers to the data symbols that the shapes of a node's results show."""
        for v, x in zip(node.results, results, strict=True):
            if not isinstance(v.type, TensorType):
                continue
            for declared, actual in zip(v.type.shape, np.shape(x), strict=True):
                symbol = None if isinstance(declared, int) else declared.as_symbol
                if symbol is not None and symbol.kind is SymbolKind.DATA:
                    self.bind(symbol, actual)

    def run(self, body: Graph, inputs: Sequence[Any]) -> list[Any]:
        """Run a control-flow body with the sizes around it known; return its outputs in order."""
        raise NotImplementedError

    def random_bits(self, stream: int, count: int, key: int | None) -> Any:
        """Return random bits of this run."""
        return self.streams.bits(stream, count, key)
