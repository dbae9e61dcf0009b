"""Integers on every instruction set of this processor, not on the best one alone."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from kn_cpu import native
from kn_cpu.executor import CpuExecutor
from kn_graph import DType, Graph, cpu_eval_graph
from tests.cpu.integers import integers

SHAPES = ((1, 300, 70), (2, 7, 16), (7, 13, 9), (13, 64, 33))
"""Rows, depth, columns."""


def products(left: str, right: str) -> tuple[Graph, dict[str, np.ndarray]]:
    """Return products of matrices, and convolutions of all channels and of each by itself."""
    rng = np.random.default_rng(0)
    g = Graph("integers")
    feeds: dict[str, np.ndarray] = {}

    def given(*shape: int) -> tuple[str, np.ndarray]:
        name = f"x{len(feeds)}"
        feeds[name] = integers(rng, left, *shape)
        return name, feeds[name]

    for rows, depth, cols in SHAPES:
        name, x = given(rows, depth)
        w = g.constant(integers(rng, right, depth, cols))
        g.output(f"product {name}", g.matmul(g.input(name, left, x.shape), w, out_dtype="int32"))
    for channels, groups in ((5, 1), (32, 1), (37, 37)):
        name, x = given(2, channels, 9, 11)
        kernel = g.constant(integers(rng, right, channels, channels // groups, 3, 3))
        y = g.conv(
            g.input(name, left, x.shape),
            kernel,
            strides=(1, 2),
            groups=groups,
            out_dtype=DType.INT32,
        )
        g.output(f"convolution {name}", y)
    return g, feeds


@pytest.mark.parametrize("isa", native.available())
@pytest.mark.parametrize(
    ("left", "right"), list(product(("uint8", "int8", "int16"), ("uint8", "int8")))
)
def test_sums_are_exact_on_every_instruction_set(isa: str, left: str, right: str) -> None:
    graph, feeds = products(left, right)
    want, got = cpu_eval_graph(graph, feeds), CpuExecutor(graph, native.load(isa), 2).eval(feeds)
    for name, x in want.items():
        np.testing.assert_array_equal(got[name], x, err_msg=name)
