"""One small graph or more for every operation: the table that tests of all operations share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kn_graph import DType, Graph, Value
from kn_graph.op import Op
from kn_graph.ops import elementwise, gather, layout, reduce, source

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


F = "float32"
X = {"x": (F, ("n", 4))}
XY = {"x": (F, ("n", 4)), "y": (F, ("n", 4))}

EXAMPLES = [
    Example(source.Input, X, lambda g, x: x),
    Example(source.Constant, {}, lambda g: g.constant(np.arange(3, dtype=np.float32)), ({},)),
    Example(source.Sizes, X, lambda g, x: g.size_tensor(np.array([x.shape[0], 2], object))),
    Example(
        source.ReadSizes,
        {"x": (F, (4,)), "k": ("int64", (1,))},
        lambda g, x, k: g.broadcast(g.view(x, (4, 1)), (4, *g.read_sizes(k))),
        ({},),
    ),
    Example(layout.View, X, lambda g, x: g.view(x, (x.shape[0] * 2, 2))),
    Example(layout.Broadcast, {"x": (F, ("n", 1))}, lambda g, x: g.broadcast(x, (2, x.shape[0], 5))),
    Example(layout.Permute, X, lambda g, x: g.permute(x, (1, 0))),
    Example(layout.Slice, X, lambda g, x: x[:, 1:4:2]),
    Example(layout.Slice, X, lambda g, x: x[:2], note="symbolic"),
    Example(layout.Flip, X, lambda g, x: g.flip(x, 1)),
    Example(layout.Concat, XY, lambda g, x, y: g.concat([x, y, x], 0)),
    Example(layout.Pad, X, lambda g, x: g.pad(x, [(1, 2), (0, 3)])),
    Example(layout.Pad, X, lambda g, x: g.pad(x, [(0, 0), (3, 2)], "reflect"), note="reflect"),
    Example(elementwise.Unary, X, lambda g, x: g.unary("leaky_relu", x, alpha=0.1)),
    Example(elementwise.Binary, XY, lambda g, x, y: x * y + 1.0),
    Example(elementwise.Compare, XY, lambda g, x, y: g.compare("lt", x, y)),
    Example(
        elementwise.Select,
        {"c": ("bool", ("n", 4)), **XY},
        lambda g, c, x, y: g.select(c, x, y),
    ),
    Example(elementwise.Cast, X, lambda g, x: g.cast(x, DType.FLOAT16)),
    Example(elementwise.BitCast, X, lambda g, x: g.bit_cast(x, DType.INT32)),
    Example(reduce.Reduce, X, lambda g, x: g.reduce("mean", x, [0])),
    Example(reduce.ArgReduce, X, lambda g, x: g.arg_reduce(x, 1, last=True, keep=True)),
    Example(
        gather.Gather,
        {"x": (F, (3, 4)), "i": ("int64", ("n", 2))},
        lambda g, x, i: g.gather(x, i, 0),
    ),
    Example(
        gather.GatherElements,
        {"x": (F, ("n", 3)), "i": ("int32", ("n", 5))},
        lambda g, x, i: g.gather_elements(x, i, 1),
    ),
    Example(
        gather.GatherND,
        {"x": (F, (3, 3, 2)), "i": ("int64", ("n", 2))},
        lambda g, x, i: g.gather_nd(x, i),
    ),
]

