"""What a row of the table of operations is; see `examples.py`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kn_graph import DType, Graph, Value
from kn_graph.op import Op

__all__ = ["Example"]

Build = Callable[..., Value | Sequence[Value]]


@dataclass(frozen=True)
class Example:
    """A graph around one operation.

    Attributes:
        op: the class that the graph contains.
        inputs: {name: (element type, shape)}; symbols by name.
        build: makes the outputs of the graph and its inputs.
        sizes: numbers for the symbols, one mapping a run.
        high: integers are drawn from 0 to this, exclusive.
    """

    op: type[Op]
    inputs: dict[str, tuple[str, tuple[Any, ...]]]
    build: Build
    sizes: tuple[dict[str, int], ...] = ({"n": 3}, {"n": 1}, {"n": 0})
    high: int = 3
    note: str = ""

    def graph(self) -> Graph:
        """Return the graph."""
        g = Graph(self.op.__name__)
        for name in _symbols(self.inputs):
            g.symbol(name, lo=0)
        values = [g.input(n, dtype, shape) for n, (dtype, shape) in self.inputs.items()]
        out = self.build(g, *values)
        for i, v in enumerate([out] if isinstance(out, Value) else out):
            g.output(f"out{i}", v)
        return g

    def feeds(self, sizes: dict[str, int], seed: int = 0) -> dict[str, np.ndarray]:
        """Return seeded inputs of given sizes."""
        rng = np.random.default_rng(seed)
        made = {}
        for name, (dtype, shape) in self.inputs.items():
            numbers = [sizes[s] if isinstance(s, str) else s for s in shape]
            kind = DType.parse(dtype)
            if kind.is_float:
                made[name] = rng.standard_normal(numbers).astype(kind.numpy)
            elif kind is DType.STRING:
                made[name] = rng.choice(np.array(["a", "bc", ""], object), numbers)
            else:
                high = 2 if kind is DType.BOOL else self.high
                made[name] = rng.integers(0, high, numbers).astype(kind.numpy)
        return made


def _symbols(inputs: dict[str, tuple[str, tuple[Any, ...]]]) -> list[str]:
    found = {s: None for _, shape in inputs.values() for s in shape if isinstance(s, str)}
    return list(found)
