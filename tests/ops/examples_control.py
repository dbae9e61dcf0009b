"""Rows of the table of operations for control flow, host functions and tree ensembles."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kn_graph import DType, Graph, TensorType, Value
from kn_graph.ops import control, coupling, host, tree
from kn_graph.types import ValueType
from tests.ops.example import Example

__all__ = ["CONTROL_EXAMPLES"]

F = "float32"


def body(outer: Graph, types: list[ValueType], build: Callable[..., list[Value]]) -> Graph:
    """Return a sealed body with inputs of some types."""
    g = Graph("body", parent=outer)
    inputs = [g.input_of_type(f"in{i}", t) for i, t in enumerate(types)]
    for i, v in enumerate(build(g, *inputs)):
        g.output(f"out{i}", v)
    return g.seal()


def either(g: Graph, c: Value, x: Value) -> tuple[Value, ...]:
    """Return relu(x), or the first column of x repeated: a branch may use what is outside."""
    then_body = body(g, [x.type], lambda b, y: [b.relu(y)])
    else_body = body(g, [x.type], lambda b, y: [y[:, :2]])
    return g.if_else(g.view(c, ()), then_body, else_body, [x])


def counted(g: Graph, x: Value, n: Value) -> tuple[Value, ...]:
    """Double x until all iterations are done, keeping every step."""
    scalar = [TensorType(DType.INT64, ()), TensorType(DType.BOOL, ())]
    loop = body(g, [*scalar, x.type], lambda b, i, c, y: [c, y + y, b.relu(y)])
    return g.loop(loop, [x], trip=g.view(n, ()))


def running_sum(g: Graph, x: Value) -> tuple[Value, ...]:
    """Add the rows of x up."""
    row = TensorType(x.dtype, x.shape[1:])
    step = body(g, [row, row], lambda b, total, part: [total + part, total * part])
    return g.scan(step, [g.reduce("sum", x, [0])], [x])


def stumps(g: Graph, x: Value) -> Value:
    """Two trees of one decision each, three leaves."""
    nodes = np.array([[0, 0, -1, -2, 0], [1, 1, -2, -3, 1]], np.int64)
    tables = [
        nodes,
        np.array([0.1, -0.2], np.float32),
        np.array([0, 1]),
        np.array([0, 1, 3, 4]),
        np.array([0, 0, 1, 1]),
        np.array([1.0, 2.0, 3.0, 4.0], np.float32),
    ]
    return g.push(tree.TreeEnsemble(targets=2, depth=1), x, *map(g.constant, tables))


def rejoined(g: Graph, x: Value) -> Value:
    """Put a tensor into a sequence twice, and join it again."""
    (listed,) = g.host_call("sequence_construct", x, x, dtype=x.dtype)
    (joined,) = g.host_call("concat_from_sequence", listed, axis=0, stack=False)
    return joined


CONTROL_EXAMPLES = [
    Example(control.If, {"c": ("bool", (1,)), "x": (F, ("n", 4))}, either),
    Example(control.Loop, {"x": (F, ("n", 2)), "n": ("int64", (1,))}, counted),
    Example(control.Scan, {"x": (F, ("n", 2))}, running_sum),
    Example(host.HostCall, {"x": (F, ("n", 2))}, rejoined),
    Example(tree.TreeEnsemble, {"x": (F, ("n", 3))}, stumps),
    Example(
        coupling.PairwiseCoupling,
        {"x": (F, ("n", 3))},
        lambda g, x: g.push(coupling.PairwiseCoupling(3), g.sigmoid(x)),
    ),
]
