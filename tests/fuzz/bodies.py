"""Control flow in one call each: bodies would not fit into an expression."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kn_graph import DType, Graph, TensorType, Value
from kn_graph.types import ValueType

__all__ = ["either", "repeated", "scanned"]


def _body(outer: Graph, types: Sequence[ValueType], build: Callable[..., list[Value]]) -> Graph:
    g = Graph("body", parent=outer)
    inputs = [g.input_of_type(f"in{i}", t) for i, t in enumerate(types)]
    for i, v in enumerate(build(g, *inputs)):
        g.output(f"out{i}", v)
    return g.seal()


def either(g: Graph, condition: Value, x: Value, y: Value, fn: str) -> Value:
    """Return fn(x) * 2 where the first element of a condition holds, else x + y."""
    one = g.view(g.slice(condition, 0, 0, 1), ())
    types = [x.type, y.type]
    yes = _body(g, types, lambda b, p, q: [b.unary(fn, p) * 2.0])
    no = _body(g, types, lambda b, p, q: [p + q])
    (out,) = g.if_else(one, yes, no, [x, y])
    return out


def repeated(g: Graph, x: Value, y: Value, trips: int) -> Sequence[Value]:
    """Return x after so many steps of tanh(x) * y, and all steps."""
    counter = [TensorType(DType.INT64, ()), TensorType(DType.BOOL, ())]

    def step(b: Graph, i: Value, go: Value, p: Value, q: Value) -> list[Value]:
        new = b.tanh(p) * q
        return [go, new, new]

    body = _body(g, [*counter, x.type, y.type], step)
    return g.loop(body, [x], trip=g.scalar(trips, DType.INT64), captured=[y])


def scanned(g: Graph, x: Value) -> Sequence[Value]:
    """Return the sum of the rows of x, and what it was before each one was added."""
    row = TensorType(x.dtype, x.shape[1:])
    body = _body(g, [row, row], lambda b, total, part: [total + part, total])
    return g.scan(body, [g.reduce("max", x, [0])], [x])
