"""Where NaN and infinities begin."""

from __future__ import annotations

import numpy as np

from kn_graph import Graph
from kn_graph.compare import NotFinite, find_not_finite


def begun(graph: Graph, **inputs: np.ndarray) -> list[tuple[str, int, int]]:
    return [(f.op, f.nan, f.inf) for f in find_not_finite(graph, inputs)]


def test_an_overflow_of_float16_and_the_nan_that_follows_are_two_beginnings() -> None:
    g = Graph()
    x = g.input("x", "float16", ("n",))
    square = x * x
    g.output("y", (square - square) + 1)
    (overflow, difference) = find_not_finite(g, {"x": np.array([3, 300, -400], np.float16)})
    assert overflow == NotFinite(
        square.node.label,
        square.node.index,
        "mul",
        "float16",
        nan=0,
        inf=2,
        elements=3,
        largest=400.0,
    )
    assert (difference.op, difference.nan, difference.inf) == ("sub", 2, 0)
    assert overflow.describe().endswith("2 infinite of 3 elements (float16), operands up to 400")
    assert find_not_finite(g, {"x": np.array([3.0], np.float16)}) == []


def test_masks_are_infinite_on_purpose_and_inputs_are_named() -> None:
    g = Graph()
    x = g.input("x", "float32", (3,))
    mask = g.constant(np.array([0, -np.inf, 0], np.float32))
    g.output("y", g.softmax(x + mask))
    assert begun(g, x=np.zeros(3, np.float32)) == []
    assert begun(g, x=np.array([0, 0, np.nan], np.float32)) == [("Input(x)", 1, 0)]


def test_what_spreads_is_not_named() -> None:
    g = Graph()
    x = g.input("x", "float32", (2, 2))
    root = g.sqrt(x)
    g.output("y", g.softmax(root @ root) * 2)
    assert begun(g, x=np.array([[1, -1], [4, 9]], np.float32)) == [("sqrt", 1, 0)]
