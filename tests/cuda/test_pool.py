"""Windows on the host in place of a GPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from kn_graph import Graph
from kn_graph.ops.pool import Pool
from tests.cuda.run import check, check_graph, needs_compiler

pytestmark = needs_compiler


@dataclass(frozen=True)
class Case:
    """Windows over the last axes of a shape, without the batch."""

    x: tuple[int, ...]
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[tuple[int, int], ...]

    def op(self, fn: Any, **others: Any) -> Pool:
        """Return the operation."""
        return Pool(fn, self.kernel, self.strides, self.dilations, self.pads, **others)


CASES = {
    "a line": Case((3, 17), (4,), (3,), (2,), ((2, 1),)),
    "an image": Case((5, 9, 11), (3, 2), (2, 1), (1, 2), ((1, 1), (0, 1))),
    "a body": Case((2, 4, 5, 6), (2, 3, 2), (1, 2, 2), (2, 1, 3), ((0, 1), (1, 1), (1, 0))),
    "all of it": Case((4, 5, 6), (5, 6), (1, 1), (1, 1), ((0, 0), (0, 0))),
    "padding alone": Case((2, 2, 2), (2, 2), (3, 3), (1, 1), ((3, 3), (3, 3))),
    "no axis": Case((4,), (), (), (), ()),
}


@pytest.mark.parametrize("fn", ["max", "mean", "sum"])
def test_any_window_over_any_axes(fn: str) -> None:
    def build(g: Graph) -> Any:
        made = []
        for i, case in enumerate(CASES.values()):
            x = g.input(f"x{i}", "float32", ("n", *case.x))
            made += [g.push(case.op(fn), x), g.push(case.op(fn, ceil=True), x)]
            if fn == "mean":
                made.append(g.push(case.op(fn, ceil=True, count_include_pad=True), x))
        return made

    check(build, {"n": 3}, {"n": 1}, {"n": 0})


@pytest.mark.parametrize("indices", ["row_major", "column_major"])
def test_where_the_maximum_is(indices: str) -> None:
    def build(g: Graph) -> Any:
        made = []
        for i, case in enumerate(CASES.values()):
            x = g.input(f"x{i}", "float32", ("n", *case.x))
            y, where = g.push_all(case.op("max", indices=indices), x)
            made += [y, where]
        return made

    check(build, {"n": 3}, {"n": 0})


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "int8", "uint8", "int64"])
def test_every_type(dtype: str) -> None:
    def build(g: Graph) -> Any:
        x = g.input("x", dtype, ("n", *CASES["an image"].x))
        functions = ("max", "mean", "sum") if x.dtype.is_float else ("max", "sum")
        return [g.push(CASES["an image"].op(fn), x) for fn in functions]

    check(build, {"n": 2}, high=100)


def test_nan_and_infinity() -> None:
    g = Graph("nan")
    x = g.input("x", "float32", (1, 5, 9, 11))
    for fn in ("max", "mean", "sum"):
        g.output(fn, g.push(CASES["an image"].op(fn), x))
    _, where = g.push_all(CASES["an image"].op("max", indices="row_major"), x)
    g.output("where", where)
    array = np.random.default_rng(0).standard_normal((1, 5, 9, 11)).astype(np.float32)
    array[0, 0, 2:5, 3], array[0, 1, 4, 4], array[0, 2] = np.nan, np.inf, -np.inf
    check_graph(g, [{"x": array}])


def test_channels_last_and_what_follows_in_the_same_kernel() -> None:
    def build(g: Graph) -> Any:
        x = g.permute(g.input("x", "float32", ("n", 9, 11, 5)), (0, 3, 1, 2))
        y = g.push(CASES["an image"].op("max"), x)
        return g.relu(y * 2 - 1)

    run = check(build, {"n": 2})
    assert run.proof.launches == {"Pool": 1}
