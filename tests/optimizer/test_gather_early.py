"""Rows of computed tables are taken first."""

from __future__ import annotations

import numpy as np
import pytest

from kn_graph import DType, Graph, Value
from kn_graph.ops.gather import Gather
from tests.optimizer.check import check, ops_of, untouched

ROWS, WIDTH = 70_000, 64
TABLE = np.random.default_rng(0).integers(-128, 128, (ROWS, WIDTH)).astype(np.int8)
SCALES = np.random.default_rng(1).random((ROWS, 1), np.float32) + 0.5
INDICES = {"i": ("int64", ["n", "m"])}
FEEDS = [{"i": np.array([[0, 5, -1], [ROWS - 1, 7, 5]])}, {"i": np.zeros((0, 2), np.int64)}]


def scaled(g: Graph, scales: np.ndarray) -> Value:
    """Return a table of words as quantizers write it: 17 MiB, too large to fold."""
    wide = g.cast(g.constant(TABLE), DType.FLOAT32)
    return g.mul(wide, g.broadcast(g.constant(scales), (ROWS, WIDTH)))


@pytest.mark.parametrize(
    "scales", [SCALES, SCALES[:1], SCALES[:WIDTH].T], ids=["row", "one", "col"]
)
def test_rows_are_taken_before_they_are_scaled(scales):
    out = check(
        lambda g, i: g.gather(scaled(g, scales), i, 0), INDICES, {"gather_early": 2}, feeds=FEEDS
    )
    (kept,) = [
        n for n in out.nodes if isinstance(n.op, Gather) and n.results[0].dtype is DType.INT8
    ]
    assert list(map(str, kept.results[0].shape)) == ["n", "m", str(WIDTH)]
    assert all(n.results[0].shape != (ROWS, WIDTH) or not n.operands for n in out.nodes)


def test_columns_are_taken_too():
    out = check(
        lambda g, i: g.gather(scaled(g, SCALES), i, 1), INDICES, {"gather_early": 2},
        feeds=[{"i": np.array([[0, 5, -1], [WIDTH - 1, 7, 5]])}],
    )  # fmt: skip
    assert ops_of(out).count("Gather") == 1  # the scales of rows repeat along columns


def test_a_table_that_others_read_stays():
    def build(g: Graph, i: Value) -> list[Value]:
        table = scaled(g, SCALES)
        return [g.gather(table, i, 0), g.reduce("sum", table, [0])]

    untouched(build, INDICES, "gather_early")


def test_a_table_that_is_computed_of_inputs_stays():
    x = {**INDICES, "x": ("float32", [ROWS, WIDTH])}
    untouched(lambda g, i, x: g.gather(g.unary("exp", x), i, 0), x, "gather_early")
