"""Norms over axes that a view has merged."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kn_graph import Graph, Value
from kn_graph.dim import Size
from kn_graph.ops.norm import Norm
from kn_graph.optimizer.rules.norm_axes import _split
from tests.optimizer.check import check, ops_of, untouched

IMAGE = {"x": ("float32", ["n", 6, "m", 4])}
SIZES = ({"n": 2, "m": 3}, {"n": 1, "m": 1}, {"n": 0, "m": 2}, {"n": 1, "m": 0})


def group_norm(g: Graph, x: Value) -> Value:
    n, _, m, w = x.shape
    y = g.norm(g.view(x, (n, 3, 2 * m * w)), [2], 1e-5)
    return g.unary("sigmoid", g.view(y, x.shape))


def test_a_group_norm_keeps_its_axes():
    out = check(group_norm, IMAGE, {"norm_of_view": 1}, sizes=SIZES, rtol=1e-5)
    (op,) = [n.op for n in out.nodes if isinstance(n.op, Norm)]
    assert op.axes == (2, 3, 4)
    assert ops_of(out) == ["Norm", "View", "View", "sigmoid"]


def test_an_instance_norm_over_one_long_axis():
    def build(g: Graph, x: Value) -> Value:
        n, c, m, w = x.shape
        return g.view(g.norm(g.view(x, (n, c, m * w)), [2], 1e-5), x.shape)

    out = check(build, IMAGE, {"norm_of_view": 1}, sizes=SIZES, rtol=1e-5)
    assert ops_of(out) == ["Norm"]


def test_kept_axes_may_be_merged():
    x = {"x": ("float32", ["n", 3, 4])}
    untouched(lambda g, x: g.norm(g.view(x, (3 * x.shape[0], 4)), [1], 1e-5), x, "norm_of_view")
    untouched(lambda g, x: g.norm(x, [1, 2], 1e-5), x, "norm_of_view")


def test_a_view_that_only_splits_stays():
    x = {"x": ("float32", ["n", 12])}
    untouched(lambda g, x: g.norm(g.view(x, (x.shape[0], 3, 4)), [2], 1e-5), x, "norm_of_view")


def test_axes_that_do_not_fit_into_one_another_stay():
    x = {"x": ("float32", ["n", 4, 6])}
    untouched(lambda g, x: g.norm(g.view(x, (x.shape[0], 3, 8)), [2], 1e-5), x, "norm_of_view")


@pytest.mark.parametrize(
    ("before", "after", "want"),
    [
        ([6, 5, 4], [3, 40], [[3], [2, 5, 4]]),
        ([6, 5, 4], [30, 4], [[6, 5], [4]]),
        ([6, 5], [30], [[6, 5]]),
        ([12], [3, 4], [[3], [4]]),
        ([4, 6], [3, 8], None),
        ([4], [2, 2, 2], None),
        ([4, 2], [4], None),
    ],
)
def test_splitting(before: list[Size], after: list[Size], want: Sequence[object] | None):
    assert _split(before, after) == want
